//! Package files with anything wrong in them: none brings the reader down, and of each that is
//! refused it is told where and why.

use super::{Chance, Sample, examples::EXAMPLES};
use crate::{Body, Faults, OPackage, parse, resolve, to_yaml};

#[path = "../../../../tests/support/proof.rs"]
#[allow(dead_code, unreachable_pub)]
mod proofs;

const SEED: u64 = 20_261_116;

/// What files are made worse with.
const PIECES: &[&str] = &[
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
fn damaged_files_are_refused_with_path_and_line() {
    let proof = proofs::begin("damaged package files", 2_000, 100_000);
    let mut chance = Chance(SEED);
    let (mut refused, mut fine) = (0, 0);
    for _ in 0..proof.rounds {
        let mut text = original(&mut chance);
        for _ in 0..=chance.below(6) {
            damage(&mut text, &mut chance);
        }
        let text: String = text.into_iter().collect();
        match told(&text) {
            None => fine += 1,
            Some(faults) => {
                refused += 1;
                check(&faults, &text);
            }
        }
    }
    assert!(refused > proof.rounds / 2, "{refused} of {}", proof.rounds);
    proof.held(&format!("{refused} refused with path and line, {fine} still in order, no panic"));
}

fn original(chance: &mut Chance) -> Vec<char> {
    let text = if chance.below(4) == 0 {
        to_yaml([&Body::Package(Box::new(OPackage::sample(chance)))]).unwrap()
    } else {
        chance.one_of(&EXAMPLES).1.to_owned()
    };
    text.chars().collect()
}

fn damage(text: &mut Vec<char>, chance: &mut Chance) {
    let at = chance.below(text.len() + 1);
    let some = at + chance.below(40).min(text.len() - at);
    match chance.below(8) {
        0 => drop(text.drain(at..some)),
        1 => drop(text.splice(at..at, chance.one_of(PIECES).chars())),
        2 => drop(text.splice(at..some, chance.one_of(PIECES).chars())),
        3 => text.truncate(at),
        4 => {
            let copy = text[at..some].to_vec();
            let to = chance.below(text.len() + 1);
            drop(text.splice(to..to, copy));
        }
        5 => {
            if let Some(letter) = text.get_mut(at) {
                *letter =
                    char::from_u32(u32::try_from(chance.below(0x250)).unwrap()).unwrap_or('x');
            }
        }
        6 => lines(text, chance),
        _ => {
            let other = EXAMPLES[chance.below(3)].1;
            let line = other.lines().nth(chance.below(60)).unwrap_or_default();
            drop(text.splice(at..at, format!("\n{line}\n").chars()));
        }
    }
}

/// Lines are dropped, doubled, exchanged, or moved to the side.
fn lines(text: &mut Vec<char>, chance: &mut Chance) {
    let whole: String = text.iter().collect();
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return;
    }
    let (at, other) = (chance.below(lines.len()), chance.below(lines.len()));
    match chance.below(4) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(other, lines[at].clone()),
        2 => lines.swap(at, other),
        _ => lines[at].insert_str(0, &" ".repeat(chance.below(5))),
    }
    *text = lines.join("\n").chars().collect();
}

/// What is wrong with a text, however late that is seen.
fn told(text: &str) -> Option<Faults> {
    let documents = match parse(text, "damaged.yaml") {
        Ok(documents) => documents,
        Err(faults) => return Some(faults),
    };
    documents.iter().find_map(|document| {
        document.check().err().or_else(|| match &document.body {
            Body::Package(package) => {
                resolve(package, &()).err().map(|faults| document.locate(faults))
            }
            Body::Deployment(_) => None,
        })
    })
}

fn check(faults: &Faults, text: &str) {
    assert!(!faults.all.is_empty());
    // YAML knows more ends of lines than Rust does.
    let lines = text.split(['\n', '\r']).count() + 1;
    for fault in &faults.all {
        let place = fault.place.as_ref().unwrap_or_else(|| panic!("{fault}: no place\n{text}"));
        assert!((1..=lines).contains(&place.line) && place.column > 0, "{fault}\n{text}");
        assert!(!fault.path.is_empty() && !fault.message.is_empty(), "{fault}\n{text}");
        assert!(fault.to_string().len() < 4_000, "{fault}");
    }
}
