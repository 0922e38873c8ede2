//! Names of Kubernetes objects and values of labels, derived from unit ids and function keys.
//!
//! The ClassRuntime of a unit that PM deploys is named `<deployment>--<class>`, followed by
//! `--<environment>` where the unit belongs to one; the objects of a function add `--<function>`.
//! The cluster is part of the unit id but not of the name. An id of another form becomes one part.
//!
//! Parts are in lower case. A part carries a hash of its original if it contains `--`, needs a
//! change beyond lower-casing, or ends like a generated name; a name that is too long is cut and
//! carries a hash of all its parts. Different origins therefore never share a name, apart from
//! those that differ only in case: validation rejects such functions of one class, and the API
//! server rejects a second unit id for an existing ClassRuntime.

pub use oprc_models::rules::is_namespace;
use sha2::{Digest as _, Sha256};

use crate::unit_id::parse_unit_id;

/// Maximum length of a label's value and of a DNS-1123 label.
pub const MAX: usize = 63;
/// Leaves space for `-odgm-peers`, and for the revision hash that a StatefulSet appends to its
/// name in a label of its pods.
const CLASS_MAX: usize = 40;
/// Leaves space for `-00001-private`, which Knative appends to the name of a Service.
const KNATIVE_MAX: usize = 49;
const HASH_LENGTH: usize = 10;
const SEPARATOR: &str = "--";
/// Deployment, class and environment.
const CLASS_MAX_PARTS: usize = 3;
/// Suffixes of generated names; no part ends with one, or like [`with_kind`].
const RESERVED_SUFFIXES: [&str; 4] = ["-odgm", "-odgm-svc", "-odgm-peers", "-fn"];

/// The name of the ClassRuntime of a deployment id.
pub fn class_runtime(deployment_id: &str) -> String {
    let Some(unit) = parse_unit_id(deployment_id) else {
        return sanitize(deployment_id, CLASS_MAX);
    };
    let mut name = name_part(unit.deployment, true);
    let mut origin = unit.deployment.to_owned();
    for part in [unit.class, unit.environment].into_iter().filter(|part| !part.is_empty()) {
        name = format!("{name}{SEPARATOR}{}", name_part(part, false));
        // Ids contain no control characters, so this origin differs from that of any other name.
        origin = format!("{origin}\0{part}");
    }
    fit(&name, &origin, "", CLASS_MAX)
}

/// The prefix of the names of all children of a ClassRuntime, and the value of `oaas.io/owner`.
/// It is the ClassRuntime's name, unless a user chose one that could be taken for a child's.
pub fn base(class_runtime: &str) -> String {
    let mut parts = class_runtime.split(SEPARATOR);
    if class_runtime.len() <= CLASS_MAX
        && parts.clone().count() <= CLASS_MAX_PARTS
        && starts_with_letter(class_runtime)
        && parts.all(is_name_part)
    {
        return class_runtime.to_owned();
    }
    // A deployment id may have the same text: its ClassRuntime needs another base.
    replace_invalid(class_runtime, &format!("\0{class_runtime}"), CLASS_MAX)
}

/// `raw` if it is a valid label value, otherwise a sanitized form with a hash.
pub fn label(raw: &str) -> String {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = raw.as_bytes();
    if raw.len() <= MAX
        && alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && !ends_with_hash(raw)
    {
        return raw.to_owned();
    }
    sanitize(raw, MAX)
}

/// The name of the objects of a function. The single function of a class has no key.
pub fn function(base: &str, key: Option<&str>) -> String {
    function_name(base, key, "", MAX)
}

/// The name of a function's Knative Service. It differs from [`function`], because Knative creates
/// a Service of the same name.
pub fn knative(base: &str, key: Option<&str>) -> String {
    with_kind(base, key, 'n', KNATIVE_MAX)
}

/// The name of a function's workload of another kind than a Deployment: it ends with `-k` and a
/// lower-case letter for the kind. During a change of template both workloads exist.
pub fn with_kind(base: &str, key: Option<&str>, kind: char, max: usize) -> String {
    function_name(base, key, &format!("-k{kind}"), max)
}

/// The name of a function's Job for one generation of its class.
pub fn job(base: &str, key: Option<&str>, generation: i64) -> String {
    function_name(base, key, &format!("-g{generation}"), MAX)
}

/// The name of the StatefulSet or Deployment of a class's data grid.
pub fn odgm(base: &str) -> String {
    format!("{base}-odgm")
}

/// The name of the volume of a data grid node in its pod.
pub const ODGM_VOLUME: &str = "data";

/// Whether a PersistentVolumeClaim has a name that the StatefulSet of a data grid generates.
pub fn is_odgm_claim(base: &str, claim: &str) -> bool {
    let ordinal = claim.strip_prefix(&format!("{ODGM_VOLUME}-{}-", odgm(base)));
    ordinal.is_some_and(|it| !it.is_empty() && it.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The name of the Service of a class's data grid.
pub fn odgm_service(base: &str) -> String {
    format!("{base}-odgm-svc")
}

/// The name of the headless Service by which the nodes of a data grid find each other.
pub fn odgm_peers(base: &str) -> String {
    format!("{base}-odgm-peers")
}

/// Whether a name is used unchanged: a DNS-1123 label that starts with a letter and doesn't end
/// like a generated name.
pub fn is_plain(name: &str) -> bool {
    name.len() <= MAX && starts_with_letter(name) && is_name_part(name) && !ends_with_hash(name)
}

fn function_name(base: &str, key: Option<&str>, suffix: &str, max: usize) -> String {
    let name = match key {
        Some(key) => format!("{base}{SEPARATOR}{}", name_part(key, false)),
        // `a--b` is the name of the function `b` of a class `a`.
        None if base.contains(SEPARATOR) => format!("{base}-fn"),
        None => base.to_owned(),
    };
    fit(&name, &format!("{base}\0{}", key.unwrap_or_default()), suffix, max)
}

/// Appends `suffix`. A name that gets too long is cut, and carries a hash of `origin`.
fn fit(name: &str, origin: &str, suffix: &str, max: usize) -> String {
    if name.len() + suffix.len() <= max {
        return format!("{name}{suffix}");
    }
    let available = max.saturating_sub(suffix.len() + HASH_LENGTH + 1);
    format!("{}-{}{suffix}", cut(name, available), hash(origin))
}

/// `raw` in lower case as a part of a name, with a hash if that isn't enough.
fn name_part(raw: &str, first: bool) -> String {
    let lower = raw.to_ascii_lowercase();
    if is_name_part(&lower) && !ends_with_hash(&lower) && (!first || starts_with_letter(&lower)) {
        return lower;
    }
    sanitize(raw, MAX)
}

/// `raw` if it is a plain name, otherwise its valid characters with a hash.
fn sanitize(raw: &str, max: usize) -> String {
    if raw.len() <= max && is_plain(raw) {
        return raw.to_owned();
    }
    replace_invalid(raw, raw, max)
}

/// The valid characters of `raw`, in lower case, with a hash of `origin`.
fn replace_invalid(raw: &str, origin: &str, max: usize) -> String {
    let mut kept = String::with_capacity(max);
    for letter in raw.chars() {
        let letter = letter.to_ascii_lowercase();
        if letter.is_ascii_lowercase() || letter.is_ascii_digit() {
            kept.push(letter);
        } else if !kept.is_empty() && !kept.ends_with('-') {
            kept.push('-');
        }
    }
    if !starts_with_letter(&kept) {
        kept.insert_str(0, "x-");
    }
    format!("{}-{}", cut(&kept, max - HASH_LENGTH - 1), hash(origin))
}

/// Names of Services start with a letter.
fn starts_with_letter(name: &str) -> bool {
    name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_name_part(part: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(|&byte| is_lower_alphanumeric(byte));
    alphanumeric(part.as_bytes().first())
        && alphanumeric(part.as_bytes().last())
        && part.bytes().all(|byte| is_lower_alphanumeric(byte) || byte == b'-')
        && !part.contains(SEPARATOR)
        && !RESERVED_SUFFIXES.iter().any(|suffix| part.ends_with(suffix))
        && !ends_with_generation(part)
        && !ends_with_kind(part)
}

fn ends_with_kind(part: &str) -> bool {
    matches!(part.as_bytes(), [.., b'-', b'k', b'a'..=b'z'])
}

fn ends_with_hash(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(_, last)| {
        last.len() == HASH_LENGTH && last.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Whether a name ends like that of a Job.
fn ends_with_generation(name: &str) -> bool {
    let last = name.rsplit_once("-g").map(|(_, last)| last);
    last.is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The first bytes of ASCII text, without dashes at the end.
fn cut(text: &str, max: usize) -> &str {
    text.get(..max.min(text.len())).unwrap_or(text).trim_end_matches('-')
}

fn hash(raw: &str) -> String {
    let mut digits = hex::encode(Sha256::digest(raw));
    digits.truncate(HASH_LENGTH);
    digits
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::*;
    use crate::unit_id::unit_id;

    fn is_valid(name: &str) -> bool {
        name.len() <= MAX
            && name.starts_with(|letter: char| letter.is_ascii_lowercase())
            && name.ends_with(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    }

    #[test]
    fn unit_ids_give_readable_names_without_the_cluster() {
        for (id, name, greet) in [
            ("hello.Hello..oprc", "hello--hello", "hello--hello--greet"),
            ("hello.Hello.prod..oprc", "hello--hello--prod", "hello--hello--prod--greet"),
            ("shop.Cart.1st..eu.west", "shop--cart--1st", "shop--cart--1st--greet"),
        ] {
            assert_eq!(class_runtime(id), name);
            assert_eq!(base(name), name);
            assert_eq!(function(name, Some("Greet")), greet);
        }
        assert_eq!(knative("hello--hello", Some("greet")), "hello--hello--greet-kn");
        assert_eq!(job("hello--hello", Some("greet"), 2), "hello--hello--greet-g2");
        assert_eq!(odgm_peers("hello--hello"), "hello--hello-odgm-peers");
    }

    #[test]
    fn plain_ids_are_names() {
        assert_eq!(class_runtime("hello-class"), "hello-class");
        assert_eq!(function("hello-class", Some("greet")), "hello-class--greet");
        assert_eq!(function("hello-class", None), "hello-class");
        assert_eq!(odgm_service("hello-class"), "hello-class-odgm-svc");
    }

    #[test]
    fn parts_that_had_to_change_carry_a_hash() {
        for (id, prefix) in [
            ("a--b.C..x", "a-b-"),
            ("1a.C..x", "x-1a-"),
            ("a.C_d..x", "a--c-d-"),
            ("a.C-odgm..x", "a--c-odgm-"),
            ("a.Some-g7..x", "a--some-g7-"),
        ] {
            let name = class_runtime(id);
            assert!(
                name.starts_with(prefix) && name.split(SEPARATOR).any(ends_with_hash),
                "{name}"
            );
        }
        let long = class_runtime(&unit_id("shop", "Cart", &"e".repeat(63), "x"));
        assert!(long.starts_with("shop--cart--eee") && long.len() == CLASS_MAX, "{long}");
    }

    #[test]
    fn a_single_function_never_has_the_name_of_another_class_function() {
        assert_eq!(function("a--b", None), "a--b-fn");
        assert_eq!(function("a", Some("b")), "a--b");
        assert_eq!(base("a--b--c"), "a--b--c");
        assert_ne!(base("a--b--c--d"), "a--b--c--d");
        assert_ne!(base("a--b-fn"), "a--b-fn");
    }

    #[test]
    fn similar_ids_have_different_names() {
        let ids = ["a.b", "a-b", "A-b", "a--b", "a_b", "-a-b", "a-b-", "a.b..x"];
        let names: BTreeSet<_> = ids.iter().map(|id| class_runtime(id)).collect();
        assert_eq!(names.len(), ids.len(), "{names:?}");
    }

    #[test]
    fn valid_label_values_are_kept() {
        for raw in ["hello.Hello..east", "greet", "Greet_2"] {
            assert_eq!(label(raw), raw);
        }
        for raw in ["", "-a", "a/b", "é", "a-0123456789", &"a".repeat(64)] {
            let label = label(raw);
            assert!(label != raw && is_valid(&label), "{label}");
        }
    }

    /// The names of all children of a ClassRuntime, each with what it belongs to.
    fn children(class_runtime: &str, keys: &[String]) -> Vec<(String, String)> {
        let base = base(class_runtime);
        let mut all = vec![
            (odgm(&base), format!("{class_runtime}\0odgm")),
            (odgm_service(&base), format!("{class_runtime}\0svc")),
            (odgm_peers(&base), format!("{class_runtime}\0peers")),
            (function(&base, None), format!("{class_runtime}\0single")),
            (knative(&base, None), format!("{class_runtime}\0single kn")),
            (job(&base, None, 7), format!("{class_runtime}\0single job")),
        ];
        for key in keys {
            // Validation rejects functions of one class that differ only in case.
            let origin = format!("{class_runtime}\0{}", key.to_ascii_lowercase());
            all.push((function(&base, Some(key)), origin.clone()));
            all.push((knative(&base, Some(key)), format!("{origin}\0kn")));
            all.push((job(&base, Some(key), 7), format!("{origin}\0job")));
        }
        all
    }

    /// Generates similar names from a small alphabet, for unit ids, other ids and ClassRuntimes
    /// that users name.
    #[test]
    fn a_million_names_are_valid_and_never_collide() {
        let parts = [
            "a", "b", "-", "--", "A", "_", ".", "odgm", "svc", "kn", "9", "é", "peers", "g7", "fn",
        ];
        let mut seed = 1_u64;
        let mut next = move |bound: usize| {
            // A linear congruential generator gives the same names on each run.
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % bound
        };
        let text = |next: &mut dyn FnMut(usize) -> usize| {
            let count = if next(50) == 0 { 20 + next(60) } else { 1 + next(7) };
            (0..count).map(|_| parts[next(parts.len())]).collect::<String>()
        };
        let mut classes: HashMap<String, String> = HashMap::new();
        let mut seen: HashMap<String, String> = HashMap::new();
        while seen.len() < 1_000_000 {
            let id = text(&mut next);
            let (name, origin) = match next(4) {
                0 => (class_runtime(&id), format!("id {id}")),
                1 if is_valid(&id) => (id.clone(), "user".to_owned()),
                _ => {
                    let mut part = || text(&mut next).replace('.', "");
                    let (class, environment) = (part(), part());
                    let id = unit_id(&id.replace('.', ""), &class, &environment, "x");
                    let unit = parse_unit_id(&id).map_or(format!("id {id}"), |_| id.to_lowercase());
                    (class_runtime(&id), unit)
                }
            };
            let keys = [text(&mut next), text(&mut next), text(&mut next)];
            for (child, origin) in children(&name, &keys) {
                assert!(is_valid(&child), "{child:?} of {origin:?}");
                if let Some(other) = seen.insert(child.clone(), origin.clone()) {
                    assert_eq!(other, origin, "both are {child}");
                }
            }
            // A user may take the name that an id gets: Deploy answers ALREADY_EXISTS.
            if origin != "user"
                && let Some(other) = classes.insert(name.clone(), origin.clone())
            {
                assert_eq!(other, origin, "both are {name}");
            }
        }
    }

    proptest! {
        #[test]
        fn labels_are_valid_for_any_text(text in "\\PC{0,300}") {
            let label = label(&text);
            let edge = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
            prop_assert!(label.len() <= 63 && edge(label.chars().next()) && edge(label.chars().last()));
            let allowed = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
            prop_assert!(label.chars().all(allowed), "{label}");
        }

        #[test]
        fn names_are_valid_for_any_id_and_key(id in "\\PC{0,300}", key in "\\PC{0,300}") {
            for id in [id.clone(), unit_id(&id, &key, &id, "x"), unit_id(&key, &id, "", "x")] {
                let base = base(&class_runtime(&id));
                prop_assert!(is_valid(&base) && base.len() <= CLASS_MAX);
                for key in [None, Some(key.as_str())] {
                    prop_assert!(is_valid(&function(&base, key)));
                    let knative = knative(&base, key);
                    prop_assert!(is_valid(&knative) && knative.len() <= KNATIVE_MAX);
                    prop_assert!(is_valid(&job(&base, key, i64::MAX)));
                }
                prop_assert!(is_valid(&odgm_peers(&base)));
            }
        }
    }
}
