// Sends code to the big model. What the classifier calls code, and what shows a fence of code itself, goes to the models
// of the list; without a list, to the candidate that generates slowest, which is the largest on one machine. All else is
// left to the box.
#include "laya.h"

static laya_json models;
static double sure = 0.6;  // of the classifier, from 0 to 1

static laya_str configure(laya_json config) {
  models = laya_get(config, LAYA_STR("models"));
  laya_json v = laya_get(config, LAYA_STR("confidence"));
  if (v.n) sure = laya_number_of(v);
  return sure < 0 || sure > 1 ? LAYA_STR("confidence is a number from 0 to 1") : (laya_str){ 0, 0 };
}

static int is_code(const laya_request *r) {
  return (laya_is(r->cls, "code") && r->confidence >= sure) || laya_find(r->head, LAYA_STR("```")) >= 0;
}

static void decide(const laya_request *r, laya_decision *d) {
  if (!is_code(r)) return;
  laya_json rest = models, model;
  laya_str none;
  while (laya_next(&rest, &none, &model)) {
    laya_str name = laya_text_of(model);
    for (uint32_t i = 0; i < r->ncandidates; i++)
      if (r->candidates[i].healthy && laya_same(r->candidates[i].model, name)) laya_to(d, r->candidates[i].id);
  }
  const laya_candidate *big = 0;
  for (uint32_t i = 0; i < r->ncandidates && !d->ncandidates; i++) {
    const laya_candidate *c = &r->candidates[i];
    if (c->healthy && c->ctx >= r->tokens && (!big || c->tg_tps < big->tg_tps)) big = c;
  }
  if (big && !d->ncandidates) laya_to(d, big->id);
  d->reason = LAYA_STR("code goes to the big model");
}

LAYA_CONFIGURE(configure)
LAYA_ROUTE(decide)
