// laya.h: what a module for a box needs, in one file. The request that the box asks about, the decision that it is
// answered, and the functions that the box offers. It needs no library.
//
//   clang --target=wasm32 -O3 -mbulk-memory -msimd128 -nostdlib -ffreestanding -Wl,--no-entry -Wl,--strip-all -o policy.wasm policy.c
//
//   #include "laya.h"
//   static void decide(const laya_request *r, laya_decision *d) {
//     if (r->ncandidates) laya_to(d, r->candidates[0].id);
//   }
//   LAYA_ROUTE(decide)
//
// Only functions that are used are imported, so a module asks for no more than it needs. Texts of a request are views of
// the memory that the box wrote; they live as long as the call. Every call begins from the same memory, so nothing needs
// to be freed and nothing is kept, except by laya_set and laya_add.
#ifndef LAYA_H
#define LAYA_H
#include <stddef.h>
#include <stdint.h>

typedef struct { const char *p; uint32_t n; } laya_str;  // not closed by a zero
typedef laya_str laya_json;                              // a JSON value as it stands
typedef struct { laya_str name, value; } laya_pair;
typedef struct { laya_str name; double value; } laya_score;

typedef struct {
  laya_str id, backend, device, model;
  int32_t ctx, queue;               // tokens; requests that wait
  int32_t cached;                   // tokens of this prompt that it would not have to compute again
  int healthy, sticky;
  double load;                      // share of its slots that are busy, 0 to 1
  double pp_tps, tg_tps, price;     // tokens a second; for a million tokens
} laya_candidate;

enum { LAYA_CANDIDATES = 256, LAYA_PAIRS = 64, LAYA_BUFFER = 65537 };  // more than that are passed over

typedef struct {
  laya_str id, conversation, api, model, tenant, key, head, tail, cls;  // key: id of the API key; cls: what the classifier said
  int32_t hour;                     // of the box's day, 0 to 23
  int32_t turn, tokens, bytes;      // tokens of the whole prompt, estimated; bytes of the last user message
  int stream, tools, images, json;
  double confidence;
  uint32_t nheaders, nscores, ncandidates;
  laya_pair headers[LAYA_PAIRS];    // names in lower case
  laya_score scores[LAYA_PAIRS];
  laya_candidate candidates[LAYA_CANDIDATES];
} laya_request;

typedef enum { LAYA_NONE, LAYA_ACTION_ROUTE, LAYA_ACTION_REJECT, LAYA_ACTION_ABSTAIN } laya_action;

// A decision that is left as it is given is no opinion: the box decides by itself.
typedef struct {
  laya_action action;
  laya_str cls, reason;
  double confidence;                // 0 to 1
  int32_t ttl_s, top_k, status;     // status: 400 to 499
  laya_str collection, query;       // passages of a document collection
  laya_str code, message;           // of a rejection
  uint32_t nscores, ncandidates, nparams, nheaders;
  laya_score scores[LAYA_PAIRS];
  laya_str candidates[LAYA_CANDIDATES];  // offered ids, the best first
  laya_pair params[LAYA_PAIRS];     // a parameter of the request with its value as JSON
  laya_pair headers[LAYA_PAIRS];    // of the response; names begin with x-laya-
} laya_decision;

// --- texts ---

#define LAYA_STR(literal) ((laya_str){ (literal), sizeof(literal) - 1 })

static inline int laya_same(laya_str a, laya_str b) {
  if (a.n != b.n) return 0;
  for (uint32_t i = 0; i < a.n; i++) if (a.p[i] != b.p[i]) return 0;
  return 1;
}

#define laya_is(text, literal) laya_same((text), LAYA_STR(literal))

extern unsigned char __heap_base;

// laya_alloc returns fresh memory, or stops the call when there is none. It is given back when the call ends.
static inline void *laya_alloc(uint32_t n) {
  static uintptr_t next;
  if (!next) next = (uintptr_t)&__heap_base;
  uintptr_t at = (next + 15) & ~(uintptr_t)15;
  if (n > 0x40000000) __builtin_trap();
  uintptr_t have = (uintptr_t)__builtin_wasm_memory_size(0) << 16;
  if (at + n > have && __builtin_wasm_memory_grow(0, (at + n - have + 65535) >> 16) == (size_t)-1) __builtin_trap();
  next = at + n;
  return (void *)at;
}

static inline laya_str laya_concat(laya_str a, laya_str b) {
  char *to = laya_alloc(a.n + b.n);
  __builtin_memcpy(to, a.p, a.n);
  __builtin_memcpy(to + a.n, b.p, b.n);
  return (laya_str){ to, a.n + b.n };
}

// laya_digits writes a whole number.
static inline laya_str laya_digits(int64_t v) {
  char *to = laya_alloc(20), *p = to + 20;
  uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;
  do *--p = (char)('0' + u % 10); while (u /= 10);
  if (v < 0) *--p = '-';
  return (laya_str){ p, (uint32_t)(to + 20 - p) };
}

// laya_find returns where a text occurs in another, or -1.
static inline int32_t laya_find(laya_str in, laya_str what) {
  for (uint32_t i = 0; what.n <= in.n && i <= in.n - what.n; i++)
    if (!what.n || (in.p[i] == what.p[0] && laya_same((laya_str){ in.p + i, what.n }, what))) return (int32_t)i;
  return -1;
}

// laya_header returns a header of the request, by its name in lower case; empty when the box did not send it.
static inline laya_str laya_header(const laya_request *r, laya_str name) {
  for (uint32_t i = 0; i < r->nheaders; i++) if (laya_same(r->headers[i].name, name)) return r->headers[i].value;
  return (laya_str){ 0, 0 };
}

// --- deciding ---

// laya_to adds a candidate to those that the request is routed to, the best first.
static inline void laya_to(laya_decision *d, laya_str id) {
  d->action = LAYA_ACTION_ROUTE;
  if (d->ncandidates < LAYA_CANDIDATES) d->candidates[d->ncandidates++] = id;
}

// laya_refuse rejects the request.
static inline void laya_refuse(laya_decision *d, int32_t status, laya_str code, laya_str message) {
  d->action = LAYA_ACTION_REJECT, d->status = status, d->code = code, d->message = message;
}

static inline void laya_respond(laya_decision *d, laya_str name, laya_str value) {
  if (d->nheaders < LAYA_PAIRS) d->headers[d->nheaders++] = (laya_pair){ name, value };
}

static inline void laya_param(laya_decision *d, laya_str name, laya_json value) {
  if (d->nparams < LAYA_PAIRS) d->params[d->nparams++] = (laya_pair){ name, value };
}

// --- reading JSON ---

// laya_reader walks over JSON. What it returns after bad is set means nothing.
typedef struct { char *p, *end; int bad; } laya_reader;

static inline char laya_white(laya_reader *r) {
  for (; r->p < r->end; r->p++) {
    unsigned char c = (unsigned char)*r->p;
    if (c > ' ') return (char)c;
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') r->bad = 1;
  }
  return 0;
}

static inline int laya_take(laya_reader *r, char c) {
  if (laya_white(r) != c || r->bad) return r->bad = 1, 0;
  return r->p++, 1;
}

static inline void laya_word(laya_reader *r, const char *w, uint32_t n) {
  if (r->bad || r->end - r->p < (ptrdiff_t)n || !laya_same((laya_str){ r->p, n }, (laya_str){ w, n })) { r->bad = 1; return; }
  r->p += n;
}

static inline int laya_null(laya_reader *r) {
  if (laya_white(r) != 'n') return 0;
  return laya_word(r, "null", 4), 1;
}

// laya_more steps to the n-th part of an object or list that was opened; 0 after the last one.
static inline int laya_more(laya_reader *r, uint32_t n, char end) {
  char c = laya_white(r);
  if (r->bad || !c) return r->bad = 1, 0;
  if (c == end) return r->p++, 0;
  if (n && (!laya_take(r, ',') || laya_white(r) == end)) r->bad = 1;
  return !r->bad;
}

static inline int laya_open(laya_reader *r, char c) { return !laya_null(r) && laya_take(r, c); }

static uint32_t laya_hex(laya_reader *r) {
  uint32_t u = 0;
  for (int i = 0; i < 4; i++, r->p++) {
    unsigned char c = r->p < r->end ? (unsigned char)*r->p : 0, low = c | 0x20;
    if (c >= '0' && c <= '9') u = u << 4 | (uint32_t)(c - '0');
    else if (low >= 'a' && low <= 'f') u = u << 4 | (uint32_t)(low - 'a' + 10);
    else r->bad = 1;
  }
  return u;
}

// laya_escape reads what follows a backslash and writes it as UTF-8.
static char *laya_escape(laya_reader *r, char *to) {
  char c = r->p < r->end ? *r->p++ : 0;
  switch (c) {
    case '"': case '\\': case '/': *to++ = c; return to;
    case 'b': *to++ = '\b'; return to;
    case 'f': *to++ = '\f'; return to;
    case 'n': *to++ = '\n'; return to;
    case 'r': *to++ = '\r'; return to;
    case 't': *to++ = '\t'; return to;
    case 'u': break;
    default: r->bad = 1; return to;
  }
  uint32_t u = laya_hex(r);
  if (u >> 10 == 0x36 && r->end - r->p > 1 && r->p[0] == '\\' && r->p[1] == 'u') {
    char *back = r->p;
    r->p += 2;
    uint32_t low = laya_hex(r);
    if (low >> 10 == 0x37) u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
    else r->p = back;
  }
  if (u >> 11 == 0x1B) u = 0xFFFD;  // half of a pair
  if (u < 0x80) return *to++ = (char)u, to;
  if (u < 0x800) *to++ = (char)(0xC0 | u >> 6);
  else {
    if (u < 0x10000) *to++ = (char)(0xE0 | u >> 12);
    else *to++ = (char)(0xF0 | u >> 18), *to++ = (char)(0x80 | (u >> 12 & 63));
    *to++ = (char)(0x80 | (u >> 6 & 63));
  }
  *to++ = (char)(0x80 | (u & 63));
  return to;
}

// laya_string reads a string and decodes it where it stands.
static laya_str laya_string(laya_reader *r) {
  if (laya_null(r) || !laya_take(r, '"')) return (laya_str){ 0, 0 };
  char *from = r->p, *to;
  while (r->p < r->end && *r->p != '"' && *r->p != '\\' && (unsigned char)*r->p >= ' ') r->p++;
  for (to = r->p; r->p < r->end;) {
    char c = *r->p++;
    if (c == '"') return (laya_str){ from, (uint32_t)(to - from) };
    if ((unsigned char)c < ' ') break;
    if (c == '\\') to = laya_escape(r, to);
    else *to++ = c;
  }
  r->bad = 1;
  return (laya_str){ 0, 0 };
}

// laya_member reads the n-th key of an object that was opened.
static inline int laya_member(laya_reader *r, uint32_t n, laya_str *key) {
  if (!laya_more(r, n, '}')) return 0;
  *key = laya_string(r);
  return laya_take(r, ':');
}

// laya_float reads a number, exact to 15 digits.
static double laya_float(laya_reader *r) {
  if (laya_null(r)) return 0;
  double v = 0, scale = 1;
  int minus = 0, digits = 0, power = 0, sign = 1;
  if (r->p < r->end && *r->p == '-') minus = 1, r->p++;
  for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; digits++) v = v * 10 + (*r->p++ - '0');
  if (digits && r->p < r->end && *r->p == '.')
    for (r->p++; r->p < r->end && *r->p >= '0' && *r->p <= '9'; digits++, power--) v = v * 10 + (*r->p++ - '0');
  if (digits && r->p < r->end && (*r->p | 0x20) == 'e') {
    int e = 0;
    if (++r->p < r->end && (*r->p == '-' || *r->p == '+')) sign = *r->p++ == '-' ? -1 : 1;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) e = e < 1000 ? e * 10 + (*r->p - '0') : e;
    power += sign * e;
  }
  if (!digits) r->bad = 1;
  for (int i = power < 0 ? -power : power; i > 0 && scale < 1e300; i--) scale *= 10;
  v = power < 0 ? v / scale : v * scale;
  return minus ? -v : v;
}

static inline int32_t laya_whole(laya_reader *r) {
  double v = laya_float(r);
  return v > 2147483647.0 ? 2147483647 : v < -2147483647.0 ? -2147483647 : v == v ? (int32_t)v : 0;
}

static inline int laya_truth(laya_reader *r) {
  char c = laya_white(r);
  if (c == 't') return laya_word(r, "true", 4), 1;
  if (c == 'f') laya_word(r, "false", 5);
  else if (!laya_null(r)) r->bad = 1;
  return 0;
}

// laya_skip passes over a value without looking into it more than is needed to find its end.
static void laya_skip(laya_reader *r) {
  for (int depth = 0;;) {
    char c = laya_white(r);
    if (r->bad || !c) { r->bad = 1; return; }
    if (c == '"') {
      for (r->p++; r->p < r->end && *r->p != '"'; r->p++) if (*r->p == '\\') r->p++;
      if (++r->p > r->end) r->bad = 1, r->p = r->end;
    } else if (c == '{' || c == '[') depth++, r->p++;
    else if (c == '}' || c == ']') depth--, r->p++;
    else if ((c == ',' || c == ':') && depth > 0) { r->p++; continue; }
    else if (c == 't' || c == 'f') laya_truth(r);
    else if (c == 'n') laya_null(r);
    else laya_float(r);
    if (depth <= 0) { r->bad |= depth < 0; return; }
  }
}

static void laya_read_flags(laya_reader *r, laya_request *q) {
  laya_str k;
  if (!laya_open(r, '{')) return;
  for (uint32_t n = 0; laya_member(r, n, &k); n++) {
    if (laya_is(k, "stream")) q->stream = laya_truth(r);
    else if (laya_is(k, "tools")) q->tools = laya_truth(r);
    else if (laya_is(k, "images")) q->images = laya_truth(r);
    else if (laya_is(k, "json")) q->json = laya_truth(r);
    else laya_skip(r);
  }
}

static void laya_read_candidate(laya_reader *r, laya_candidate *c) {
  laya_str k;
  *c = (laya_candidate){ 0 };
  if (!laya_take(r, '{')) return;
  for (uint32_t n = 0; laya_member(r, n, &k); n++) {
    if (laya_is(k, "id")) c->id = laya_string(r);
    else if (laya_is(k, "backend")) c->backend = laya_string(r);
    else if (laya_is(k, "device")) c->device = laya_string(r);
    else if (laya_is(k, "model")) c->model = laya_string(r);
    else if (laya_is(k, "ctx")) c->ctx = laya_whole(r);
    else if (laya_is(k, "healthy")) c->healthy = laya_truth(r);
    else if (laya_is(k, "queue")) c->queue = laya_whole(r);
    else if (laya_is(k, "pp_tps")) c->pp_tps = laya_float(r);
    else if (laya_is(k, "tg_tps")) c->tg_tps = laya_float(r);
    else if (laya_is(k, "load")) c->load = laya_float(r);
    else if (laya_is(k, "cached")) c->cached = laya_whole(r);
    else if (laya_is(k, "sticky")) c->sticky = laya_truth(r);
    else if (laya_is(k, "price")) c->price = laya_float(r);
    else laya_skip(r);
  }
}

static void laya_read_lists(laya_reader *r, laya_request *q, laya_str key) {
  laya_str k;
  if (laya_is(key, "headers")) {
    if (laya_open(r, '{'))
      for (uint32_t n = 0; laya_member(r, n, &k); n++) {
        laya_str v = laya_string(r);
        if (n < LAYA_PAIRS) q->headers[q->nheaders++] = (laya_pair){ k, v };
      }
  } else if (laya_is(key, "scores")) {
    if (laya_open(r, '{'))
      for (uint32_t n = 0; laya_member(r, n, &k); n++) {
        double v = laya_float(r);
        if (n < LAYA_PAIRS) q->scores[q->nscores++] = (laya_score){ k, v };
      }
  } else if (laya_is(key, "candidates")) {
    if (laya_open(r, '['))
      for (uint32_t n = 0; laya_more(r, n, ']'); n++) {
        if (n < LAYA_CANDIDATES) laya_read_candidate(r, &q->candidates[q->ncandidates++]);
        else laya_skip(r);
      }
  } else laya_skip(r);
}

static void laya_read(laya_reader *r, laya_request *q) {
  laya_str k;
  __builtin_memset(q, 0, offsetof(laya_request, headers));
  if (!laya_take(r, '{')) return;
  for (uint32_t n = 0; laya_member(r, n, &k); n++) {
    if (laya_is(k, "id")) q->id = laya_string(r);
    else if (laya_is(k, "conversation")) q->conversation = laya_string(r);
    else if (laya_is(k, "turn")) q->turn = laya_whole(r);
    else if (laya_is(k, "api")) q->api = laya_string(r);
    else if (laya_is(k, "model")) q->model = laya_string(r);
    else if (laya_is(k, "tenant")) q->tenant = laya_string(r);
    else if (laya_is(k, "key")) q->key = laya_string(r);
    else if (laya_is(k, "hour")) q->hour = laya_whole(r);
    else if (laya_is(k, "tokens")) q->tokens = laya_whole(r);
    else if (laya_is(k, "bytes")) q->bytes = laya_whole(r);
    else if (laya_is(k, "flags")) laya_read_flags(r, q);
    else if (laya_is(k, "head")) q->head = laya_string(r);
    else if (laya_is(k, "tail")) q->tail = laya_string(r);
    else if (laya_is(k, "class")) q->cls = laya_string(r);
    else if (laya_is(k, "confidence")) q->confidence = laya_float(r);
    else laya_read_lists(r, q, k);
  }
}

// A configuration is read where it stands: a key with an escape is compared as it is written. What is not there is
// empty, and zero as whatever is asked for.

// laya_next takes the next member of an object, or with an empty key the next item of a list, from rest, which begins as
// the value itself; 0 when there is none.
static inline int laya_next(laya_json *rest, laya_str *key, laya_json *value) {
  laya_reader r = { (char *)rest->p, (char *)rest->p + rest->n, 0 };
  char c = laya_white(&r);
  *key = (laya_str){ 0, 0 };
  if (c != '{' && c != '[' && c != ',') return 0;
  r.p++;
  c = laya_white(&r);
  if (c == '}' || c == ']' || !c) return 0;
  char *from = r.p;
  laya_skip(&r);
  if (!r.bad && laya_white(&r) == ':') {
    *key = (laya_str){ from + 1, (uint32_t)(r.p - from - 2) };
    while (key->n && key->p[key->n] != '"') key->n--;
    r.p++, laya_white(&r), from = r.p;
    laya_skip(&r);
  }
  if (r.bad) return 0;
  *value = (laya_json){ from, (uint32_t)(r.p - from) };
  *rest = (laya_json){ r.p, (uint32_t)(r.end - r.p) };
  return 1;
}

static inline laya_json laya_get(laya_json object, laya_str name) {
  laya_str key;
  laya_json value;
  while (laya_next(&object, &key, &value)) if (laya_same(key, name)) return value;
  return (laya_json){ 0, 0 };
}

static inline laya_str laya_text_of(laya_json v) {
  laya_str copy = laya_concat(v, (laya_str){ 0, 0 });
  laya_reader r = { (char *)copy.p, (char *)copy.p + copy.n, 0 };
  laya_str s = laya_white(&r) == '"' ? laya_string(&r) : (laya_str){ 0, 0 };
  return r.bad ? (laya_str){ 0, 0 } : s;
}

static inline double laya_number_of(laya_json v) {
  laya_reader r = { (char *)v.p, (char *)v.p + v.n, 0 };
  char c = laya_white(&r);
  return c == '-' || (c >= '0' && c <= '9') ? laya_float(&r) : 0;
}

static inline int laya_truth_of(laya_json v) {
  laya_reader r = { (char *)v.p, (char *)v.p + v.n, 0 };
  return laya_white(&r) == 't';
}

// --- writing ---

static struct { uint32_t n; char b[20000]; } laya_out;

static void laya_put(const char *p, uint32_t n) {
  if (n > sizeof laya_out.b - laya_out.n) __builtin_trap();  // more than a box takes
  __builtin_memcpy(laya_out.b + laya_out.n, p, n);
  laya_out.n += n;
}

#define LAYA_PUT(literal) laya_put(literal, sizeof(literal) - 1)

static void laya_put_text(laya_str s) {
  LAYA_PUT("\"");
  for (uint32_t i = 0; i < s.n; i++) {
    unsigned char c = (unsigned char)s.p[i];
    if (c == '"' || c == '\\') LAYA_PUT("\\");
    if (c < ' ') {
      char u[6] = { '\\', 'u', '0', '0', "01"[c >> 4], "0123456789abcdef"[c & 15] };
      laya_put(u, 6);
    } else laya_put((const char *)&c, 1);
  }
  LAYA_PUT("\"");
}

static void laya_put_whole(int64_t v) {
  laya_str s = laya_digits(v);
  laya_put(s.p, s.n);
}

// laya_put_number writes six decimals at most.
static void laya_put_number(double v) {
  if (!(v > -1e15 && v < 1e15)) { LAYA_PUT("null"); return; }  // which a box refuses, and says so
  if (v < 0) { LAYA_PUT("-"); v = -v; }
  uint64_t whole = (uint64_t)v, part = (uint64_t)((v - (double)whole) * 1e6 + 0.5);
  if (part >= 1000000) whole++, part = 0;
  laya_put_whole((int64_t)whole);
  if (!part) return;
  char d[7] = ".000000";
  int n = 7;
  for (int i = 6; i; i--, part /= 10) d[i] = (char)('0' + part % 10);
  while (d[n - 1] == '0') n--;
  laya_put(d, (uint32_t)n);
}

static void laya_put_pairs(const laya_pair *list, uint32_t n, int texts) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) LAYA_PUT(",");
    laya_put_text(list[i].name);
    LAYA_PUT(":");
    if (texts) laya_put_text(list[i].value);
    else laya_put(list[i].value.p, list[i].value.n);
  }
  LAYA_PUT("}");
}

static void laya_put_lists(const laya_decision *d) {
  for (uint32_t i = 0; i < d->nscores; i++) {
    if (i) LAYA_PUT(",");
    else LAYA_PUT(",\"scores\":{");
    laya_put_text(d->scores[i].name), LAYA_PUT(":"), laya_put_number(d->scores[i].value);
  }
  if (d->nscores) LAYA_PUT("}");
  for (uint32_t i = 0; i < d->ncandidates; i++) {
    if (i) LAYA_PUT(",");
    else LAYA_PUT(",\"candidates\":[");
    laya_put_text(d->candidates[i]);
  }
  if (d->ncandidates) LAYA_PUT("]");
  if (d->nparams) LAYA_PUT(",\"params\":{"), laya_put_pairs(d->params, d->nparams, 0);
  if (d->nheaders) LAYA_PUT(",\"headers\":{"), laya_put_pairs(d->headers, d->nheaders, 1);
}

static void laya_put_decision(const laya_decision *d) {
  laya_out.n = 0;
  if (d->action == LAYA_ACTION_ROUTE) LAYA_PUT("{\"v\":1,\"action\":\"route\"");
  else if (d->action == LAYA_ACTION_REJECT) LAYA_PUT("{\"v\":1,\"action\":\"reject\"");
  else LAYA_PUT("{\"v\":1,\"action\":\"abstain\"");
  if (d->cls.n) LAYA_PUT(",\"class\":"), laya_put_text(d->cls);
  if (d->confidence != 0) LAYA_PUT(",\"confidence\":"), laya_put_number(d->confidence);
  laya_put_lists(d);
  if (d->collection.n) {
    LAYA_PUT(",\"rag\":{\"collection\":"), laya_put_text(d->collection);
    LAYA_PUT(",\"top_k\":"), laya_put_whole(d->top_k);
    if (d->query.n) LAYA_PUT(",\"query\":"), laya_put_text(d->query);
    LAYA_PUT("}");
  }
  if (d->action == LAYA_ACTION_REJECT) {
    LAYA_PUT(",\"reject\":{\"status\":"), laya_put_whole(d->status);
    LAYA_PUT(",\"code\":"), laya_put_text(d->code);
    LAYA_PUT(",\"message\":"), laya_put_text(d->message), LAYA_PUT("}");
  }
  if (d->reason.n) LAYA_PUT(",\"reason\":"), laya_put_text(d->reason);
  if (d->ttl_s) LAYA_PUT(",\"ttl_s\":"), laya_put_whole(d->ttl_s);
  LAYA_PUT("}");
}

// --- what a box looks for ---

#define LAYA_EXPORT(name) __attribute__((export_name(name), used))

static char laya_in[LAYA_BUFFER];

LAYA_EXPORT("laya_abi_v1") void laya_marker(void) {}

LAYA_EXPORT("laya_buffer") uint32_t laya_reserve(uint32_t n) { return n && n <= LAYA_BUFFER ? (uint32_t)(uintptr_t)laya_in : 0; }

static inline uint64_t laya_pack(laya_str s) { return (uint64_t)(uintptr_t)s.p << 32 | s.n; }

static uint64_t laya_run(uint32_t n, void (*decide)(const laya_request *, laya_decision *)) {
  static laya_request request;
  static laya_decision decision;
  if (n > LAYA_BUFFER) return 0;
  laya_reader r = { laya_in, laya_in + n, 0 };
  laya_read(&r, &request);
  if (laya_white(&r) || r.bad) return 0;
  __builtin_memset(&decision, 0, offsetof(laya_decision, scores));
  decide(&request, &decision);
  if (decision.action == LAYA_NONE) return 0;
  laya_put_decision(&decision);
  return laya_pack((laya_str){ laya_out.b, laya_out.n });
}

static uint64_t laya_run_configure(uint32_t n, laya_str (*f)(laya_json)) {
  if (n > LAYA_BUFFER) return laya_pack(LAYA_STR("the configuration is too long"));
  laya_json config = laya_concat((laya_str){ laya_in, n }, (laya_str){ 0, 0 });
  laya_reader r = { (char *)config.p, (char *)config.p + n, 0 };
  laya_skip(&r);
  if (laya_white(&r) || r.bad) return laya_pack(LAYA_STR("the configuration is not JSON"));
  laya_str why = f(config);
  return why.n ? laya_pack(why) : 0;
}

// LAYA_ROUTE and LAYA_CLASSIFY export a function (const laya_request *, laya_decision *); LAYA_CONFIGURE one that is given
// the operator's JSON, may keep it, and returns what is wrong with it.
#define LAYA_ROUTE(decide) LAYA_EXPORT("laya_route") uint64_t laya_route_(uint32_t p, uint32_t n) { (void)p; return laya_run(n, decide); }
#define LAYA_CLASSIFY(decide) LAYA_EXPORT("laya_classify") uint64_t laya_classify_(uint32_t p, uint32_t n) { (void)p; return laya_run(n, decide); }
#define LAYA_CONFIGURE(f) LAYA_EXPORT("laya_configure") uint64_t laya_configure_(uint32_t p, uint32_t n) { (void)p; return laya_run_configure(n, f); }

// --- what a box offers ---

enum { LAYA_INVALID = -1, LAYA_MISSING = -2, LAYA_FULL = -3, LAYA_UNAVAILABLE = -4, LAYA_DENIED = -5 };
enum { LAYA_DEBUG, LAYA_INFO, LAYA_WARN, LAYA_ERROR };
enum { LAYA_LAST_USER, LAYA_SYSTEM, LAYA_WHOLE };

#define LAYA_IMPORT(name) __attribute__((import_module("laya_v1"), import_name(name))) extern

LAYA_IMPORT("log") void laya_host_log(int32_t level, const char *p, uint32_t n);
LAYA_IMPORT("metric") int32_t laya_metric(int32_t id, double v);  // the place in the manifest's metrics; a value to add
LAYA_IMPORT("now_ms") int64_t laya_now(void);                     // milliseconds since 1970, the same during a call
LAYA_IMPORT("tokens") int32_t laya_host_tokens(const char *p, uint32_t n);
LAYA_IMPORT("embed") int32_t laya_host_embed(const char *p, uint32_t n, float *out, uint32_t bytes);
LAYA_IMPORT("decide") int32_t laya_host_decide(const char *p, uint32_t n, char *out, uint32_t cap);
LAYA_IMPORT("text") int32_t laya_text(int32_t part, uint32_t offset, char *out, uint32_t cap);
LAYA_IMPORT("kv_get") int32_t laya_host_get(const char *p, uint32_t n, char *out, uint32_t cap);
LAYA_IMPORT("kv_set") int32_t laya_host_set(const char *p, uint32_t n, const char *v, uint32_t vn, int32_t seconds);
LAYA_IMPORT("kv_add") int32_t laya_host_add(const char *p, uint32_t n, int64_t delta, int32_t seconds, int64_t *sum);
LAYA_IMPORT("asset") int32_t laya_host_asset(const char *p, uint32_t n, uint32_t offset, char *out, uint32_t cap);

// Each answers what ABI.md says: a length or count, or a code below zero.
static inline void laya_log(int32_t level, laya_str s) { laya_host_log(level, s.p, s.n); }
static inline int32_t laya_tokens(laya_str s) { return laya_host_tokens(s.p, s.n); }
static inline int32_t laya_embed(laya_str s, float *out, uint32_t numbers) { return laya_host_embed(s.p, s.n, out, numbers * 4); }
static inline int32_t laya_kv_get(laya_str key, char *out, uint32_t cap) { return laya_host_get(key.p, key.n, out, cap); }
static inline int32_t laya_kv_set(laya_str key, laya_str v, int32_t seconds) { return laya_host_set(key.p, key.n, v.p, v.n, seconds); }
static inline int32_t laya_kv_add(laya_str key, int64_t delta, int32_t seconds, int64_t *sum) { return laya_host_add(key.p, key.n, delta, seconds, sum); }
static inline int32_t laya_asset(laya_str name, uint32_t offset, char *out, uint32_t cap) { return laya_host_asset(name.p, name.n, offset, out, cap); }

// laya_decide asks the box's decision model which criterion a text meets: names with their definitions. The answer is JSON
// {"choice", "confidence", "scores"}, to be read by laya_get.
static inline int32_t laya_decide(laya_str text, const laya_pair *criteria, uint32_t n, laya_json *answer) {
  char *out = laya_alloc(4096);
  laya_out.n = 0;
  LAYA_PUT("{\"text\":"), laya_put_text(text), LAYA_PUT(",\"criteria\":{");
  laya_put_pairs(criteria, n, 1), LAYA_PUT("}");
  int32_t got = laya_host_decide(laya_out.b, laya_out.n, out, 4096);
  *answer = (laya_json){ out, got > 0 && got <= 4096 ? (uint32_t)got : 0 };
  return got;
}
#endif
