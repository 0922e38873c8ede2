//! Colours. What is written is painted; the stream takes the colours out again where there is no
//! terminal, or where `NO_COLOR` or `TERM=dumb` says so.

use std::fmt::Write as _;

use clap::ValueEnum;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On terminals.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// Settles it for the whole process.
pub(crate) fn set_colour(colour: Colour) {
    match colour {
        Colour::Auto => {}
        Colour::Always => anstream::ColorChoice::Always.write_global(),
        Colour::Never => anstream::ColorChoice::Never.write_global(),
    }
}

/// What a word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// On its way, or not quite as it should be.
    Fair,
    /// Not as it should be.
    Bad,
    /// Beside the point.
    Faint,
}

/// Paints a text.
pub(crate) fn paint(tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Good => 32,
        Tone::Fair => 33,
        Tone::Bad => 31,
        Tone::Faint => 2,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// What a condition means.
pub(crate) fn tone_of(condition: &str) -> Tone {
    match condition {
        "RUNNING" | "HEALTHY" | "ACTIVE" | "Available" => Tone::Good,
        "DOWN" | "UNREACHABLE" | "FAILED" | "ROLLED_BACK" | "Degraded" => Tone::Bad,
        "DELETED" => Tone::Faint,
        _ => Tone::Fair,
    }
}

/// A text of others without anything that could steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => cleaned.push(' '),
            letter if letter.is_control() => {
                let _ = write!(cleaned, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => cleaned.push(letter),
        }
    }
    cleaned
}

/// The same, line by line.
pub(crate) fn clean_lines(text: &str) -> String {
    text.split('\n').map(clean).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_steers_no_terminal() {
        assert_eq!(clean("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb c");
        assert_eq!(clean("Zähler 計"), "Zähler 計");
        assert_eq!(clean_lines("a\x1b[2Jb\n\u{9b}c\n"), "a\\u{1b}[2Jb\n\\u{9b}c\n");
    }

    #[test]
    fn conditions_have_tones() {
        assert_eq!(tone_of("RUNNING"), Tone::Good);
        assert_eq!(tone_of("PARTIAL"), Tone::Fair);
        assert_eq!(tone_of("DOWN"), Tone::Bad);
    }
}
