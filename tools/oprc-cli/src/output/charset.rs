//! Characters that the terminal can show.

use std::env;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charset {
    Unicode,
    Ascii,
}

impl Charset {
    /// By `LC_ALL`, `LC_CTYPE` and `LANG`, of which the first that is set counts, and `TERM`.
    pub(crate) fn of_environment() -> Self {
        Self::from_variables(|name| env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(&variable);
        let locale = locale.into_iter().find(|it| !it.is_empty()).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        let dumb = variable("TERM").is_some_and(|it| it == "dumb");
        if utf8 && !dumb { Self::Unicode } else { Self::Ascii }
    }

    pub(crate) fn arrow(self) -> &'static str {
        match self {
            Self::Unicode => "→",
            Self::Ascii => "->",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unicode_requires_a_utf8_locale_and_a_capable_terminal() {
        let charset = |variables: &[(&str, &str)]| {
            Charset::from_variables(|name| {
                let found = variables.iter().find(|(it, _)| *it == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(charset(&[("LANG", "en_US.UTF-8")]), Charset::Unicode);
        assert_eq!(charset(&[("LC_CTYPE", "C.utf8"), ("TERM", "xterm")]), Charset::Unicode);
        assert_eq!(charset(&[("LC_ALL", ""), ("LANG", "C.UTF-8")]), Charset::Unicode);
        assert_eq!(charset(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]), Charset::Ascii);
        assert_eq!(charset(&[("LANG", "en_US.UTF-8"), ("TERM", "dumb")]), Charset::Ascii);
        assert_eq!(charset(&[]), Charset::Ascii);
    }
}
