//! Randomly damaged package files never cause a panic, and each rejection has a path and a line.

use super::{Sample, TestRng, examples::EXAMPLES};
use crate::{Body, Diagnostics, OPackage, parse, resolve, to_yaml};

#[path = "../../../../tests/support/proof.rs"]
#[allow(dead_code, unreachable_pub)]
mod proofs;

const SEED: u64 = 20_261_116;

/// Text to insert into files.
const FRAGMENTS: &[&str] = &[
    "---\n",
    "...\n",
    "- ",
    "? ",
    ": ",
    ":",
    "&a ",
    "*a",
    "!!str ",
    "!x ",
    "|\n",
    ">-\n",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"",
    "'",
    "#",
    "%YAML 1.2\n",
    "\t",
    "\n",
    "  ",
    "\r",
    "~",
    "null",
    "true",
    "-1",
    "99999999999999999999",
    "1e400",
    ".nan",
    "0x",
    "<<: ",
    "\u{feff}",
    "\u{0}",
    "\u{85}",
    "😀",
    "\\x00",
    "$args.",
    "key: ",
    "parents: [Circle, Shape]\n",
    "functions:\n",
    "type: MACRO\n",
    "macro: {steps: [{function: scaled-area}]}\n",
    "kind: OPackage\n",
    "availability: 99.9\n",
];

#[test]
fn damaged_files_are_rejected_with_path_and_line() {
    let proof = proofs::begin("damaged package files", 2_000, 100_000);
    let mut rng = TestRng(SEED);
    let (mut rejected, mut valid) = (0, 0);
    for _ in 0..proof.rounds {
        let mut text = original(&mut rng);
        for _ in 0..=rng.below(6) {
            damage(&mut text, &mut rng);
        }
        let text: String = text.into_iter().collect();
        match messages(&text) {
            None => valid += 1,
            Some(diagnostics) => {
                rejected += 1;
                check(&diagnostics, &text);
            }
        }
    }
    assert!(rejected > proof.rounds / 2, "{rejected} of {}", proof.rounds);
    proof.held(&format!("{rejected} rejected with path and line, {valid} still valid, no panic"));
}

fn original(rng: &mut TestRng) -> Vec<char> {
    let text = if rng.below(4) == 0 {
        to_yaml([&Body::Package(Box::new(OPackage::sample(rng)))]).unwrap()
    } else {
        rng.one_of(&EXAMPLES).1.to_owned()
    };
    text.chars().collect()
}

fn damage(text: &mut Vec<char>, rng: &mut TestRng) {
    let at = rng.below(text.len() + 1);
    let some = at + rng.below(40).min(text.len() - at);
    match rng.below(8) {
        0 => drop(text.drain(at..some)),
        1 => drop(text.splice(at..at, rng.one_of(FRAGMENTS).chars())),
        2 => drop(text.splice(at..some, rng.one_of(FRAGMENTS).chars())),
        3 => text.truncate(at),
        4 => {
            let copy = text[at..some].to_vec();
            let to = rng.below(text.len() + 1);
            drop(text.splice(to..to, copy));
        }
        5 => {
            if let Some(letter) = text.get_mut(at) {
                *letter = char::from_u32(u32::try_from(rng.below(0x250)).unwrap()).unwrap_or('x');
            }
        }
        6 => lines(text, rng),
        _ => {
            let other = EXAMPLES[rng.below(3)].1;
            let line = other.lines().nth(rng.below(60)).unwrap_or_default();
            drop(text.splice(at..at, format!("\n{line}\n").chars()));
        }
    }
}

/// Removes, duplicates, swaps or indents lines.
fn lines(text: &mut Vec<char>, rng: &mut TestRng) {
    let whole: String = text.iter().collect();
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return;
    }
    let (at, other) = (rng.below(lines.len()), rng.below(lines.len()));
    match rng.below(4) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(other, lines[at].clone()),
        2 => lines.swap(at, other),
        _ => lines[at].insert_str(0, &" ".repeat(rng.below(5))),
    }
    *text = lines.join("\n").chars().collect();
}

/// The problems found by parsing, checking or resolving.
fn messages(text: &str) -> Option<Diagnostics> {
    let documents = match parse(text, "damaged.yaml") {
        Ok(documents) => documents,
        Err(diagnostics) => return Some(diagnostics),
    };
    documents.iter().find_map(|document| {
        document.check().err().or_else(|| match &document.body {
            Body::Package(package) => {
                resolve(package, &()).err().map(|diagnostics| document.locate(diagnostics))
            }
            Body::Deployment(_) => None,
        })
    })
}

fn check(diagnostics: &Diagnostics, text: &str) {
    assert!(!diagnostics.all.is_empty());
    // YAML has more line breaks than Rust's `lines`.
    let lines = text.split(['\n', '\r']).count() + 1;
    for diagnostic in &diagnostics.all {
        let at = diagnostic
            .location
            .as_ref()
            .unwrap_or_else(|| panic!("{diagnostic}: no place\n{text}"));
        assert!((1..=lines).contains(&at.line) && at.column > 0, "{diagnostic}\n{text}");
        assert!(
            !diagnostic.path.is_empty() && !diagnostic.message.is_empty(),
            "{diagnostic}\n{text}"
        );
        assert!(diagnostic.to_string().len() < 4_000, "{diagnostic}");
    }
}
