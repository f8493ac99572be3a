//! What a module for a box needs, in one file: the request that the box asks about, the decision that it is answered, and
//! the functions that the box offers. It uses the standard library and nothing else.
//!
//!     rustc --edition 2021 --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=3 -C panic=abort -C lto \
//!       -C strip=symbols -C link-arg=-zstack-size=65536 -o policy.wasm policy.rs
//!
//!     #[macro_use] mod laya;
//!     fn decide(r: &laya::Request) -> laya::Decision { laya::to([r.candidates[0].id]) }
//!     laya_route!(decide);
//!
//! Only functions that are used are imported, so a module asks for no more than it needs. Texts of a request are views of
//! the memory that the box wrote; they live as long as the call. Every call begins from the same memory, so nothing needs
//! to be freed and nothing is kept, except by `set` and `add`.
#![allow(dead_code, unused_macros)]

use std::fmt::Write;
use std::ptr::addr_of_mut;

/// Text of a request.
pub type Text = &'static str;

/// What the box asks about. Fields that the box did not send are zero.
#[derive(Default)]
pub struct Request {
    pub id: Text,
    pub conversation: Text,
    /// 1 for the first
    pub turn: i64,
    pub api: Text,
    /// as the client asked
    pub model: Text,
    pub tenant: Text,
    /// id of the API key
    pub key: Text,
    /// of the box's day, 0 to 23
    pub hour: i64,
    /// of the whole prompt, estimated
    pub tokens: i64,
    /// of the last user message
    pub bytes: i64,
    pub stream: bool,
    pub tools: bool,
    pub images: bool,
    pub json: bool,
    /// those that the operator lists, names in lower case
    pub headers: Vec<(Text, Text)>,
    /// the first bytes of the last user message
    pub head: Text,
    /// its last bytes, when it is longer
    pub tail: Text,
    /// what the classifier said
    pub class: Text,
    pub confidence: f64,
    pub scores: Vec<(Text, f64)>,
    pub candidates: Vec<Candidate>,
}

/// A place that may serve the request.
#[derive(Default)]
pub struct Candidate {
    pub id: Text,
    pub backend: Text,
    pub device: Text,
    pub model: Text,
    /// tokens
    pub ctx: i64,
    pub healthy: bool,
    /// requests that wait
    pub queue: i64,
    /// share of its slots that are busy, 0 to 1
    pub load: f64,
    /// tokens of this prompt that it would not have to compute again
    pub cached: i64,
    /// prompt tokens a second
    pub pp_tps: f64,
    /// generated tokens a second
    pub tg_tps: f64,
    /// it served this conversation before
    pub sticky: bool,
    /// for a million tokens
    pub price: f64,
}

impl Request {
    /// A header of the request, by its name in lower case; empty when the box did not send it.
    pub fn header(&self, name: &str) -> Text {
        self.headers.iter().find(|h| h.0 == name).map_or("", |h| h.1)
    }
}

/// What the box is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// no opinion: the box decides by itself
    None,
    Route,
    Reject,
    Abstain,
}

/// The answer. The default is no opinion.
pub struct Decision {
    pub action: Action,
    pub class: String,
    /// 0 to 1
    pub confidence: f64,
    pub scores: Vec<(String, f64)>,
    /// offered ids, the best first
    pub candidates: Vec<String>,
    /// parameters of the request with their values as JSON
    pub params: Vec<(String, String)>,
    /// of the response; names begin with x-laya-
    pub headers: Vec<(String, String)>,
    /// collection, top_k, query (empty for the last user message)
    pub rag: Option<(String, u32, String)>,
    /// status (400 to 499), code, message
    pub reject: Option<(u32, String, String)>,
    /// for people
    pub reason: String,
    pub ttl_s: u32,
}

impl Default for Decision {
    fn default() -> Self {
        let (class, reason) = (String::new(), String::new());
        let (candidates, scores, params, headers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Decision { action: Action::None, class, confidence: 0.0, scores, candidates, params, headers, rag: None, reject: None, reason, ttl_s: 0 }
    }
}

impl Decision {
    /// Adds a reason.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }
}

/// Routes to candidates, the best first. None of them is no opinion.
pub fn to<T: AsRef<str>>(ids: impl IntoIterator<Item = T>) -> Decision {
    let candidates: Vec<String> = ids.into_iter().map(|id| id.as_ref().to_string()).collect();
    let action = if candidates.is_empty() { Action::None } else { Action::Route };
    Decision { action, candidates, ..Decision::default() }
}

/// Rejects the request.
pub fn refuse(status: u32, code: &str, message: &str) -> Decision {
    Decision { action: Action::Reject, reject: Some((status, code.to_string(), message.to_string())), ..Decision::default() }
}

// --- what a box looks for ---

const BUFFER: usize = (64 << 10) + 1;
static mut INPUT: [u8; BUFFER] = [0; BUFFER];

#[no_mangle]
pub extern "C" fn laya_abi_v1() {}

#[no_mangle]
pub extern "C" fn laya_buffer(n: u32) -> u32 {
    if n == 0 || n as usize > BUFFER { 0 } else { unsafe { addr_of_mut!(INPUT) as u32 } }
}

fn input(n: u32) -> &'static mut [u8] {
    // the box has written here and does not do so again in this call
    unsafe { std::slice::from_raw_parts_mut(addr_of_mut!(INPUT) as *mut u8, (n as usize).min(BUFFER)) }
}

fn pack(b: Vec<u8>) -> u64 {
    let b = b.leak(); // the box reads it after this function has returned
    (b.as_ptr() as u64) << 32 | b.len() as u64
}

/// The body of laya_route and laya_classify. What is no request is answered with no opinion.
pub fn run(n: u32, decide: impl Fn(&Request) -> Decision) -> u64 {
    let mut r = Reader { b: input(n), p: 0, bad: false };
    let request = r.request();
    if r.white() != 0 || r.bad {
        return 0;
    }
    let d = decide(&request);
    if d.action == Action::None { 0 } else { pack(d.write()) }
}

/// The body of laya_configure: gives the operator's JSON to f, which returns what is wrong with it, or "".
pub fn run_configure(n: u32, f: impl Fn(Json) -> String) -> u64 {
    let config: &'static mut [u8] = input(n).to_vec().leak();
    let mut r = Reader { b: config, p: 0, bad: false };
    r.skip();
    if r.white() != 0 || r.bad {
        return pack(b"the configuration is not JSON".to_vec());
    }
    let why = f(Json(r.b));
    if why.is_empty() { 0 } else { pack(why.into_bytes()) }
}

/// Exports a function(&Request) -> Decision.
macro_rules! laya_route {
    ($f:path) => { #[no_mangle] pub extern "C" fn laya_route(_: u32, n: u32) -> u64 { laya::run(n, $f) } };
}

/// Exports a function(&Request) -> Decision.
macro_rules! laya_classify {
    ($f:path) => { #[no_mangle] pub extern "C" fn laya_classify(_: u32, n: u32) -> u64 { laya::run(n, $f) } };
}

/// Exports a function(Json) -> String.
macro_rules! laya_configure {
    ($f:path) => { #[no_mangle] pub extern "C" fn laya_configure(_: u32, n: u32) -> u64 { laya::run_configure(n, $f) } };
}

// --- reading JSON ---

/// Walks over JSON. What it returns after bad is set means nothing.
struct Reader {
    b: &'static mut [u8],
    p: usize,
    bad: bool,
}

impl Reader {
    fn at(&self) -> u8 {
        self.b.get(self.p).copied().unwrap_or(0)
    }

    /// Skips white space and returns what comes, or 0 at the end.
    fn white(&mut self) -> u8 {
        while self.p < self.b.len() {
            match self.b[self.p] {
                b' ' | b'\n' | b'\t' | b'\r' => {}
                c if c > b' ' => return c,
                _ => self.bad = true,
            }
            self.p += 1;
        }
        0
    }

    fn take(&mut self, c: u8) -> bool {
        self.bad |= self.white() != c;
        self.p += !self.bad as usize;
        !self.bad
    }

    fn word(&mut self, w: &[u8]) {
        self.bad |= !self.b.get(self.p..).map_or(false, |b| b.starts_with(w));
        self.p += w.len();
    }

    fn null(&mut self) -> bool {
        let is = self.white() == b'n';
        if is {
            self.word(b"null");
        }
        is
    }

    /// Steps to the n-th part of an object or list that was opened; false after the last one.
    fn more(&mut self, n: usize, end: u8) -> bool {
        let c = self.white();
        if self.bad || c == 0 {
            self.bad = true;
            return false;
        }
        if c == end {
            self.p += 1;
            return false;
        }
        if n > 0 {
            self.bad |= !self.take(b',') || self.white() == end;
        }
        !self.bad
    }

    fn open(&mut self, c: u8) -> bool {
        !self.null() && self.take(c)
    }

    /// Calls f for each member of an object.
    fn members(&mut self, mut f: impl FnMut(&mut Reader, Text)) {
        if !self.open(b'{') {
            return;
        }
        let mut n = 0;
        while self.more(n, b'}') {
            let key = self.text();
            if !self.take(b':') {
                return;
            }
            f(self, key);
            n += 1;
        }
    }

    /// Reads a string and decodes it where it stands.
    fn text(&mut self) -> Text {
        if self.null() || !self.take(b'"') {
            return "";
        }
        let from = self.p;
        while self.p < self.b.len() && !matches!(self.b[self.p], b'"' | b'\\' | 0..=31) {
            self.p += 1;
        }
        let mut to = self.p;
        while self.p < self.b.len() {
            let c = self.b[self.p];
            self.p += 1;
            match c {
                b'"' => {
                    // nobody writes to these bytes again
                    let b: &'static [u8] = unsafe { std::slice::from_raw_parts(self.b[from..].as_ptr(), to - from) };
                    return std::str::from_utf8(b).unwrap_or_else(|_| {
                        self.bad = true;
                        ""
                    });
                }
                0..=31 => break,
                b'\\' => {
                    let mut utf8 = [0; 4];
                    let s = self.escape().encode_utf8(&mut utf8).as_bytes();
                    self.b[to..to + s.len()].copy_from_slice(s);
                    to += s.len();
                }
                _ => {
                    self.b[to] = c;
                    to += 1;
                }
            }
        }
        self.bad = true;
        ""
    }

    fn escape(&mut self) -> char {
        let c = self.at();
        self.p += 1;
        match c {
            b'"' | b'\\' | b'/' => c as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut u = self.hex();
                if u >> 10 == 0xD800 >> 10 && self.at() == b'\\' && self.b.get(self.p + 1) == Some(&b'u') {
                    let back = self.p;
                    self.p += 2;
                    let low = self.hex();
                    if low >> 10 == 0xDC00 >> 10 {
                        u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
                    } else {
                        self.p = back;
                    }
                }
                char::from_u32(u).unwrap_or('\u{FFFD}')
            }
            _ => {
                self.bad = true;
                ' '
            }
        }
    }

    fn hex(&mut self) -> u32 {
        let mut u = 0;
        for _ in 0..4 {
            let digit = (self.at() as char).to_digit(16);
            self.bad |= digit.is_none();
            u = u << 4 | digit.unwrap_or(0);
            self.p += 1;
        }
        u
    }

    fn number(&mut self) -> f64 {
        if self.null() {
            return 0.0;
        }
        let (from, mut v, mut whole) = (self.p, 0u64, true);
        loop {
            match self.at() {
                c @ b'0'..=b'9' => v = v.wrapping_mul(10).wrapping_add((c - b'0') as u64),
                b'-' | b'+' | b'.' | b'e' | b'E' => whole = false,
                _ => break,
            }
            self.p += 1;
        }
        if whole && self.p > from && self.p - from < 16 {
            return v as f64;
        }
        let parsed = std::str::from_utf8(&self.b[from..self.p]).ok().and_then(|s| s.parse().ok());
        self.bad |= parsed.is_none();
        parsed.unwrap_or(0.0)
    }

    fn whole(&mut self) -> i64 {
        self.number() as i64
    }

    fn truth(&mut self) -> bool {
        match self.white() {
            b't' => self.word(b"true"),
            b'f' => {
                self.word(b"false");
                return false;
            }
            _ => {
                self.bad |= !self.null();
                return false;
            }
        }
        true
    }

    /// Passes over a value without looking into it more than is needed to find its end.
    fn skip(&mut self) {
        let mut depth = 0;
        loop {
            let c = self.white();
            if self.bad || c == 0 {
                self.bad = true;
                return;
            }
            match c {
                b'"' => self.pass(),
                b'{' | b'[' => {
                    depth += 1;
                    self.p += 1;
                }
                b'}' | b']' => {
                    depth -= 1;
                    self.p += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.p += 1;
                    continue;
                }
                b't' | b'f' => {
                    self.truth();
                }
                b'n' => {
                    self.null();
                }
                _ => {
                    self.number();
                }
            }
            if depth <= 0 {
                self.bad |= depth < 0;
                return;
            }
        }
    }

    fn pass(&mut self) {
        self.p += 1;
        while self.p < self.b.len() && self.b[self.p] != b'"' {
            self.p += 1 + (self.b[self.p] == b'\\') as usize;
        }
        self.p += 1;
        self.bad |= self.p > self.b.len();
    }

    fn request(&mut self) -> Request {
        let mut q = Request::default();
        self.bad |= self.white() != b'{';
        self.members(|r, key| match key {
            "id" => q.id = r.text(),
            "conversation" => q.conversation = r.text(),
            "turn" => q.turn = r.whole(),
            "api" => q.api = r.text(),
            "model" => q.model = r.text(),
            "tenant" => q.tenant = r.text(),
            "key" => q.key = r.text(),
            "hour" => q.hour = r.whole(),
            "tokens" => q.tokens = r.whole(),
            "bytes" => q.bytes = r.whole(),
            "flags" => r.members(|r, key| match key {
                "stream" => q.stream = r.truth(),
                "tools" => q.tools = r.truth(),
                "images" => q.images = r.truth(),
                "json" => q.json = r.truth(),
                _ => r.skip(),
            }),
            "headers" => r.members(|r, key| q.headers.push((key, r.text()))),
            "head" => q.head = r.text(),
            "tail" => q.tail = r.text(),
            "class" => q.class = r.text(),
            "confidence" => q.confidence = r.number(),
            "scores" => r.members(|r, key| q.scores.push((key, r.number()))),
            "candidates" => {
                if r.open(b'[') {
                    while r.more(q.candidates.len(), b']') {
                        q.candidates.push(r.candidate());
                    }
                }
            }
            _ => r.skip(),
        });
        q
    }

    fn candidate(&mut self) -> Candidate {
        let mut c = Candidate::default();
        self.bad |= self.white() != b'{';
        self.members(|r, key| match key {
            "id" => c.id = r.text(),
            "backend" => c.backend = r.text(),
            "device" => c.device = r.text(),
            "model" => c.model = r.text(),
            "ctx" => c.ctx = r.whole(),
            "healthy" => c.healthy = r.truth(),
            "queue" => c.queue = r.whole(),
            "pp_tps" => c.pp_tps = r.number(),
            "tg_tps" => c.tg_tps = r.number(),
            "load" => c.load = r.number(),
            "cached" => c.cached = r.whole(),
            "sticky" => c.sticky = r.truth(),
            "price" => c.price = r.number(),
            _ => r.skip(),
        });
        c
    }
}

/// A value of a configuration, or of anything else that is JSON. What is not there is empty, and the zero value of
/// whatever is asked for.
#[derive(Clone, Copy)]
pub struct Json(pub &'static [u8]);

impl Json {
    fn reader(self) -> Reader {
        Reader { b: self.0.to_vec().leak(), p: 0, bad: false } // texts are decoded where they stand
    }

    /// The members of an object or, with empty keys, the items of a list.
    pub fn each(self) -> Vec<(Text, Json)> {
        let (mut r, mut list) = (self.reader(), Vec::new());
        let value = |r: &mut Reader| {
            r.white();
            let from = r.p;
            r.skip();
            Json(if r.bad { b"" } else { &self.0[from..r.p] })
        };
        match r.white() {
            b'{' => r.members(|r, key| list.push((key, value(r)))),
            b'[' => {
                r.p += 1;
                while r.more(list.len(), b']') {
                    list.push(("", value(&mut r)));
                }
            }
            _ => {}
        }
        list
    }

    /// A member of an object.
    pub fn get(self, name: &str) -> Json {
        self.each().into_iter().find(|m| m.0 == name).map_or(Json(b""), |m| m.1)
    }

    pub fn text(self) -> Text {
        let mut r = self.reader();
        if r.white() == b'"' { r.text() } else { "" }
    }

    pub fn texts(self) -> Vec<Text> {
        self.each().into_iter().map(|m| m.1.text()).collect()
    }

    pub fn number(self) -> f64 {
        let mut r = self.reader();
        if matches!(r.white(), b'-' | b'0'..=b'9') { r.number() } else { 0.0 }
    }

    pub fn truth(self) -> bool {
        self.reader().white() == b't'
    }
}

// --- writing ---

fn quote(b: &mut String, s: &str) {
    b.push('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => b.extend(['\\', c]),
            c if c < ' ' => drop(write!(b, "\\u{:04x}", c as u32)),
            c => b.push(c),
        }
    }
    b.push('"');
}

fn object<V>(b: &mut String, name: &str, list: &[(String, V)], value: impl Fn(&mut String, &V)) {
    for (i, (key, v)) in list.iter().enumerate() {
        if i == 0 {
            drop(write!(b, ",\"{}\":{{", name));
        } else {
            b.push(',');
        }
        quote(b, key);
        b.push(':');
        value(b, v);
    }
    if !list.is_empty() {
        b.push('}');
    }
}

fn put_number(b: &mut String, v: f64) {
    if v.is_finite() {
        drop(write!(b, "{}", v));
    } else {
        b.push_str("null"); // which the box refuses, and says so
    }
}

fn member(b: &mut String, name: &str, s: &str) {
    if !s.is_empty() {
        b.push_str(name);
        quote(b, s);
    }
}

impl Decision {
    fn write(&self) -> Vec<u8> {
        let mut b = String::with_capacity(1024);
        b.push_str("{\"v\":1,\"action\":");
        b.push_str(match self.action {
            Action::Route => "\"route\"",
            Action::Reject => "\"reject\"",
            _ => "\"abstain\"",
        });
        member(&mut b, ",\"class\":", &self.class);
        if self.confidence != 0.0 {
            b.push_str(",\"confidence\":");
            put_number(&mut b, self.confidence);
        }
        object(&mut b, "scores", &self.scores, |b, v| put_number(b, *v));
        for (i, id) in self.candidates.iter().enumerate() {
            b.push_str(if i == 0 { ",\"candidates\":[" } else { "," });
            quote(&mut b, id);
        }
        if !self.candidates.is_empty() {
            b.push(']');
        }
        object(&mut b, "params", &self.params, |b, v| b.push_str(v));
        object(&mut b, "headers", &self.headers, |b, v| quote(b, v));
        if let Some((collection, top_k, query)) = &self.rag {
            b.push_str(",\"rag\":{\"collection\":");
            quote(&mut b, collection);
            drop(write!(b, ",\"top_k\":{}", top_k));
            member(&mut b, ",\"query\":", query);
            b.push('}');
        }
        if let Some((status, code, message)) = &self.reject {
            drop(write!(b, ",\"reject\":{{\"status\":{},\"code\":", status));
            quote(&mut b, code);
            b.push_str(",\"message\":");
            quote(&mut b, message);
            b.push('}');
        }
        member(&mut b, ",\"reason\":", &self.reason);
        if self.ttl_s > 0 {
            drop(write!(b, ",\"ttl_s\":{}", self.ttl_s));
        }
        b.push('}');
        b.into_bytes()
    }
}

// --- what a box offers ---

mod host {
    #[link(wasm_import_module = "laya_v1")]
    extern "C" {
        pub fn log(level: i32, p: *const u8, n: usize);
        pub fn metric(id: i32, v: f64) -> i32;
        pub fn now_ms() -> i64;
        pub fn tokens(p: *const u8, n: usize) -> i32;
        pub fn embed(p: *const u8, n: usize, out: *mut f32, bytes: usize) -> i32;
        pub fn decide(p: *const u8, n: usize, out: *mut u8, cap: usize) -> i32;
        pub fn text(part: i32, offset: usize, out: *mut u8, cap: usize) -> i32;
        pub fn kv_get(p: *const u8, n: usize, out: *mut u8, cap: usize) -> i32;
        pub fn kv_set(p: *const u8, n: usize, v: *const u8, vn: usize, seconds: i32) -> i32;
        pub fn kv_add(p: *const u8, n: usize, delta: i64, seconds: i32, sum: *mut i64) -> i32;
        pub fn asset(p: *const u8, n: usize, offset: usize, out: *mut u8, cap: usize) -> i32;
    }
}

/// Why a function of the box did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// an argument is wrong
    Invalid,
    /// nothing has this name or key
    Missing,
    /// a quota is used up
    Full,
    /// nobody can do it now, or in time
    Unavailable,
    /// not at this moment
    Denied,
    Other(i32),
}

impl Error {
    /// The number that the box answered.
    pub fn code(self) -> i32 {
        match self {
            Error::Invalid => -1,
            Error::Missing => -2,
            Error::Full => -3,
            Error::Unavailable => -4,
            Error::Denied => -5,
            Error::Other(n) => n,
        }
    }
}

fn result(n: i32) -> Result<usize, Error> {
    Err(match n {
        -1 => Error::Invalid,
        -2 => Error::Missing,
        -3 => Error::Full,
        -4 => Error::Unavailable,
        -5 => Error::Denied,
        n if n < 0 => Error::Other(n),
        n => return Ok(n as usize),
    })
}

#[derive(Clone, Copy)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// A part of the prompt.
#[derive(Clone, Copy)]
pub enum Part {
    LastUser,
    System,
    Whole,
}

/// Writes a line to the module's log.
pub fn log(level: Level, s: &str) {
    unsafe { host::log(level as i32, s.as_ptr(), s.len()) }
}

/// Adds v to the metric that has this place in the manifest's list.
pub fn metric(id: usize, v: f64) -> Result<(), Error> {
    result(unsafe { host::metric(id as i32, v) }).map(drop)
}

/// The time in milliseconds since 1970, the same during a call.
pub fn now() -> i64 {
    unsafe { host::now_ms() }
}

/// Counts the tokens of a text.
pub fn tokens(s: &str) -> Result<usize, Error> {
    result(unsafe { host::tokens(s.as_ptr(), s.len()) })
}

/// Writes the embedding of a text and returns how many numbers it has. May be called once in a call.
pub fn embed(s: &str, out: &mut [f32]) -> Result<usize, Error> {
    result(unsafe { host::embed(s.as_ptr(), s.len(), out.as_mut_ptr(), out.len() * 4) })
}

/// Asks the box's decision model which criterion a text meets: names with their definitions. The answer is JSON
/// {"choice", "confidence", "scores"}. May be called once in a call.
pub fn decide(s: &str, criteria: &[(String, String)]) -> Result<Json, Error> {
    let mut b = String::from("{\"text\":");
    quote(&mut b, s);
    object(&mut b, "criteria", criteria, |b, v| quote(b, v));
    b.push('}');
    let out = vec![0; 4096].leak();
    let n = result(unsafe { host::decide(b.as_ptr(), b.len(), out.as_mut_ptr(), out.len()) })?;
    Ok(Json(&out[..n.min(4096)]))
}

/// Copies a part of the prompt from an offset on and returns how many bytes that were; 0 at the end.
pub fn text(part: Part, offset: usize, out: &mut [u8]) -> Result<usize, Error> {
    result(unsafe { host::text(part as i32, offset, out.as_mut_ptr(), out.len()) })
}

/// What is stored under a key, if that is at most so many bytes.
pub fn get(key: &str, most: usize) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; most];
    let n = result(unsafe { host::kv_get(key.as_ptr(), key.len(), out.as_mut_ptr(), most) })?;
    if n > most {
        return Err(Error::Full);
    }
    out.truncate(n);
    Ok(out)
}

/// Stores a value for some seconds, for ever with 0.
pub fn set(key: &str, value: &[u8], seconds: i32) -> Result<(), Error> {
    result(unsafe { host::kv_set(key.as_ptr(), key.len(), value.as_ptr(), value.len(), seconds) }).map(drop)
}

/// Adds to a number that is stored and returns the sum.
pub fn add(key: &str, delta: i64, seconds: i32) -> Result<i64, Error> {
    let mut sum = 0;
    result(unsafe { host::kv_add(key.as_ptr(), key.len(), delta, seconds, &mut sum) })?;
    Ok(sum)
}

/// Copies from a file that was uploaded beside the module; 0 at its end. Only while it is configured, and in the first call.
pub fn asset(name: &str, offset: usize, out: &mut [u8]) -> Result<usize, Error> {
    result(unsafe { host::asset(name.as_ptr(), name.len(), offset, out.as_mut_ptr(), out.len()) })
}
