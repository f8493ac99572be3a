//! Uses all of the SDK and answers what it saw, for the SDK's test.
#[path = "../../rust/laya.rs"]
#[macro_use]
mod laya;

use laya::{Action, Decision, Error, Json, Level, Part, Request};
use std::ptr::addr_of_mut;

static mut SETTINGS: String = String::new();

fn settings() -> &'static mut String {
    unsafe { &mut *addr_of_mut!(SETTINGS) } // one thread
}

fn flag(b: bool) -> String {
    (b as u8).to_string()
}

fn whole(v: f64) -> String {
    ((v + 0.5) as i64).to_string()
}

/// What a function answered, or the number of its failure.
fn code<T: ToString>(r: Result<T, Error>) -> String {
    r.map_or_else(|e| e.code().to_string(), |v| v.to_string())
}

fn utf8(b: &[u8]) -> String {
    String::from_utf8_lossy(b).into_owned()
}

fn configure(config: Json) -> String {
    let note = config.get("note").text();
    if config.get("wrong").truth() {
        return format!("it is wrong: \"{}\"", note);
    }
    let list = config.get("list").each();
    let mut words = vec![note.to_string(), list.len().to_string()];
    if list.len() == 3 {
        words.push(flag(list[2].1.get("a").truth()));
        words.push(whole(list[1].1.number() * 100.0));
    }
    let mut out = [0; 8];
    words.push(code(laya::asset("a.txt", 1, &mut out).map(|n| utf8(&out[..n]))));
    *settings() = words.join("|");
    String::new()
}

fn fields(r: &Request) -> String {
    let flags = [r.stream, r.tools, r.images, r.json].map(flag).concat();
    let (turn, hour, tokens, bytes) = (r.turn.to_string(), r.hour.to_string(), r.tokens.to_string(), r.bytes.to_string());
    [r.id, r.conversation, &turn, r.api, r.model, r.tenant, r.key, &hour, &tokens, &bytes, &flags, r.header("x-team"), r.header("none"), r.head, r.tail].join("|")
}

fn first(r: &Request) -> String {
    let c = &r.candidates[0];
    let numbers = [c.ctx.to_string(), flag(c.healthy), c.queue.to_string(), whole(c.pp_tps * 100.0), whole(c.tg_tps * 100.0), flag(c.sticky), whole(c.price * 100.0), whole(c.load * 100.0), c.cached.to_string()];
    format!("{}|{}|{}|{}|{}", c.id, c.backend, c.device, c.model, numbers.join("|"))
}

fn ask(r: &Request) -> String {
    if r.json {
        let criteria = [("a".to_string(), "first".to_string()), ("b".to_string(), "second".to_string())];
        let told = |j: Json| format!("{}:{}:{}", j.get("choice").text(), whole(j.get("confidence").number() * 100.0), j.get("scores").each().len());
        return code(laya::decide(r.head, &criteria).map(told));
    }
    let mut out = [0.0; 16];
    let n = laya::embed(r.head, &mut out);
    code(n.map(|n| format!("{}:{}", n, whole(out[0] as f64 * 100.0))))
}

fn in_box(r: &Request) -> String {
    laya::log(Level::Warn, "seen");
    let mut text = [0; 4];
    let mut words = vec![laya::now().to_string(), code(laya::tokens(r.head)), ask(r)];
    words.push(code(laya::text(Part::System, 2, &mut text).map(|n| utf8(&text[..n]))));
    words.push(code(laya::set("k", b"v1", 60).map(|_| 0)));
    words.push(code(laya::get("k", 10).map(|v| utf8(&v))));
    words.push(code(laya::add("n", 5, 0).map(|_| 0)));
    words.push(code(laya::add("n", -7, 0)));
    words.push(flag(laya::get("none", 10).is_ok()));
    words.push(code(laya::asset("a.txt", 0, &mut text)));
    words.push(code(laya::metric(0, 1.5).map(|_| 0)));
    words.push(code(laya::metric(9, 1.0).map(|_| 0)));
    words.join("|")
}

fn decide(r: &Request) -> Decision {
    if r.model == "reject" {
        return laya::refuse(451, "c", "say \"no\"\n").because("\u{fc}\u{1}");
    }
    let mut d = laya::to(r.candidates.iter().map(|c| c.id)).because(settings().as_str());
    d.class = r.class.to_string();
    d.confidence = r.confidence;
    d.scores = r.scores.iter().map(|s| (s.0.to_string(), s.1)).collect();
    d.params = vec![("temperature".to_string(), "0.5".to_string()), ("stop".to_string(), "[\"x\"]".to_string())];
    d.headers = vec![("x-laya-fields".to_string(), fields(r)), ("x-laya-first".to_string(), first(r)), ("x-laya-box".to_string(), in_box(r))];
    d.rag = Some(("docs".to_string(), 3, "q".to_string()));
    d.ttl_s = 60;
    d
}

fn abstain(_: &Request) -> Decision {
    Decision { action: Action::Abstain, ..Decision::default() }
}

laya_configure!(configure);
laya_route!(decide);
laya_classify!(abstain);
