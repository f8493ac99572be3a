//! Keeps what looks private on local devices: addresses of mail, cards, bank accounts, phone numbers, keys, and words of a
//! list. What no local candidate can take is turned away, and never sent elsewhere.
#[path = "../../guest/rust/laya.rs"]
#[macro_use]
mod laya;

use laya::{Decision, Json, Part, Request};
use std::ptr::addr_of_mut;

/// How much of a prompt is read. A longer one counts as private.
const MOST: usize = 64 << 10;

const WORDS: [&str; 7] = ["password", "passwort", "mot de passe", "contraseña", "confidential", "vertraulich", "social security"];

struct Settings {
    /// devices that are not local
    remote: Vec<laya::Text>,
    /// in lower case
    words: Vec<String>,
}

static mut SETTINGS: Settings = Settings { remote: Vec::new(), words: Vec::new() };

fn settings() -> &'static mut Settings {
    unsafe { &mut *addr_of_mut!(SETTINGS) } // one thread, and written before the first call alone
}

fn configure(config: Json) -> String {
    let s = settings();
    s.remote = config.get("remote").texts();
    if s.remote.is_empty() {
        s.remote.push("remote");
    }
    s.words = config.get("words").texts().into_iter().filter(|w| !w.is_empty()).map(|w| w.to_lowercase()).collect();
    s.words.extend(WORDS.iter().map(|w| w.to_string()));
    String::new()
}

/// The prompt, all messages of it; of a box that has no more than the request, its head and tail. None is too much.
fn prompt(r: &Request) -> Option<String> {
    let mut b = vec![0; MOST];
    let mut n = 0;
    while let Ok(got @ 1..) = laya::text(Part::Whole, n, &mut b[n..]) {
        n += got;
    }
    b.truncate(n);
    match n {
        0 if r.bytes as usize <= r.head.len() + r.tail.len() => Some(format!("{} {}", r.head, r.tail)),
        0 | MOST => None,
        _ => Some(String::from_utf8_lossy(&b).into_owned()),
    }
}

/// Names what is private in a text.
fn private(text: &str) -> Option<&'static str> {
    if mail(text.as_bytes()) {
        return Some("an address of mail");
    }
    if let Some(what) = numbers(text.as_bytes()) {
        return Some(what);
    }
    if text.contains("-----BEGIN ") && text.contains("PRIVATE KEY") {
        return Some("a key");
    }
    let lower = text.to_lowercase();
    if settings().words.iter().any(|w| lower.contains(w.as_str())) {
        return Some("a word of the list");
    }
    None
}

/// Looks for name@host.zone.
fn mail(s: &[u8]) -> bool {
    let mut i = 1;
    while i < s.len() {
        if s[i] != b'@' || !s[i - 1].is_ascii_alphanumeric() {
            i += 1;
            continue;
        }
        let (mut dot, mut j) = (0, i + 1);
        while j < s.len() && (s[j].is_ascii_alphanumeric() || s[j] == b'-' || s[j] == b'.') {
            if s[j] == b'.' && j > i + 1 && j + 1 < s.len() && s[j + 1].is_ascii_alphabetic() {
                dot = j;
            }
            j += 1;
        }
        if dot > 0 && j - dot > 2 {
            return true;
        }
        i = j;
    }
    false
}

/// Looks for runs of digits, with single spaces, dots or hyphens between them.
fn numbers(s: &[u8]) -> Option<&'static str> {
    let mut i = 0;
    while i < s.len() {
        if !s[i].is_ascii_digit() {
            i += 1;
            continue;
        }
        let (from, mut digits) = (i, Vec::with_capacity(40));
        while i < s.len() && digits.len() < 40 {
            if s[i].is_ascii_digit() {
                digits.push(s[i] - b'0');
            } else if !matches!(s[i], b' ' | b'-' | b'.') || i + 1 >= s.len() || !s[i + 1].is_ascii_digit() {
                break;
            }
            i += 1;
        }
        let before = |n: usize| if from >= n { s[from - n] } else { b' ' };
        match digits.len() {
            13..=19 if luhn(&digits) => return Some("a card number"),
            12.. if before(1).is_ascii_alphabetic() && before(2).is_ascii_alphabetic() => return Some("a bank account"),
            9..=15 if before(1) == b'+' => return Some("a phone number"),
            _ => {}
        }
    }
    None
}

/// The check digit of cards.
fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits.iter().rev().enumerate().map(|(i, d)| {
        let n = *d as u32 * (1 + i as u32 % 2);
        if n > 9 { n - 9 } else { n }
    }).sum();
    sum % 10 == 0
}

fn decide(r: &Request) -> Decision {
    let what = match prompt(r) {
        None => "more text than is read here",
        Some(text) => match private(&text) {
            None => return Decision::default(),
            Some(what) => what,
        },
    };
    let local = |device: &str| !settings().remote.contains(&device);
    let ids: Vec<_> = r.candidates.iter().filter(|c| c.healthy && local(c.device)).map(|c| c.id).collect();
    let d = match ids.len() {
        0 => laya::refuse(422, "private", "this looks private, and no local model can take it now"),
        _ => laya::to(ids),
    };
    d.because(format!("it contains {}", what))
}

laya_configure!(configure);
laya_route!(decide);
