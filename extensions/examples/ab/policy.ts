// Tries one model against another: a share of the conversations goes to B, the others to A. A conversation stays in its
// arm, since the arm is a function of the conversation alone.
import { Request, Decision, Json, Text, run, runConfigure, metric } from "../../guest/assemblyscript/laya";
export { laya_abi_v1, laya_buffer } from "../../guest/assemblyscript/laya";

let a = new Text();
let b = new Text();
let percent: f64 = 50;
let salt = new Text();

function configure(config: Json): string {
  a = config.get("a").text();
  b = config.get("b").text();
  salt = config.get("salt").text();
  const share = config.get("percent");
  if (share.length) percent = share.number();
  if (!a.length != !b.length) return "a and b are models, and both are needed";
  return percent >= 0 && percent <= 100 ? "" : "percent is a number from 0 to 100";
}

// hash is FNV-1a with a last mix, so that ids which differ in their last letter are spread as well.
function hash(h: u32, t: Text): u32 {
  for (let i = 0; i < t.length; i++) h = (h ^ load<u8>(t.at + i)) * 16777619;
  h ^= h >> 16;
  h *= 0x7feb352d;
  return h ^ (h >> 15);
}

function decide(r: Request): Decision {
  const d = new Decision();
  if (!a.length || !r.conversation.length) return d;
  const inB = <f64>(hash(hash(2166136261, salt), r.conversation) % 10000) < percent * 100;
  const model = inB ? b : a;
  for (let i = 0; i < r.candidates.length; i++) {
    const c = r.candidates[i];
    if (c.healthy && c.model.same(model)) d.to(c.id);
  }
  if (!d.candidates.length) return d;
  metric(inB ? 1 : 0, 1);
  return d.respond("x-laya-arm", Text.of(inB ? "b" : "a")).because(inB ? "arm b" : "arm a");
}

export function laya_configure(address: u32, length: u32): u64 { return runConfigure(length, configure); }

export function laya_route(address: u32, length: u32): u64 { return run(length, decide); }
