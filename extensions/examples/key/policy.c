// Each key has its models: a table of tenants with models, the best first. A tenant that is not in the table has those
// of "*", if there are any; with "strict" it is turned away otherwise.
#include "laya.h"

static laya_json tenants;
static int strict;

static laya_str configure(laya_json config) {
  tenants = laya_get(config, LAYA_STR("tenants"));
  strict = laya_truth_of(laya_get(config, LAYA_STR("strict")));
  laya_json rest = tenants, models;
  laya_str tenant;
  while (laya_next(&rest, &tenant, &models))
    if (!models.n || models.p[0] != '[') return laya_concat(LAYA_STR("a list of models is needed for "), tenant);
  return (laya_str){ 0, 0 };
}

static void decide(const laya_request *r, laya_decision *d) {
  laya_json models = laya_get(tenants, r->tenant), model;
  laya_str none;
  if (!models.n) models = laya_get(tenants, LAYA_STR("*"));
  if (!models.n) {
    if (strict) laya_refuse(d, 403, LAYA_STR("no_models"), LAYA_STR("this key has no models"));
    return;
  }
  while (laya_next(&models, &none, &model)) {
    laya_str name = laya_text_of(model);
    for (uint32_t i = 0; i < r->ncandidates; i++)
      if (r->candidates[i].healthy && laya_same(r->candidates[i].model, name)) laya_to(d, r->candidates[i].id);
  }
  d->reason = LAYA_STR("the models of the key");
}

LAYA_CONFIGURE(configure)
LAYA_ROUTE(decide)
