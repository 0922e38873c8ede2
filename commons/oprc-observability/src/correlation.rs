//! Correlation ids, which identify a request across programs.

/// 128 random bits in hex. Unique, but predictable: not fit for secrets.
pub fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Accepts an id of a client if it is safe for logs and annotations: 1 to 128 characters of visible
/// ASCII, without quotes and backslashes.
pub fn accept(raw: &str) -> Option<String> {
    let safe = |byte: u8| byte.is_ascii_graphic() && !b"\"'`\\".contains(&byte);
    ((1..=128).contains(&raw.len()) && raw.bytes().all(safe)).then(|| raw.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn new_ids_are_hex_and_differ() {
        let ids: HashSet<String> = (0..1000).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            assert_eq!(id.len(), 32);
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
            assert_eq!(accept(&id), Some(id));
        }
    }

    #[test]
    fn accepts_only_safe_ids() {
        let longest = "x".repeat(128);
        for id in ["a", "req-1/2:3=4", "{}!~", &longest] {
            assert_eq!(accept(id).as_deref(), Some(id));
        }
        let too_long = "x".repeat(129);
        for id in ["", " ", "a b", "a\tb", "a\nb", "\"", "'", "`", "\\", "é", "\u{7f}", &too_long]
        {
            assert_eq!(accept(id), None, "{id:?}");
        }
    }
}
