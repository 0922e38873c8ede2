//! Colors and sanitizing. Text is always colored; `anstream` strips the colors if the stream is no
//! terminal, or for `NO_COLOR` and `TERM=dumb`.

use std::fmt::Write as _;

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals only.
    #[default]
    Auto,
    Always,
    Never,
}

/// Applies to the whole process.
pub(crate) fn set_color(color: Color) {
    match color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    /// In progress, or a warning.
    Fair,
    Bad,
    Faint,
}

pub(crate) fn paint(tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Good => 32,
        Tone::Fair => 33,
        Tone::Bad => 31,
        Tone::Faint => 2,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

pub(crate) fn tone_of(condition: &str) -> Tone {
    match condition {
        "RUNNING" | "HEALTHY" | "ACTIVE" | "Available" | "met" => Tone::Good,
        "DOWN" | "UNREACHABLE" | "FAILED" | "ROLLED_BACK" | "Degraded" | "violated" => Tone::Bad,
        "DELETED" => Tone::Faint,
        _ => Tone::Fair,
    }
}

/// Replaces line breaks and escapes control characters, which could control the terminal.
pub(crate) fn sanitize(text: &str) -> String {
    let mut sanitized = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => sanitized.push(' '),
            letter if letter.is_control() => {
                let _ = write!(sanitized, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => sanitized.push(letter),
        }
    }
    sanitized
}

/// Like [`sanitize`], but keeps line breaks.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.split('\n').map(sanitize).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_control_characters() {
        assert_eq!(sanitize("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb c");
        assert_eq!(sanitize("Zähler 計"), "Zähler 計");
        assert_eq!(sanitize_lines("a\x1b[2Jb\n\u{9b}c\n"), "a\\u{1b}[2Jb\n\\u{9b}c\n");
    }

    #[test]
    fn conditions_have_tones() {
        assert_eq!(tone_of("RUNNING"), Tone::Good);
        assert_eq!(tone_of("PARTIAL"), Tone::Fair);
        assert_eq!(tone_of("DOWN"), Tone::Bad);
    }
}
