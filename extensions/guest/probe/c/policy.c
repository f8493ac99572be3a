// Uses all of the SDK and answers what it saw, for the SDK's test.
#include "laya.h"

static laya_str settings;

static void add(laya_str *to, laya_str s) { *to = laya_concat(to->p ? laya_concat(*to, LAYA_STR("|")) : *to, s.p ? s : LAYA_STR("")); }
static laya_str flag(int b) { return b ? LAYA_STR("1") : LAYA_STR("0"); }
static laya_str whole(double v) { return laya_digits((int64_t)(v + 0.5)); }
static laya_str code(laya_str s, int32_t n) { return n < 0 ? laya_digits(n) : s; }

static laya_str configure(laya_json config) {
  laya_str note = laya_text_of(laya_get(config, LAYA_STR("note"))), none;
  if (laya_truth_of(laya_get(config, LAYA_STR("wrong")))) return laya_concat(laya_concat(LAYA_STR("it is wrong: \""), note), LAYA_STR("\""));
  laya_json list = laya_get(config, LAYA_STR("list")), v[8];
  uint32_t n = 0;
  while (n < 8 && laya_next(&list, &none, &v[n])) n++;
  settings = (laya_str){ 0, 0 };
  add(&settings, note);
  add(&settings, laya_digits(n));
  if (n == 3) {
    add(&settings, flag(laya_truth_of(laya_get(v[2], LAYA_STR("a")))));
    add(&settings, whole(laya_number_of(v[1]) * 100));
  }
  char *out = laya_alloc(8);
  int32_t got = laya_asset(LAYA_STR("a.txt"), 1, out, 8);
  add(&settings, code((laya_str){ out, got > 0 ? (uint32_t)got : 0 }, got));
  return (laya_str){ 0, 0 };
}

static laya_str fields(const laya_request *r) {
  laya_str s = { 0, 0 };
  laya_str flags = laya_concat(laya_concat(flag(r->stream), flag(r->tools)), laya_concat(flag(r->images), flag(r->json)));
  laya_str all[] = { r->id, r->conversation, laya_digits(r->turn), r->api, r->model, r->tenant, r->key, laya_digits(r->hour), laya_digits(r->tokens), laya_digits(r->bytes),
                     flags, laya_header(r, LAYA_STR("x-team")), laya_header(r, LAYA_STR("none")), r->head, r->tail };
  for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) add(&s, all[i]);
  return s;
}

static laya_str first(const laya_request *r) {
  const laya_candidate *c = &r->candidates[0];
  laya_str s = { 0, 0 };
  laya_str all[] = { c->id, c->backend, c->device, c->model, laya_digits(c->ctx), flag(c->healthy), laya_digits(c->queue),
                     whole(c->pp_tps * 100), whole(c->tg_tps * 100), flag(c->sticky), whole(c->price * 100), whole(c->load * 100), laya_digits(c->cached) };
  for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) add(&s, all[i]);
  return s;
}

static laya_str ask(const laya_request *r) {
  if (!r->json) {
    float *out = laya_alloc(64);
    int32_t n = laya_embed(r->head, out, 16);
    return code(laya_concat(laya_concat(laya_digits(n), LAYA_STR(":")), whole(out[0] * 100)), n);
  }
  laya_pair criteria[] = { { LAYA_STR("a"), LAYA_STR("first") }, { LAYA_STR("b"), LAYA_STR("second") } };
  laya_json answer, scores, v;
  laya_str key;
  int32_t n = laya_decide(r->head, criteria, 2, &answer), count = 0;
  scores = laya_get(answer, LAYA_STR("scores"));
  while (laya_next(&scores, &key, &v)) count++;
  laya_str s = laya_concat(laya_text_of(laya_get(answer, LAYA_STR("choice"))), LAYA_STR(":"));
  s = laya_concat(s, whole(laya_number_of(laya_get(answer, LAYA_STR("confidence"))) * 100));
  return code(laya_concat(laya_concat(s, LAYA_STR(":")), laya_digits(count)), n);
}

static laya_str box(const laya_request *r) {
  laya_log(LAYA_WARN, LAYA_STR("seen"));
  laya_str s = { 0, 0 };
  char text[4], value[10];
  int64_t sum;
  add(&s, laya_digits(laya_now()));
  add(&s, laya_digits(laya_tokens(r->head)));
  add(&s, ask(r));
  int32_t n = laya_text(LAYA_SYSTEM, 2, text, 4);
  add(&s, code((laya_str){ text, (uint32_t)n }, n));
  add(&s, laya_digits(laya_kv_set(LAYA_STR("k"), LAYA_STR("v1"), 60)));
  n = laya_kv_get(LAYA_STR("k"), value, 10);
  add(&s, code((laya_str){ value, (uint32_t)n }, n));
  add(&s, laya_digits(laya_kv_add(LAYA_STR("n"), 5, 0, &sum)));
  n = laya_kv_add(LAYA_STR("n"), -7, 0, &sum);
  add(&s, code(laya_digits(sum), n));
  add(&s, flag(laya_kv_get(LAYA_STR("none"), value, 10) >= 0));
  add(&s, laya_digits(laya_asset(LAYA_STR("a.txt"), 0, text, 4)));
  add(&s, laya_digits(laya_metric(0, 1.5)));
  add(&s, laya_digits(laya_metric(9, 1)));
  return s;
}

static void decide(const laya_request *r, laya_decision *d) {
  if (laya_is(r->model, "reject")) {
    laya_refuse(d, 451, LAYA_STR("c"), LAYA_STR("say \"no\"\n"));
    d->reason = LAYA_STR("\xc3\xbc\x01");
    return;
  }
  d->cls = r->cls, d->confidence = r->confidence, d->nscores = r->nscores;
  for (uint32_t i = 0; i < r->nscores; i++) d->scores[i] = r->scores[i];
  for (uint32_t i = 0; i < r->ncandidates; i++) laya_to(d, r->candidates[i].id);
  laya_param(d, LAYA_STR("temperature"), LAYA_STR("0.5"));
  laya_param(d, LAYA_STR("stop"), LAYA_STR("[\"x\"]"));
  laya_respond(d, LAYA_STR("x-laya-fields"), fields(r));
  laya_respond(d, LAYA_STR("x-laya-first"), first(r));
  laya_respond(d, LAYA_STR("x-laya-box"), box(r));
  d->collection = LAYA_STR("docs"), d->top_k = 3, d->query = LAYA_STR("q");
  d->reason = settings, d->ttl_s = 60;
}

static void abstain(const laya_request *r, laya_decision *d) {
  (void)r;
  d->action = LAYA_ACTION_ABSTAIN;
}

LAYA_CONFIGURE(configure)
LAYA_ROUTE(decide)
LAYA_CLASSIFY(abstain)
