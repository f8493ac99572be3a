//! Sends each language to the models that know it. The language is that of the script, or the one whose small words occur
//! most often.
#[path = "../../guest/rust/laya.rs"]
#[macro_use]
mod laya;

use laya::{Decision, Json, Request};
use std::ptr::addr_of_mut;

/// Small words that are frequent in one of these languages and rare in the others.
const WORDS: [(&str, &[&str]); 6] = [
    ("en", &["the", "and", "is", "of", "to", "what", "how", "with", "you", "that"]),
    ("de", &["der", "die", "das", "und", "ist", "nicht", "ein", "eine", "wie", "mit", "ich"]),
    ("fr", &["le", "les", "des", "est", "une", "et", "pour", "dans", "vous", "quel", "je"]),
    ("es", &["el", "los", "las", "una", "por", "para", "cómo", "qué", "con", "es", "y"]),
    ("it", &["il", "che", "di", "della", "per", "sono", "come", "gli", "una", "è"]),
    ("pt", &["os", "uma", "não", "para", "com", "como", "você", "do", "da", "em", "é"]),
];

/// What the operator set: languages with models, the best first.
static mut TABLE: Vec<(laya::Text, Vec<laya::Text>)> = Vec::new();

fn table() -> &'static mut Vec<(laya::Text, Vec<laya::Text>)> {
    unsafe { &mut *addr_of_mut!(TABLE) } // one thread, and written before the first call alone
}

fn configure(config: Json) -> String {
    for (language, models) in config.get("languages").each() {
        if models.texts().is_empty() {
            return format!("{} needs a list of models", language);
        }
        table().push((language, models.texts()));
    }
    String::new()
}

/// The language of a script that one language has to itself, or nearly so.
fn script(text: &str) -> Option<&'static str> {
    let (mut counts, mut letters) = ([0; 5], 0);
    for c in text.chars().filter(|c| c.is_alphabetic()) {
        letters += 1;
        match c as u32 {
            0x0400..=0x04FF => counts[0] += 1,
            0x3040..=0x30FF => counts[1] += 1,
            0x4E00..=0x9FFF => counts[2] += 1,
            0x0900..=0x097F => counts[3] += 1,
            0xAC00..=0xD7AF => counts[4] += 1,
            _ => {}
        }
    }
    if counts[1] > 0 && (counts[1] + counts[2]) * 2 > letters {
        return Some("ja"); // its text mixes both
    }
    ["ru", "ja", "zh", "hi", "ko"].iter().zip(counts).find(|(_, n)| n * 2 > letters).map(|(l, _)| *l)
}

/// The language with the most small words, if there are two and no other has as many.
fn words(text: &str) -> Option<&'static str> {
    let mut counts = [0; WORDS.len()];
    for word in text.split(|c: char| !c.is_alphabetic()).take(400) {
        let word = word.to_lowercase();
        for (i, (_, list)) in WORDS.iter().enumerate() {
            counts[i] += list.contains(&word.as_str()) as u32;
        }
    }
    let most = *counts.iter().max()?;
    let mut with = (0..WORDS.len()).filter(|i| counts[*i] == most);
    let first = with.next()?;
    if most < 2 || with.next().is_some() { None } else { Some(WORDS[first].0) }
}

fn decide(r: &Request) -> Decision {
    let language = match script(r.head).or_else(|| words(r.head)) {
        Some(language) => language,
        None => return Decision::default(),
    };
    let models = match table().iter().find(|row| row.0 == language) {
        Some(row) => &row.1,
        None => return Decision::default(),
    };
    let fits = |model: &&laya::Text| r.candidates.iter().filter(|c| c.healthy && c.model == **model).map(|c| c.id).collect::<Vec<_>>();
    let mut d = laya::to(models.iter().flat_map(|m| fits(&m))).because(format!("the language is {}", language));
    d.headers.push(("x-laya-language".to_string(), language.to_string()));
    d
}

laya_configure!(configure);
laya_route!(decide);
