//! Spelling of names.

/// Names that differ by more edits aren't suggested.
const MAX_DISTANCE: usize = 2;

/// Converts a dotted path from camelCase to snake_case.
pub(crate) fn snake(path: &str) -> String {
    let mut snake = String::with_capacity(path.len() + 4);
    let mut previous = '.';
    let mut rest = path.chars().peekable();
    while let Some(c) = rest.next() {
        // In "odgmURLPath" words start at U (after a lower-case letter) and at P (before one).
        let starts_word = previous.is_ascii_lowercase()
            || previous.is_ascii_digit()
            || (previous.is_ascii_uppercase() && rest.peek().is_some_and(char::is_ascii_lowercase));
        if c.is_ascii_uppercase() && starts_word {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
        previous = c;
    }
    snake
}

/// The most similar candidate, at most [`MAX_DISTANCE`] edits away.
pub(crate) fn nearest<S: AsRef<str>>(
    name: &str,
    candidates: impl IntoIterator<Item = S>,
) -> Option<S> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::levenshtein(name, candidate.as_ref()), candidate))
        .filter(|(distance, _)| *distance <= MAX_DISTANCE)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
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
    fn suggests_names_at_most_two_edits_away() {
        assert_eq!(nearest("odg", ["other", "odgm"]), Some("odgm"));
        assert_eq!(nearest("odmg", ["other", "odgm"]), Some("odgm"));
        assert_eq!(nearest("kitten", ["sitting"]), None);
        assert_eq!(nearest("prometheus", ["other", "odgm"]), None);
    }
}
