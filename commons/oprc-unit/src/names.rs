//! Names of objects and values of labels, made from ids and keys that may hold anything.
//!
//! A name that was changed or cut carries a hash of what it was made from, so that two different
//! origins never share one. Parts never contain two dashes in a row, which is what stands between
//! a class and its function: so no class can take the name of another's function.

use sha2::{Digest as _, Sha256};

/// What a label's value and most names may have.
pub const MAX: usize = 63;
/// Leaves room for `-odgm-svc`, and for the hash that a StatefulSet puts behind its own name.
const CLASS_MAX: usize = 40;
/// Knative puts `-00001-private` behind a Service's name.
const KNATIVE_MAX: usize = 49;
const HASH: usize = 10;
/// What children of a class other than functions end with.
const RESERVED: [&str; 4] = ["-odgm", "-odgm-svc", "-odgm-peers", "-kn"];

/// The name of a ClassRuntime for a deployment's id.
pub fn class_runtime(deployment_id: &str) -> String {
    part(deployment_id, CLASS_MAX)
}

/// What all children of a ClassRuntime begin with, and what `oaas.io/owner` says.
pub fn base(class_runtime: &str) -> String {
    // A name that carries a hash already needs no other.
    if class_runtime.len() <= CLASS_MAX && is_plain(class_runtime, true) {
        return class_runtime.to_owned();
    }
    part(class_runtime, CLASS_MAX)
}

/// The value of a label for something that may not be fit for one.
pub fn label(raw: &str) -> String {
    part(raw, MAX)
}

/// The name of a function's children; the only function of a class has the class's own.
pub fn function(base: &str, key: Option<&str>) -> String {
    match key {
        None => base.to_owned(),
        Some(key) => joined(base, key, "", MAX),
    }
}

/// The name of a function's Knative Service: Knative makes a Service of that name by itself, so it
/// can't be the one that a plain workload has.
pub fn knative(base: &str, key: Option<&str>) -> String {
    match key {
        None => format!("{base}-kn"),
        Some(key) => joined(base, key, "-kn", KNATIVE_MAX),
    }
}

/// The name of a function's Job for one generation of its class.
pub fn job(base: &str, key: Option<&str>, generation: i64) -> String {
    let suffix = format!("-g{generation}");
    match key {
        None => format!("{base}{suffix}"),
        Some(key) => joined(base, key, &suffix, MAX),
    }
}

/// The name of a class's data grid.
pub fn odgm(base: &str) -> String {
    format!("{base}-odgm")
}

/// What the disk of each node of a data grid is called in its pod.
pub const ODGM_DISK: &str = "data";

/// Whether a volume claim has a name that the nodes of a class's data grid give theirs.
pub fn is_odgm_claim(base: &str, claim: &str) -> bool {
    let number = claim.strip_prefix(&format!("{ODGM_DISK}-{}-", odgm(base)));
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The name of the Service of a class's data grid.
pub fn odgm_service(base: &str) -> String {
    format!("{base}-odgm-svc")
}

/// The name of the Service by which nodes of a data grid find each other.
pub fn odgm_peers(base: &str) -> String {
    format!("{base}-odgm-peers")
}

fn joined(base: &str, key: &str, suffix: &str, max: usize) -> String {
    let whole = format!("{base}--{}{suffix}", part(key, MAX));
    if whole.len() <= max {
        return whole;
    }
    let room = max.saturating_sub(suffix.len() + HASH + 1);
    format!("{}-{}{suffix}", cut(&whole, room), hash(&format!("{base}--{key}")))
}

/// `raw` where it can serve as it is, and otherwise what is left of it with a hash of it.
fn part(raw: &str, max: usize) -> String {
    if raw.len() <= max && is_plain(raw, false) {
        return raw.to_owned();
    }
    let mut kept = String::with_capacity(max);
    for letter in raw.chars() {
        let letter = letter.to_ascii_lowercase();
        if letter.is_ascii_lowercase() || letter.is_ascii_digit() {
            kept.push(letter);
        } else if !kept.is_empty() && !kept.ends_with('-') {
            kept.push('-');
        }
    }
    // A Service's name begins with a letter.
    if !kept.starts_with(|letter: char| letter.is_ascii_lowercase()) {
        kept.insert_str(0, "x-");
    }
    format!("{}-{}", cut(&kept, max - HASH - 1), hash(raw))
}

fn is_plain(raw: &str, made: bool) -> bool {
    let allowed = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    raw.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && raw.as_bytes().last().is_some_and(|&last| allowed(last))
        && raw.bytes().all(|letter| allowed(letter) || letter == b'-')
        && !raw.contains("--")
        && !RESERVED.iter().any(|suffix| raw.ends_with(suffix))
        && (made || !looks_made(raw))
}

/// Only a hash may look like one, and only the generation of a Job like that.
fn looks_made(raw: &str) -> bool {
    raw.rsplit_once('-').is_some_and(|(_, last)| {
        let hash = last.len() == HASH && last.bytes().all(|letter| letter.is_ascii_hexdigit());
        let generation = last.strip_prefix('g');
        hash || generation.is_some_and(|rest| rest.bytes().all(|letter| letter.is_ascii_digit()))
    })
}

/// The first bytes of ASCII text, without dashes at its end.
fn cut(text: &str, max: usize) -> &str {
    text.get(..max.min(text.len())).unwrap_or(text).trim_end_matches('-')
}

fn hash(raw: &str) -> String {
    let mut digits = hex::encode(Sha256::digest(raw));
    digits.truncate(HASH);
    digits
}

/// Whether this can be the name of a namespace.
pub fn is_namespace(name: &str) -> bool {
    let inner =
        |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    !name.is_empty()
        && name.len() <= MAX
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn valid(name: &str) -> bool {
        name.len() <= MAX
            && name.starts_with(|letter: char| letter.is_ascii_lowercase())
            && name.ends_with(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    }

    #[test]
    fn a_plain_id_stays_as_it_is() {
        assert_eq!(class_runtime("hello-class"), "hello-class");
        assert_eq!(function("hello-class", Some("greet")), "hello-class--greet");
        assert_eq!(function("hello-class", None), "hello-class");
        assert_eq!(odgm_service("hello-class"), "hello-class-odgm-svc");
    }

    #[test]
    fn ids_that_look_the_same_when_cleaned_get_names_of_their_own() {
        let ids = ["a.b", "a-b", "A-b", "a--b", "a_b", "-a-b", "a-b-"];
        let names: std::collections::BTreeSet<_> = ids.iter().map(|id| class_runtime(id)).collect();
        assert_eq!(names.len(), ids.len(), "{names:?}");
    }

    /// All children of a class, and whether any name is taken twice by different origins.
    fn children(class: &str, keys: &[String]) -> Vec<(String, String)> {
        let base = base(&class_runtime(class));
        let mut all = vec![
            (odgm(&base), format!("{class}\0odgm")),
            (odgm_service(&base), format!("{class}\0svc")),
            (odgm_peers(&base), format!("{class}\0peers")),
            (function(&base, None), format!("{class}\0only")),
            (knative(&base, None), format!("{class}\0only kn")),
            (job(&base, None, 7), format!("{class}\0only job")),
        ];
        for key in keys {
            all.push((function(&base, Some(key)), format!("{class}\0{key}")));
            all.push((knative(&base, Some(key)), format!("{class}\0{key}\0kn")));
            all.push((job(&base, Some(key), 7), format!("{class}\0{key}\0job")));
        }
        all
    }

    /// A million names, from a small alphabet so that likeness is common: all valid, none taken twice.
    #[test]
    fn a_million_names_are_valid_and_never_collide() {
        let parts =
            ["a", "b", "-", "--", "A", "_", ".", "odgm", "svc", "kn", "9", "é", "peers", "g7"];
        let mut seed = 1_u64;
        let mut next = |bound: u64| {
            // A linear congruence is random enough here, and the same each time.
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        let mut text = move || {
            let long = next(50) == 0;
            let count = if long { 20 + next(60) } else { 1 + next(5) };
            let mut text = String::new();
            for _ in 0..count {
                text.push_str(parts[usize::try_from(next(parts.len() as u64)).unwrap()]);
            }
            text
        };
        let mut seen: HashMap<String, String> = HashMap::new();
        // As many as there are names: one that comes again must come from the same.
        while seen.len() < 1_000_000 {
            let class = text();
            let keys = [text(), text(), text()];
            for (name, origin) in children(&class, &keys) {
                assert!(valid(&name), "{name:?} of {origin:?}");
                if let Some(other) = seen.insert(name.clone(), origin.clone()) {
                    assert_eq!(other, origin, "both are {name}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_the_id_the_name_is_valid(id in "\\PC{0,300}", key in "\\PC{0,300}") {
            let base = base(&class_runtime(&id));
            prop_assert!(valid(&base) && base.len() <= CLASS_MAX);
            prop_assert!(valid(&function(&base, Some(&key))));
            let knative = knative(&base, Some(&key));
            prop_assert!(valid(&knative) && knative.len() <= KNATIVE_MAX);
            prop_assert!(valid(&job(&base, Some(&key), i64::MAX)));
            prop_assert!(valid(&label(&id)));
        }
    }
}
