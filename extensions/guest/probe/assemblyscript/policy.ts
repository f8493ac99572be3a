// Uses all of the SDK and answers what it saw, for the SDK's test.
import { Request, Decision, Json, Text, Pair, run, runConfigure } from "../../assemblyscript/laya";
import * as box from "../../assemblyscript/laya";
export { laya_abi_v1, laya_buffer } from "../../assemblyscript/laya";

let settings = "";

function flag(b: bool): string { return b ? "1" : "0"; }
function whole(v: f64): string { return (<i64>(v + 0.5)).toString(); }
function code(s: string, n: i32): string { return n < 0 ? n.toString() : s; }
function utf8(at: usize, n: i32): string { return n > 0 ? String.UTF8.decodeUnsafe(at, n) : ""; }

function configure(config: Json): string {
  const note = config.get("note").text().toString();
  if (config.get("wrong").truth()) return 'it is wrong: "' + note + '"';
  const list = config.get("list").each();
  const words = [note, list.length.toString()];
  if (list.length == 3) {
    words.push(flag(list[2].value.get("a").truth()));
    words.push(whole(list[1].value.number() * 100));
  }
  const out = heap.alloc(8);
  const n = box.asset(Text.of("a.txt"), 1, out, 8);
  words.push(code(utf8(out, n), n));
  settings = words.join("|");
  return "";
}

function fields(r: Request): string {
  const flags = flag(r.stream) + flag(r.tools) + flag(r.images) + flag(r.json);
  return [r.id.toString(), r.conversation.toString(), r.turn.toString(), r.api.toString(), r.model.toString(), r.tenant.toString(), r.key.toString(), r.hour.toString(),
    r.tokens.toString(), r.bytes.toString(), flags, r.header("x-team").toString(), r.header("none").toString(), r.head.toString(), r.tail.toString()].join("|");
}

function first(r: Request): string {
  const c = r.candidates[0];
  return [c.id.toString(), c.backend.toString(), c.device.toString(), c.model.toString(), c.ctx.toString(), flag(c.healthy), c.queue.toString(),
    whole(c.pp_tps * 100), whole(c.tg_tps * 100), flag(c.sticky), whole(c.price * 100), whole(c.load * 100), c.cached.toString()].join("|");
}

function ask(r: Request): string {
  if (!r.json) {
    const out = new StaticArray<f32>(16);
    const n = box.embed(r.head, out);
    return code(n.toString() + ":" + whole(<f64>out[0] * 100), n);
  }
  const j = box.decide(r.head, [new Pair(Text.of("a"), Text.of("first")), new Pair(Text.of("b"), Text.of("second"))]);
  if (j === null) return "-4";
  return j.get("choice").text().toString() + ":" + whole(j.get("confidence").number() * 100) + ":" + j.get("scores").each().length.toString();
}

function inBox(r: Request): string {
  box.log(box.WARN, "seen");
  const words = [box.now().toString(), box.tokens(r.head).toString(), ask(r)];
  const at = heap.alloc(4);
  let n = box.text(box.SYSTEM, 2, at, 4);
  words.push(code(utf8(at, n), n));
  words.push(box.set(Text.of("k"), Text.of("v1"), 60).toString());
  const v = box.get(Text.of("k"), 10);
  words.push(v === null ? "-4" : v.toString());
  words.push(box.add(Text.of("n"), 5, 0).toString());
  n = box.add(Text.of("n"), -7, 0);
  words.push(code(box.total().toString(), n));
  words.push(flag(box.get(Text.of("none"), 10) !== null));
  words.push(box.asset(Text.of("a.txt"), 0, at, 4).toString());
  words.push(box.metric(0, 1.5).toString());
  words.push(box.metric(9, 1).toString());
  return words.join("|");
}

function decide(r: Request): Decision {
  const d = new Decision();
  if (r.model.is("reject")) return d.refuse(451, "c", 'say "no"\n').because("\u00fc\u0001");
  d.class_ = r.class_;
  d.confidence = r.confidence;
  d.scores = r.scores;
  for (let i = 0; i < r.candidates.length; i++) d.to(r.candidates[i].id);
  d.params = [new Pair(Text.of("temperature"), Text.of("0.5")), new Pair(Text.of("stop"), Text.of('["x"]'))];
  d.respond("x-laya-fields", Text.of(fields(r))).respond("x-laya-first", Text.of(first(r))).respond("x-laya-box", Text.of(inBox(r)));
  d.collection = Text.of("docs");
  d.top_k = 3;
  d.query = Text.of("q");
  d.ttl_s = 60;
  return d.because(settings);
}

function abstain(r: Request): Decision {
  const d = new Decision();
  d.action = "abstain";
  return d;
}

export function laya_configure(address: u32, length: u32): u64 { return runConfigure(length, configure); }

export function laya_route(address: u32, length: u32): u64 { return run(length, decide); }

export function laya_classify(address: u32, length: u32): u64 { return run(length, abstain); }
