// What a module for a box needs, in one file: the request that the box asks about, the decision that it is answered, and
// the functions that the box offers.
//
//   asc policy.ts --runtime stub --optimizeLevel 3 --use abort= -o policy.wasm
//
//   import { Request, Decision, run } from "./laya";
//   export { laya_abi_v1, laya_buffer } from "./laya";
//   export function laya_route(address: u32, length: u32): u64 {
//     return run(length, (r: Request): Decision => new Decision().to(r.candidates[0].id));
//   }
//
// Only functions that are used are imported, so a module asks for no more than it needs. Texts of a request are views of
// the memory that the box wrote; they live as long as the call. Every call begins from the same memory, so nothing needs
// to be freed and nothing is kept, except by set and add.

/** Text as UTF-8, somewhere in memory. */
export class Text {
  constructor(public at: usize = 0, public length: i32 = 0) {}

  /** Makes one of a string. */
  static of(s: string): Text {
    return new Text(changetype<usize>(String.UTF8.encode(s)), String.UTF8.byteLength(s));
  }

  toString(): string { return String.UTF8.decodeUnsafe(this.at, this.length); }

  same(o: Text): bool { return this.length == o.length && memory.compare(this.at, o.at, this.length) == 0; }

  /** Compares with a string of ASCII. */
  is(s: string): bool {
    if (s.length != this.length) return false;
    for (let i = 0; i < s.length; i++) if (load<u8>(this.at + i) != <u8>load<u16>(changetype<usize>(s) + (i << 1))) return false;
    return true;
  }
}

export class Pair { constructor(public name: Text, public value: Text) {} }

export class Score { constructor(public name: Text, public value: f64) {} }

/** A place that may serve the request. */
export class Candidate {
  id: Text = new Text();
  backend: Text = new Text();
  device: Text = new Text();
  model: Text = new Text();
  /** tokens */
  ctx: i32 = 0;
  healthy: bool = false;
  /** requests that wait */
  queue: i32 = 0;
  /** share of its slots that are busy, 0 to 1 */
  load: f64 = 0;
  /** tokens of this prompt that it would not have to compute again */
  cached: i32 = 0;
  /** prompt tokens a second */
  pp_tps: f64 = 0;
  /** generated tokens a second */
  tg_tps: f64 = 0;
  /** it served this conversation before */
  sticky: bool = false;
  /** for a million tokens */
  price: f64 = 0;
}

/** What the box asks about. Fields that the box did not send are zero. */
export class Request {
  id: Text = new Text();
  conversation: Text = new Text();
  /** 1 for the first */
  turn: i32 = 0;
  api: Text = new Text();
  /** as the client asked */
  model: Text = new Text();
  tenant: Text = new Text();
  /** id of the API key */
  key: Text = new Text();
  /** of the box's day, 0 to 23 */
  hour: i32 = 0;
  /** of the whole prompt, estimated */
  tokens: i32 = 0;
  /** of the last user message */
  bytes: i32 = 0;
  stream: bool = false;
  tools: bool = false;
  images: bool = false;
  json: bool = false;
  /** those that the operator lists, names in lower case */
  headers: Pair[] = [];
  /** the first bytes of the last user message, and its last ones when it is longer */
  head: Text = new Text();
  tail: Text = new Text();
  /** what the classifier said */
  class_: Text = new Text();
  confidence: f64 = 0;
  scores: Score[] = [];
  candidates: Candidate[] = [];

  /** A header, by its name in lower case; empty when the box did not send it. */
  header(name: string): Text {
    for (let i = 0; i < this.headers.length; i++) if (this.headers[i].name.is(name)) return this.headers[i].value;
    return new Text();
  }
}

/** The answer. One that is returned as it was made is no opinion: the box decides by itself. */
export class Decision {
  /** "route", "reject", "abstain"; empty for no opinion */
  action: string = "";
  class_: Text = new Text();
  /** 0 to 1 */
  confidence: f64 = 0;
  scores: Score[] = [];
  /** offered ids, the best first */
  candidates: Text[] = [];
  /** parameters of the request with their values as JSON */
  params: Pair[] = [];
  /** of the response; names begin with x-laya- */
  headers: Pair[] = [];
  /** passages of a document collection; an empty query is the last user message */
  collection: Text = new Text();
  top_k: i32 = 0;
  query: Text = new Text();
  /** of a rejection: 400 to 499 */
  status: i32 = 0;
  code: Text = new Text();
  message: Text = new Text();
  /** for people */
  reason: string = "";
  ttl_s: i32 = 0;

  /** Adds a candidate to those that the request is routed to, the best first. */
  to(id: Text): Decision {
    this.action = "route";
    this.candidates.push(id);
    return this;
  }

  /** Rejects the request. */
  refuse(status: i32, code: string, message: string): Decision {
    this.action = "reject";
    this.status = status;
    this.code = Text.of(code);
    this.message = Text.of(message);
    return this;
  }

  because(reason: string): Decision {
    this.reason = reason;
    return this;
  }

  respond(name: string, value: Text): Decision {
    this.headers.push(new Pair(Text.of(name), value));
    return this;
  }
}

// --- what a box looks for ---

const CAPACITY: u32 = (64 << 10) + 1;
const input: usize = memory.data(65537);
const nothing = new Text();

export function laya_abi_v1(): void {}

export function laya_buffer(n: u32): u32 { return n == 0 || n > CAPACITY ? 0 : <u32>input; }

function pack(at: usize, n: i32): u64 { return (<u64>at << 32) | <u64>n; }

/** The body of laya_route and laya_classify. What is no request is answered with no opinion. */
export function run(length: u32, decide: (r: Request) => Decision): u64 {
  if (length > CAPACITY) return 0;
  const r = new Reader(input, input + length);
  const q = new Request();
  readRequest(r, q);
  if (r.white() || r.bad) return 0;
  const d = decide(q);
  if (d.action.length == 0) return 0;
  writeDecision(d);
  return pack(out, <i32>(o - out));
}

/** The body of laya_configure: gives the operator's JSON to f, which returns what is wrong with it, or "". */
export function runConfigure(length: u32, f: (config: Json) => string): u64 {
  if (length > CAPACITY) return 0;
  const copy = heap.alloc(length + 1);
  memory.copy(copy, input, length);
  const r = new Reader(copy, copy + length);
  r.skip();
  let why = "the configuration is not JSON";
  if (!r.white() && !r.bad) why = f(new Json(copy, length));
  if (why.length == 0) return 0;
  const t = Text.of(why);
  return pack(t.at, t.length);
}

// --- reading JSON ---

/** Walks over JSON. What it returns after bad is set means nothing. */
class Reader {
  bad: bool = false;
  constructor(public p: usize, public end: usize) {}

  @inline at(): u8 { return this.p < this.end ? load<u8>(this.p) : 0; }

  /** Skips white space and returns what comes, or 0 at the end. */
  white(): u8 {
    for (; this.p < this.end; this.p++) {
      const c = load<u8>(this.p);
      if (c > 32) return c;
      if (c != 32 && c != 10 && c != 9 && c != 13) this.bad = true;
    }
    return 0;
  }

  take(c: u8): bool {
    if (this.white() != c || this.bad) {
      this.bad = true;
      return false;
    }
    this.p++;
    return true;
  }

  word(w: string): void {
    if (this.end - this.p < <usize>w.length || !new Text(this.p, w.length).is(w)) this.bad = true;
    else this.p += w.length;
  }

  none(): bool {
    if (this.white() != 110) return false;
    this.word("null");
    return true;
  }

  /** Steps to the n-th part of an object or list that was opened; false after the last one. */
  more(n: i32, end: u8): bool {
    const c = this.white();
    if (this.bad || c == 0) {
      this.bad = true;
      return false;
    }
    if (c == end) {
      this.p++;
      return false;
    }
    if (n > 0 && (!this.take(44) || this.white() == end)) this.bad = true;
    return !this.bad;
  }

  open(c: u8): bool { return !this.none() && this.take(c); }

  key: Text = nothing;

  /** Reads the n-th key of an object that was opened. */
  member(n: i32): bool {
    if (!this.more(n, 125)) return false;
    this.key = this.text();
    return this.take(58);
  }

  /** Reads a string and decodes it where it stands. */
  text(): Text {
    if (this.none() || !this.take(34)) return nothing;
    const from = this.p;
    let p = from;
    const end = this.end;
    while (p < end) {
      const c = load<u8>(p);
      if (c == 34 || c == 92 || c < 32) break;
      p++;
    }
    this.p = p;
    let to = p;
    while (this.p < end) {
      const c = load<u8>(this.p++);
      if (c == 34) return new Text(from, <i32>(to - from));
      if (c < 32) break;
      if (c == 92) to = this.escape(to);
      else store<u8>(to++, c);
    }
    this.bad = true;
    return nothing;
  }

  /** Reads what follows a backslash and writes it as UTF-8. */
  escape(to: usize): usize {
    const c = this.at();
    this.p++;
    let u: u32 = c;
    switch (c) {
      case 34: case 92: case 47: break;
      case 98: { u = 8; break; }
      case 102: { u = 12; break; }
      case 110: { u = 10; break; }
      case 114: { u = 13; break; }
      case 116: { u = 9; break; }
      case 117: { u = this.unit(); break; }
      default: this.bad = true;
    }
    if (u < 0x80) store<u8>(to++, <u8>u);
    else {
      if (u < 0x800) store<u8>(to++, <u8>(0xC0 | u >> 6));
      else {
        if (u < 0x10000) store<u8>(to++, <u8>(0xE0 | u >> 12));
        else {
          store<u8>(to++, <u8>(0xF0 | u >> 18));
          store<u8>(to++, <u8>(0x80 | (u >> 12 & 63)));
        }
        store<u8>(to++, <u8>(0x80 | (u >> 6 & 63)));
      }
      store<u8>(to++, <u8>(0x80 | (u & 63)));
    }
    return to;
  }

  unit(): u32 {
    const u = this.hex();
    if (u >> 10 == 0x36 && this.end - this.p > 1 && load<u8>(this.p) == 92 && load<u8>(this.p + 1) == 117) {
      const back = this.p;
      this.p += 2;
      const low = this.hex();
      if (low >> 10 == 0x37) return 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
      this.p = back;
    }
    return u >> 11 == 0x1B ? 0xFFFD : u; // half of a pair
  }

  hex(): u32 {
    let u: u32 = 0;
    for (let i = 0; i < 4; i++, this.p++) {
      const c = this.at(), low = c | 32;
      if (c >= 48 && c <= 57) u = (u << 4) | (c - 48);
      else if (low >= 97 && low <= 102) u = (u << 4) | (low - 87);
      else this.bad = true;
    }
    return u;
  }

  /** Reads a number, exact to 15 digits. */
  number(): f64 {
    if (this.none()) return 0;
    let v: f64 = 0, digits = 0, power = 0;
    const minus = this.at() == 45;
    if (minus) this.p++;
    for (; this.digit(); digits++) v = v * 10 + <f64>(load<u8>(this.p++) - 48);
    if (digits && this.at() == 46) for (this.p++; this.digit(); digits++, power--) v = v * 10 + <f64>(load<u8>(this.p++) - 48);
    if (digits && (this.at() | 32) == 101) {
      this.p++;
      const down = this.at() == 45;
      if (down || this.at() == 43) this.p++;
      let e = 0;
      for (; this.digit(); this.p++) e = e < 1000 ? e * 10 + (load<u8>(this.p) - 48) : e;
      power += down ? -e : e;
    }
    if (!digits) this.bad = true;
    let scale: f64 = 1;
    for (let i = abs(power); i > 0 && scale < 1e300; i--) scale *= 10;
    v = power < 0 ? v / scale : v * scale;
    return minus ? -v : v;
  }

  @inline digit(): bool {
    const c = this.at();
    return c >= 48 && c <= 57;
  }

  whole(): i32 { return <i32>min(max(this.number(), -2147483647.0), 2147483647.0); }

  truth(): bool {
    const c = this.white();
    if (c == 116) {
      this.word("true");
      return true;
    }
    if (c == 102) this.word("false");
    else if (!this.none()) this.bad = true;
    return false;
  }

  /** Passes over a value without looking into it more than is needed to find its end. */
  skip(): void {
    for (let depth = 0; ;) {
      const c = this.white();
      if (this.bad || c == 0) {
        this.bad = true;
        return;
      }
      if (c == 34) this.pass();
      else if (c == 123 || c == 91) { depth++; this.p++; }
      else if (c == 125 || c == 93) { depth--; this.p++; }
      else if ((c == 44 || c == 58) && depth > 0) { this.p++; continue; }
      else if (c == 116 || c == 102) this.truth();
      else if (c == 110) this.none();
      else this.number();
      if (depth <= 0) {
        if (depth < 0) this.bad = true;
        return;
      }
    }
  }

  pass(): void {
    for (this.p++; this.p < this.end && load<u8>(this.p) != 34; this.p++) if (load<u8>(this.p) == 92) this.p++;
    if (++this.p > this.end) {
      this.bad = true;
      this.p = this.end;
    }
  }
}

function readFlags(r: Reader, q: Request): void {
  if (!r.open(123)) return;
  for (let n = 0; r.member(n); n++) {
    const k = r.key;
    if (k.is("stream")) q.stream = r.truth();
    else if (k.is("tools")) q.tools = r.truth();
    else if (k.is("images")) q.images = r.truth();
    else if (k.is("json")) q.json = r.truth();
    else r.skip();
  }
}

function readCandidate(r: Reader): Candidate {
  const c = new Candidate();
  if (!r.take(123)) return c;
  for (let n = 0; r.member(n); n++) {
    const k = r.key;
    if (k.is("id")) c.id = r.text();
    else if (k.is("backend")) c.backend = r.text();
    else if (k.is("device")) c.device = r.text();
    else if (k.is("model")) c.model = r.text();
    else if (k.is("ctx")) c.ctx = r.whole();
    else if (k.is("healthy")) c.healthy = r.truth();
    else if (k.is("queue")) c.queue = r.whole();
    else if (k.is("pp_tps")) c.pp_tps = r.number();
    else if (k.is("tg_tps")) c.tg_tps = r.number();
    else if (k.is("load")) c.load = r.number();
    else if (k.is("cached")) c.cached = r.whole();
    else if (k.is("sticky")) c.sticky = r.truth();
    else if (k.is("price")) c.price = r.number();
    else r.skip();
  }
  return c;
}

function readLists(r: Reader, q: Request, k: Text): void {
  if (k.is("headers")) {
    if (r.open(123)) for (let n = 0; r.member(n); n++) { const name = r.key; q.headers.push(new Pair(name, r.text())); }
  } else if (k.is("scores")) {
    if (r.open(123)) for (let n = 0; r.member(n); n++) { const name = r.key; q.scores.push(new Score(name, r.number())); }
  } else if (k.is("candidates")) {
    if (r.open(91)) for (let n = 0; r.more(n, 93); n++) q.candidates.push(readCandidate(r));
  } else r.skip();
}

function readRequest(r: Reader, q: Request): void {
  if (!r.take(123)) return;
  for (let n = 0; r.member(n); n++) {
    const k = r.key;
    if (k.is("id")) q.id = r.text();
    else if (k.is("conversation")) q.conversation = r.text();
    else if (k.is("turn")) q.turn = r.whole();
    else if (k.is("api")) q.api = r.text();
    else if (k.is("model")) q.model = r.text();
    else if (k.is("tenant")) q.tenant = r.text();
    else if (k.is("key")) q.key = r.text();
    else if (k.is("hour")) q.hour = r.whole();
    else if (k.is("tokens")) q.tokens = r.whole();
    else if (k.is("bytes")) q.bytes = r.whole();
    else if (k.is("flags")) readFlags(r, q);
    else if (k.is("head")) q.head = r.text();
    else if (k.is("tail")) q.tail = r.text();
    else if (k.is("class")) q.class_ = r.text();
    else if (k.is("confidence")) q.confidence = r.number();
    else readLists(r, q, k);
  }
}

/** A value of a configuration. What is not there is empty, and the zero value of whatever is asked for. */
export class Json extends Text {
  /** A reader of a copy: texts are decoded where they stand. */
  private reader(): Reader {
    const copy = heap.alloc(this.length + 1);
    memory.copy(copy, this.at, this.length);
    return new Reader(copy, copy + this.length);
  }

  /** The members of an object or, with empty names, the items of a list. Values are again Json. */
  each(): Member[] {
    const r = this.reader(), base = r.p, list: Member[] = [];
    const c = r.white();
    if (c != 123 && c != 91) return list;
    r.p++;
    while (c == 123 ? r.member(list.length) : r.more(list.length, 93)) {
      const key = c == 123 ? r.key : nothing;
      r.white();
      const from = r.p - base;
      r.skip();
      if (r.bad) break;
      list.push(new Member(key, new Json(this.at + from, <i32>(r.p - base - from))));
    }
    return list;
  }

  get(name: string): Json {
    const list = this.each();
    for (let i = 0; i < list.length; i++) if (list[i].name.is(name)) return list[i].value;
    return new Json();
  }

  text(): Text {
    const r = this.reader();
    return r.white() == 34 ? r.text() : nothing;
  }

  number(): f64 {
    const r = this.reader(), c = r.white();
    return c == 45 || (c >= 48 && c <= 57) ? r.number() : 0;
  }

  truth(): bool { return this.reader().white() == 116; }
}

export class Member { constructor(public name: Text, public value: Json) {} }

// --- writing ---

const SPACE: i32 = 20000; // more than a box takes
const out: usize = memory.data(20000);
let o: usize = out;

function room(n: i32): void { if (n > <i32>(out + SPACE - o)) unreachable(); }

function put(s: string): void {
  room(s.length);
  for (let i = 0; i < s.length; i++) store<u8>(o++, <u8>load<u16>(changetype<usize>(s) + (i << 1)));
}

function putText(t: Text): void {
  room(6 * t.length + 2);
  store<u8>(o++, 34);
  for (let i = 0; i < t.length; i++) {
    const c = load<u8>(t.at + i);
    if (c == 34 || c == 92) store<u8>(o++, 92);
    if (c >= 32) store<u8>(o++, c);
    else {
      put("\\u00");
      store<u8>(o++, 48 + (c >> 4));
      store<u8>(o++, (c & 15) + ((c & 15) < 10 ? 48 : 87));
    }
  }
  store<u8>(o++, 34);
}

function putNumber(v: f64): void { put(isFinite(v) ? v.toString() : "null"); } // which the box refuses, and says so

function putPairs(list: Pair[], texts: bool): void {
  for (let i = 0; i < list.length; i++) {
    if (i) put(",");
    putText(list[i].name);
    put(":");
    const v = list[i].value;
    if (texts) putText(v);
    else { room(v.length); memory.copy(o, v.at, v.length); o += v.length; }
  }
  put("}");
}

function putLists(d: Decision): void {
  for (let i = 0; i < d.scores.length; i++) {
    put(i ? "," : ',"scores":{');
    putText(d.scores[i].name);
    put(":");
    putNumber(d.scores[i].value);
  }
  if (d.scores.length) put("}");
  for (let i = 0; i < d.candidates.length; i++) {
    put(i ? "," : ',"candidates":[');
    putText(d.candidates[i]);
  }
  if (d.candidates.length) put("]");
  if (d.params.length) { put(',"params":{'); putPairs(d.params, false); }
  if (d.headers.length) { put(',"headers":{'); putPairs(d.headers, true); }
}

function writeDecision(d: Decision): void {
  o = out;
  put('{"v":1,"action":"');
  put(d.action);
  put('"');
  if (d.class_.length) { put(',"class":'); putText(d.class_); }
  if (d.confidence != 0) { put(',"confidence":'); putNumber(d.confidence); }
  putLists(d);
  if (d.collection.length) {
    put(',"rag":{"collection":'); putText(d.collection);
    put(',"top_k":'); put(d.top_k.toString());
    if (d.query.length) { put(',"query":'); putText(d.query); }
    put("}");
  }
  if (d.action == "reject") {
    put(',"reject":{"status":'); put(d.status.toString());
    put(',"code":'); putText(d.code);
    put(',"message":'); putText(d.message);
    put("}");
  }
  if (d.reason.length) { put(',"reason":'); putText(Text.of(d.reason)); }
  if (d.ttl_s) { put(',"ttl_s":'); put(d.ttl_s.toString()); }
  put("}");
}

// --- what a box offers ---

// @ts-ignore: decorator
@external("laya_v1", "log") declare function hostLog(level: i32, p: usize, n: i32): void;
// @ts-ignore: decorator
@external("laya_v1", "metric") declare function hostMetric(id: i32, v: f64): i32;
// @ts-ignore: decorator
@external("laya_v1", "now_ms") declare function hostNow(): i64;
// @ts-ignore: decorator
@external("laya_v1", "tokens") declare function hostTokens(p: usize, n: i32): i32;
// @ts-ignore: decorator
@external("laya_v1", "embed") declare function hostEmbed(p: usize, n: i32, out: usize, bytes: i32): i32;
// @ts-ignore: decorator
@external("laya_v1", "decide") declare function hostDecide(p: usize, n: i32, out: usize, cap: i32): i32;
// @ts-ignore: decorator
@external("laya_v1", "text") declare function hostText(part: i32, offset: i32, out: usize, cap: i32): i32;
// @ts-ignore: decorator
@external("laya_v1", "kv_get") declare function hostGet(p: usize, n: i32, out: usize, cap: i32): i32;
// @ts-ignore: decorator
@external("laya_v1", "kv_set") declare function hostSet(p: usize, n: i32, v: usize, vn: i32, seconds: i32): i32;
// @ts-ignore: decorator
@external("laya_v1", "kv_add") declare function hostAdd(p: usize, n: i32, delta: i64, seconds: i32, sum: usize): i32;
// @ts-ignore: decorator
@external("laya_v1", "asset") declare function hostAsset(p: usize, n: i32, offset: i32, out: usize, cap: i32): i32;

// Each answers what ABI.md says: a length or count, or one of these.
export const INVALID = -1, MISSING = -2, FULL = -3, UNAVAILABLE = -4, DENIED = -5;
export const DEBUG = 0, INFO = 1, WARN = 2, ERROR = 3;
export const LAST_USER = 0, SYSTEM = 1, WHOLE = 2;

/** Writes a line to the module's log. */
export function log(level: i32, s: string): void { const t = Text.of(s); hostLog(level, t.at, t.length); }

/** Adds v to the metric that has this place in the manifest's list. */
export function metric(id: i32, v: f64): i32 { return hostMetric(id, v); }

/** The time in milliseconds since 1970, the same during a call. */
export function now(): i64 { return hostNow(); }

/** Counts the tokens of a text. */
export function tokens(t: Text): i32 { return hostTokens(t.at, t.length); }

/** Writes the embedding of a text. May be called once in a call. */
export function embed(t: Text, into: StaticArray<f32>): i32 { return hostEmbed(t.at, t.length, changetype<usize>(into), into.length << 2); }

/** Asks the box's decision model which criterion a text meets: names with their definitions. Null when nobody can say. */
export function decide(t: Text, criteria: Pair[]): Json | null {
  o = out;
  put('{"text":');
  putText(t);
  put(',"criteria":{');
  putPairs(criteria, true);
  put("}");
  const answer = heap.alloc(4096);
  const n = hostDecide(out, <i32>(o - out), answer, 4096);
  return n < 0 || n > 4096 ? null : new Json(answer, n);
}

/** Copies a part of the prompt from an offset on; answers how many bytes that were, 0 at the end. */
export function text(part: i32, offset: i32, at: usize, capacity: i32): i32 { return hostText(part, offset, at, capacity); }

/** What is stored under a key; null when there is nothing, or more than so many bytes. */
export function get(key: Text, most: i32): Text | null {
  const at = heap.alloc(most);
  const n = hostGet(key.at, key.length, at, most);
  return n < 0 || n > most ? null : new Text(at, n);
}

/** Stores a value for some seconds, for ever with 0. */
export function set(key: Text, value: Text, seconds: i32): i32 { return hostSet(key.at, key.length, value.at, value.length, seconds); }

const sum: usize = memory.data(8, 8);

/** Adds to a number that is stored; the sum is what total then returns. */
export function add(key: Text, delta: i64, seconds: i32): i32 { return hostAdd(key.at, key.length, delta, seconds, sum); }

/** The sum of the last add. */
export function total(): i64 { return load<i64>(sum); }

/** Copies from a file that was uploaded beside the module; 0 at its end. Only while it is configured, and in the first call. */
export function asset(name: Text, offset: i32, at: usize, capacity: i32): i32 { return hostAsset(name.at, name.length, offset, at, capacity); }
