//! Label selectors such as `team=geometry,tier`, as Kubernetes writes them.

/// A label that is selected, with one value or with any.
pub type LabelRequirement = (String, Option<String>);

/// Parses `key`, `key=value` and `key==value`, separated by commas; all of them must hold.
///
/// # Errors
/// The part that is none of these.
pub fn parse_label_selector(selector: &str) -> Result<Vec<LabelRequirement>, String> {
    let requirement = |part: &str| {
        let (key, value) = match part.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.strip_prefix('=').unwrap_or(value))),
            None => (part, None),
        };
        if key.is_empty() || key.ends_with('!') {
            return Err(part.to_owned());
        }
        Ok((key.to_owned(), value.map(|value| value.trim().to_owned())))
    };
    selector.split(',').map(str::trim).filter(|part| !part.is_empty()).map(requirement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_equality_and_existence() {
        let parsed = parse_label_selector("team = x, tier==1,,any,").unwrap();
        let expected = [("team", Some("x")), ("tier", Some("1")), ("any", None)];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
        assert_eq!(parsed, expected);
        assert_eq!(parse_label_selector(""), Ok(Vec::new()));
        for (selector, part) in [("=x", "=x"), ("a,b!=c", "b!=c")] {
            assert_eq!(parse_label_selector(selector), Err(part.to_owned()));
        }
    }
}
