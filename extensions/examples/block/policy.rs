//! Turns requests away that contain words of a list. It reads the prompt, not the head alone.
#[path = "../../guest/rust/laya.rs"]
#[macro_use]
mod laya;

use laya::{Decision, Json, Part, Request};
use std::ptr::addr_of_mut;

/// How much of a prompt is read; a longer one is not judged by what comes after.
const MOST: usize = 64 << 10;

struct Settings {
    /// folded, each with a space before and behind
    words: Vec<String>,
    message: String,
}

static mut SETTINGS: Settings = Settings { words: Vec::new(), message: String::new() };

fn settings() -> &'static mut Settings {
    unsafe { &mut *addr_of_mut!(SETTINGS) } // one thread, and written before the first call alone
}

fn configure(config: Json) -> String {
    let s = settings();
    s.message = config.get("message").text().to_string();
    if s.message.is_empty() {
        s.message = "this request is not allowed here".to_string();
    }
    s.words = config.get("words").texts().into_iter().map(fold).filter(|w| w.len() > 2).collect();
    if s.words.is_empty() && !config.get("words").0.is_empty() {
        return "words is a list of words or phrases".to_string();
    }
    String::new()
}

/// Text in lower case, with one space for whatever is between words, before the first and after the last.
fn fold(text: &str) -> String {
    let mut b = String::with_capacity(text.len() + 2);
    b.push(' ');
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            b.push(c.to_ascii_lowercase());
        } else if !c.is_ascii() && c.is_alphanumeric() {
            b.extend(c.to_lowercase());
        } else if !b.ends_with(' ') {
            b.push(' ');
        }
    }
    if !b.ends_with(' ') {
        b.push(' ');
    }
    b
}

/// The prompt, all messages of it; of a box that has no more than the request, its head and tail.
fn prompt(r: &Request) -> String {
    let mut b = vec![0; MOST];
    let mut n = 0;
    while let Ok(got @ 1..) = laya::text(Part::Whole, n, &mut b[n..]) {
        n += got;
    }
    b.truncate(n);
    if n == 0 { format!("{} {}", r.head, r.tail) } else { String::from_utf8_lossy(&b).into_owned() }
}

fn decide(r: &Request) -> Decision {
    let s = settings();
    if s.words.is_empty() {
        return Decision::default();
    }
    let text = fold(&prompt(r));
    match s.words.iter().find(|w| text.contains(w.as_str())) {
        Some(word) => {
            laya::log(laya::Level::Info, &format!("blocked:{}", word));
            laya::refuse(403, "blocked", &s.message).because("it contains a word of the list")
        }
        None => Decision::default(),
    }
}

laya_configure!(configure);
laya_route!(decide);
