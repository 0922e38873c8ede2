//! Names: their spelling, and what was probably meant.

/// A dotted path in snake_case, from camelCase; what is snake_case already stays.
pub(crate) fn snake(path: &str) -> String {
    let mut snake = String::with_capacity(path.len() + 4);
    let mut previous = '.';
    let mut rest = path.chars().peekable();
    while let Some(c) = rest.next() {
        // In "odgmURLPath" words begin at U (after a small letter) and at P (before one).
        let begins = previous.is_ascii_lowercase()
            || previous.is_ascii_digit()
            || (previous.is_ascii_uppercase() && rest.peek().is_some_and(char::is_ascii_lowercase));
        if c.is_ascii_uppercase() && begins {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
        previous = c;
    }
    snake
}

/// Which of the candidates was probably meant: the nearest, at most two edits away.
pub(crate) fn nearest<S: AsRef<str>>(
    name: &str,
    candidates: impl IntoIterator<Item = S>,
) -> Option<S> {
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate.as_ref()), candidate))
        .filter(|(distance, _)| *distance <= 2)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many characters must be added, dropped or replaced (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (line, a) in from.chars().enumerate() {
        let mut left = line + 1;
        let mut row = vec![left];
        for ((b, diagonal), up) in to.iter().zip(&above).zip(above.iter().skip(1)) {
            left = (diagonal + usize::from(a != *b)).min(up + 1).min(left + 1);
            row.push(left);
        }
        above = row;
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_becomes_snake_case() {
        for (camel, expected) in [
            ("features.odgm", "features.odgm"),
            ("performance.deploymentTimeout", "performance.deployment_timeout"),
            ("odgmURLPath", "odgm_url_path"),
            ("HTTPPort", "http_port"),
            ("p99Millis", "p99_millis"),
            ("already_snake", "already_snake"),
        ] {
            assert_eq!(snake(camel), expected);
        }
    }

    #[test]
    fn distances() {
        for (from, to, expected) in
            [("", "", 0), ("", "ab", 2), ("odmg", "odgm", 2), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
        assert_eq!(nearest("odg", ["other", "odgm"]), Some("odgm"));
        assert_eq!(nearest("prometheus", ["other", "odgm"]), None);
    }
}
