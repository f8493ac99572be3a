// The cheapest candidate that fits: healthy, with room for the prompt and an answer, and able to begin soon.
#include "laya.h"

static int32_t reserve = 1024;  // tokens kept for the answer
static int32_t queue = 4;       // a longer queue is passed over while another candidate fits

static laya_str configure(laya_json config) {
  laya_json v = laya_get(config, LAYA_STR("reserve"));
  if (v.n) reserve = (int32_t)laya_number_of(v);
  v = laya_get(config, LAYA_STR("queue"));
  if (v.n) queue = (int32_t)laya_number_of(v);
  return reserve < 0 || queue < 0 ? LAYA_STR("reserve and queue are numbers from 0 up") : (laya_str){ 0, 0 };
}

// better tells whether a goes before b: a short queue first, then the price, then the speed.
static int better(const laya_candidate *a, const laya_candidate *b) {
  int late = a->queue > queue, other = b->queue > queue;
  if (late != other) return other;
  if (a->price != b->price) return a->price < b->price;
  return a->tg_tps > b->tg_tps;
}

static void decide(const laya_request *r, laya_decision *d) {
  const laya_candidate *fits[LAYA_CANDIDATES];
  uint32_t n = 0;
  for (uint32_t i = 0; i < r->ncandidates; i++) {
    const laya_candidate *c = &r->candidates[i];
    if (!c->healthy || c->ctx < (int64_t)r->tokens + reserve) continue;
    uint32_t at = n++;
    for (; at && better(c, fits[at - 1]); at--) fits[at] = fits[at - 1];
    fits[at] = c;
  }
  for (uint32_t i = 0; i < n; i++) laya_to(d, fits[i]->id);
  d->reason = LAYA_STR("the cheapest that fits");
}

LAYA_CONFIGURE(configure)
LAYA_ROUTE(decide)
