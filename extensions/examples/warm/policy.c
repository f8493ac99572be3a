// Keeps a conversation where its prompt cache is warm, as long as that is worth it: the candidate that served it before is
// taken while its queue is short. A conversation that must move goes where the queue is shortest and reading is fastest.
#include "laya.h"

static int32_t patience = 3;    // requests that a conversation waits for before it moves
static int32_t little = 256;    // a prompt of fewer tokens is read again so fast that no queue is worth it

static laya_str configure(laya_json config) {
  laya_json v = laya_get(config, LAYA_STR("patience"));
  if (v.n) patience = (int32_t)laya_number_of(v);
  v = laya_get(config, LAYA_STR("little"));
  if (v.n) little = (int32_t)laya_number_of(v);
  return patience < 0 || little < 0 ? LAYA_STR("patience and little are numbers from 0 up") : (laya_str){ 0, 0 };
}

static int before(const laya_candidate *a, const laya_candidate *b) {
  if (a->queue != b->queue) return a->queue < b->queue;
  return a->pp_tps > b->pp_tps;
}

static void decide(const laya_request *r, laya_decision *d) {
  const laya_candidate *warm = 0, *list[LAYA_CANDIDATES];
  uint32_t n = 0;
  for (uint32_t i = 0; i < r->ncandidates; i++) {
    const laya_candidate *c = &r->candidates[i];
    if (!c->healthy || c->ctx < r->tokens) continue;
    if (c->sticky && c->queue <= (r->tokens < little ? 0 : patience)) {
      warm = c;
      continue;
    }
    uint32_t at = n++;
    for (; at && before(c, list[at - 1]); at--) list[at] = list[at - 1];
    list[at] = c;
  }
  if (warm) laya_to(d, warm->id);
  for (uint32_t i = 0; i < n; i++) laya_to(d, list[i]->id);
  d->reason = warm ? LAYA_STR("its cache is warm here") : LAYA_STR("the shortest queue");
}

LAYA_CONFIGURE(configure)
LAYA_ROUTE(decide)
