//! Names: their spelling, what may be one, and what was probably meant.

/// camelCase, from snake_case; what is camelCase already stays.
pub(crate) fn camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut raise = false;
    for letter in name.chars() {
        if letter == '_' && !camel.is_empty() {
            raise = true;
        } else if raise {
            camel.push(letter.to_ascii_uppercase());
            raise = false;
        } else {
            camel.push(letter);
        }
    }
    camel
}

/// Which of the candidates was probably meant: the nearest, at most two edits away, or a third of
/// a short name.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Nobody means a field by a name of that length.
    let length = name.chars().count();
    if length > 64 {
        return None;
    }
    let most = if length < 4 { 1 } else { 2 };
    let name = name.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&name, &candidate.to_ascii_lowercase()), candidate))
        .filter(|&(distance, _)| distance <= most)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// How many characters must be added, dropped, replaced or exchanged with the next.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before: Option<(char, Vec<usize>)> = None;
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (line, a) in from.chars().enumerate() {
        let mut left = line + 1;
        let mut row = vec![left];
        for (at, ((&b, diagonal), up)) in
            to.iter().zip(&above).zip(above.iter().skip(1)).enumerate()
        {
            let mut least = (diagonal + usize::from(a != b)).min(up + 1).min(left + 1);
            let crossed =
                at.checked_sub(1).and_then(|at| Some((to.get(at)?, before.as_ref()?, at)));
            if let Some((&b_before, (a_before, rows), at)) = crossed
                && a == b_before
                && b == *a_before
            {
                least = least.min(rows.get(at).map_or(least, |cost| cost + 1));
            }
            left = least;
            row.push(left);
        }
        before = Some((a, std::mem::replace(&mut above, row)));
    }
    above.last().copied().unwrap_or_default()
}

/// What a name is for, and so what it may be made of. Lengths are such that the id of a unit, which
/// is made of a deployment, a class, an environment and a cluster, has no more than 253 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A package: parts with dots between, as in DNS.
    Package,
    /// A deployment.
    Deployment,
    /// An environment.
    Environment,
    /// A cluster.
    Cluster,
    /// A function. References put a package before it, with a dot between.
    Function,
    /// A class, a binding, a key of the state, a reference or a step.
    Word,
}

impl Name {
    const fn longest(self) -> usize {
        match self {
            Self::Deployment => 50,
            _ => 63,
        }
    }

    const fn allowed(self) -> &'static str {
        match self {
            Self::Package => "small letters, digits, dashes, and dots between parts",
            Self::Deployment | Self::Environment => "small letters, digits and dashes",
            Self::Cluster => "letters, digits, dashes, underscores and dots",
            Self::Function => "letters, digits and dashes, a letter first",
            Self::Word => "letters, digits, dashes and underscores, a letter first",
        }
    }

    fn fits(self, name: &str) -> bool {
        let all = |allowed: fn(u8) -> bool| name.bytes().all(allowed);
        let ends = |name: &str| {
            let end = |letter: Option<&u8>| letter.is_some_and(u8::is_ascii_alphanumeric);
            end(name.as_bytes().first()) && end(name.as_bytes().last())
        };
        let small = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        let letter_first = name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
        ends(name)
            && match self {
                Self::Package => name.split('.').all(|part| ends(part) && part.bytes().all(small)),
                Self::Deployment | Self::Environment => name.bytes().all(small),
                Self::Cluster => all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(&it)),
                Self::Function => {
                    letter_first && all(|it| it.is_ascii_alphanumeric() || it == b'-')
                }
                Self::Word => {
                    letter_first && all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it))
                }
            }
    }

    /// What is wrong with a name.
    pub(crate) fn fault(self, name: &str) -> Option<String> {
        if name.is_empty() {
            return Some("must not be empty".to_owned());
        }
        if name.len() > self.longest() {
            return Some(format!(
                "{} has {} characters, and {} are allowed",
                shown(name),
                name.chars().count(),
                self.longest()
            ));
        }
        (!self.fits(name)).then(|| format!("{} is no name: {}", shown(name), self.allowed()))
    }
}

/// Splits `package.key` at its last dot; a bare key has no package.
pub(crate) fn split(reference: &str) -> (Option<&str>, &str) {
    match reference.rsplit_once('.') {
        Some((package, key)) => (Some(package), key),
        None => (None, reference),
    }
}

/// A text as messages show it: quoted, and no longer than a line.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 40;
    let mut letters = text.chars();
    let head: String = letters.by_ref().take(MOST).collect();
    if letters.next().is_some() { format!("{head:?}…") } else { format!("{head:?}") }
}

/// A way from one to the next as messages show it, which leaves out the middle of a long one.
pub(crate) fn way<S: AsRef<str>>(stations: &[S]) -> String {
    const ENDS: usize = 5;
    let some: Vec<&str> = match stations.len() {
        0..12 => stations.iter().map(AsRef::as_ref).collect(),
        count => {
            let head = stations.iter().take(ENDS).map(AsRef::as_ref);
            head.chain(["…"]).chain(stations.iter().skip(count - ENDS).map(AsRef::as_ref)).collect()
        }
    };
    some.join(" → ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snake_case_becomes_camel_case() {
        for (name, expected) in
            [("target_envs", "targetEnvs"), ("targetEnvs", "targetEnvs"), ("_key", "_key")]
        {
            assert_eq!(camel(name), expected);
        }
    }

    #[test]
    fn what_was_meant() {
        assert_eq!(nearest("functons", ["classes", "functions"]), Some("functions"));
        assert_eq!(nearest("Functions", ["classes", "functions"]), Some("functions"));
        assert_eq!(nearest("byu", ["sell", "buy"]), Some("buy"));
        assert_eq!(nearest("xyz", ["key", "name"]), None);
        let expected = [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("kitten", "sitting", 3)];
        for (from, to, expected) in expected {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
        assert_eq!(nearest(&"x".repeat(1000), ["key"]), None);
    }

    #[test]
    fn names_are_such_that_units_have_ids() {
        let longest = [Name::Deployment, Name::Word, Name::Environment, Name::Cluster];
        assert!(longest.iter().map(|name| name.longest() + 1).sum::<usize>() <= 253);
        for (kind, good, bad) in [
            (Name::Package, "org.example.shop-2", "Shop"),
            (Name::Package, "a", "a..b"),
            (Name::Function, "resize-2", "re_size"),
            (Name::Word, "re_size", "2nd"),
            (Name::Deployment, "prod", "prod-"),
            (Name::Cluster, "EU_1.west", "-x"),
            (Name::Environment, "dev", "Dev"),
        ] {
            assert_eq!(kind.fault(good), None);
            assert!(kind.fault(bad).is_some(), "{bad}");
            assert!(kind.fault(&"x".repeat(64)).is_some());
            assert!(kind.fault("").is_some());
        }
    }

    #[test]
    fn references() {
        assert_eq!(split("area"), (None, "area"));
        assert_eq!(split("org.shapes.area"), (Some("org.shapes"), "area"));
    }
}
