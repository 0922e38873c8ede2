//! Names: rules, references, spelling suggestions, and how messages show them.

/// Converts snake_case to camelCase; camelCase is returned unchanged.
pub(crate) fn to_camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut capitalize = false;
    for letter in name.chars() {
        if letter == '_' && !camel.is_empty() {
            capitalize = true;
        } else if capitalize {
            camel.push(letter.to_ascii_uppercase());
            capitalize = false;
        } else {
            camel.push(letter);
        }
    }
    camel
}

/// The candidate that was probably meant: at most two edits away, or one for names of up to three
/// characters.
pub(crate) fn closest_match<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Bounds the cost of the comparison; no field or key is that long.
    let length = name.chars().count();
    if length > 64 {
        return None;
    }
    let max_edits = if length < 4 { 1 } else { 2 };
    let name = name.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&name, &candidate.to_ascii_lowercase()), candidate))
        .filter(|&(distance, _)| distance <= max_edits)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// What a name is used for, which determines the characters and the length allowed. A unit id joins
/// the names of a deployment, a class, an environment and a cluster, and has at most 253 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// Dot-separated labels, as in DNS.
    Package,
    Deployment,
    Environment,
    Cluster,
    /// Has no dot, which separates package and function in references.
    Function,
    /// A class, a binding, a state key, a reference or a macro step.
    Identifier,
}

impl NameKind {
    const fn max_length(self) -> usize {
        match self {
            Self::Deployment => 50,
            _ => 63,
        }
    }

    const fn allowed(self) -> &'static str {
        match self {
            Self::Package => {
                "lower-case letters, digits and hyphens, in parts that are separated by dots and \
                 start and end with a letter or digit"
            }
            Self::Deployment | Self::Environment => {
                "lower-case letters, digits and hyphens, starting and ending with a letter or digit"
            }
            Self::Cluster => {
                "letters, digits, hyphens, underscores and dots, starting and ending with a letter \
                 or digit"
            }
            Self::Function => {
                "letters, digits and hyphens, starting with a letter and ending with a letter or \
                 digit"
            }
            Self::Identifier => {
                "letters, digits, hyphens and underscores, starting with a letter and ending with \
                 a letter or digit"
            }
        }
    }

    /// Whether a name of any length has only allowed characters.
    pub(crate) fn has_valid_form(self, name: &str) -> bool {
        let all = |allowed: fn(u8) -> bool| name.bytes().all(allowed);
        let ends = |name: &str| {
            let alphanumeric = |it: char| it.is_ascii_alphanumeric();
            name.starts_with(alphanumeric) && name.ends_with(alphanumeric)
        };
        let lower = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        let letter_first = name.starts_with(|it: char| it.is_ascii_alphabetic());
        ends(name)
            && match self {
                Self::Package => name.split('.').all(|part| ends(part) && part.bytes().all(lower)),
                Self::Deployment | Self::Environment => name.bytes().all(lower),
                Self::Cluster => all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(&it)),
                Self::Function => {
                    letter_first && all(|it| it.is_ascii_alphanumeric() || it == b'-')
                }
                Self::Identifier => {
                    letter_first && all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it))
                }
            }
    }

    /// Why a name is not allowed.
    pub(crate) fn violation(self, name: &str) -> Option<String> {
        if name.is_empty() {
            return Some("must not be empty".to_owned());
        }
        if name.len() > self.max_length() {
            return Some(format!(
                "{} has {} characters; at most {} are allowed",
                quote(name),
                name.chars().count(),
                self.max_length()
            ));
        }
        (!self.has_valid_form(name))
            .then(|| format!("{} is not a valid name; use {}", quote(name), self.allowed()))
    }
}

/// Splits `package.key` at its last dot; a bare key has no package.
pub fn split_reference(reference: &str) -> (Option<&str>, &str) {
    match reference.rsplit_once('.') {
        Some((package, key)) => (Some(package), key),
        None => (None, reference),
    }
}

/// Quotes user input for a message, truncated to 40 characters.
pub(crate) fn quote(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let mut letters = text.chars();
    let head: String = letters.by_ref().take(MAX_CHARS).collect();
    if letters.next().is_some() { format!("{head:?}…") } else { format!("{head:?}") }
}

/// Formats a path through a graph; the middle of a long path is omitted.
pub(crate) fn format_path<S: AsRef<str>>(nodes: &[S]) -> String {
    const ENDS: usize = 5;
    let some: Vec<&str> = match nodes.len() {
        0..12 => nodes.iter().map(AsRef::as_ref).collect(),
        count => {
            let head = nodes.iter().take(ENDS).map(AsRef::as_ref);
            head.chain(["…"]).chain(nodes.iter().skip(count - ENDS).map(AsRef::as_ref)).collect()
        }
    };
    some.join(" → ")
}

/// Removes the differences in spelling that `string_enums!` ignores.
pub(crate) fn normalize(text: &str) -> String {
    let kept = text.chars().filter(|letter| !matches!(letter, '_' | '-' | ' '));
    kept.map(|letter| letter.to_ascii_uppercase()).collect()
}

pub(crate) fn unknown_value<'a>(text: &str, allowed: impl IntoIterator<Item = &'a str>) -> String {
    let allowed: Vec<_> = allowed.into_iter().collect();
    format!("{} is not supported; allowed values: {}", quote(text), allowed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_snake_case_to_camel_case() {
        for (name, expected) in
            [("target_envs", "targetEnvs"), ("targetEnvs", "targetEnvs"), ("_key", "_key")]
        {
            assert_eq!(to_camel_case(name), expected);
        }
    }

    #[test]
    fn suggests_the_closest_candidate() {
        assert_eq!(closest_match("functons", ["classes", "functions"]), Some("functions"));
        assert_eq!(closest_match("Functions", ["classes", "functions"]), Some("functions"));
        // A transposition is one edit.
        assert_eq!(closest_match("byu", ["sell", "buy"]), Some("buy"));
        assert_eq!(closest_match("xyz", ["key", "name"]), None);
        assert_eq!(closest_match("kitten", ["sitting"]), None);
        assert_eq!(closest_match(&"x".repeat(1000), ["key"]), None);
    }

    #[test]
    fn unit_ids_made_of_valid_names_fit_their_limit() {
        let parts =
            [NameKind::Deployment, NameKind::Identifier, NameKind::Environment, NameKind::Cluster];
        assert!(parts.iter().map(|name| name.max_length() + 1).sum::<usize>() <= 253);
    }

    #[test]
    fn each_kind_of_name_has_its_own_rules() {
        for (kind, good, bad) in [
            (NameKind::Package, "org.example.shop-2", "Shop"),
            (NameKind::Package, "a", "a..b"),
            (NameKind::Function, "resize-2", "re_size"),
            (NameKind::Identifier, "re_size", "2nd"),
            (NameKind::Deployment, "prod", "prod-"),
            (NameKind::Cluster, "EU_1.west", "-x"),
            (NameKind::Environment, "dev", "Dev"),
        ] {
            assert_eq!(kind.violation(good), None);
            assert!(kind.violation(bad).is_some(), "{bad}");
            assert!(kind.violation(&"x".repeat(64)).is_some());
            assert!(kind.violation("").is_some());
        }
    }

    #[test]
    fn splits_references_at_the_last_dot() {
        assert_eq!(split_reference("area"), (None, "area"));
        assert_eq!(split_reference("org.shapes.area"), (Some("org.shapes"), "area"));
    }
}
