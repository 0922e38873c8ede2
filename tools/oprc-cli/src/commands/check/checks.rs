//! The results of checks, and how they are printed.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

use crate::output::{Tone, paint, sanitize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Success,
    Warning,
    Error,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    group: String,
    pub(super) description: String,
    pub(super) result: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) hint: String,
}

#[derive(Debug, Default)]
pub(super) struct Checks {
    /// Group of the next checks.
    pub(super) group: String,
    pub(super) all: Vec<Check>,
}

impl Checks {
    pub(super) fn push(
        &mut self,
        result: Outcome,
        description: impl Into<String>,
        message: &str,
        hint: &str,
    ) {
        self.all.push(Check {
            group: self.group.clone(),
            description: description.into(),
            result,
            message: message.trim().to_owned(),
            hint: hint.to_owned(),
        });
    }

    /// Adds `passed`, or `failed` with the severity, message and hint.
    pub(super) fn expect(
        &mut self,
        passes: bool,
        severity: Outcome,
        (passed, failed): (impl Into<String>, impl Into<String>),
        message: &str,
        hint: &str,
    ) {
        if passes {
            self.push(Outcome::Success, passed, "", "");
        } else {
            self.push(severity, failed, message, hint);
        }
    }

    /// Adds an error if the result is one.
    pub(super) fn require<T>(
        &mut self,
        texts: (impl Into<String>, impl Into<String>),
        result: Result<T>,
        hint: &str,
    ) -> Option<T> {
        let message = result.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
        // The hint of the check replaces that of the error.
        let message = message.split("\nhint:").next().unwrap_or_default();
        self.expect(result.is_ok(), Outcome::Error, texts, message, hint);
        result.ok()
    }

    pub(super) fn failed(&self) -> usize {
        self.all.iter().filter(|check| check.result == Outcome::Error).count()
    }
}

pub(super) fn render(checks: &[Check]) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            let blank = if group.is_empty() { "" } else { "\n" };
            let title = sanitize(&check.group);
            let line = "-".repeat(title.chars().count());
            let _ = writeln!(text, "{blank}{title}\n{line}");
            group = &check.group;
        }
        let mark = match check.result {
            Outcome::Success => paint(Tone::Good, "√"),
            Outcome::Warning => paint(Tone::Fair, "‼"),
            Outcome::Error => paint(Tone::Bad, "×"),
        };
        let _ = writeln!(text, "{mark} {}", sanitize(&check.description));
        for (label, detail) in [("", &check.message), ("hint: ", &check.hint)] {
            if !detail.is_empty() {
                let _ = writeln!(text, "    {label}{}", sanitize(detail));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_checks_and_prints_hints() {
        let mut checks = Checks { group: "a".to_owned(), all: Vec::new() };
        assert!(checks.require(("one", "not one"), Ok(()), "do nothing").is_some());
        checks.push(Outcome::Warning, "two", "not quite", "do this");
        assert_eq!(checks.failed(), 0);
        checks.group = "bc".to_owned();
        let error: Result<()> = Err(anyhow::anyhow!("no\nhint: other"));
        assert!(checks.require(("3", "no 3"), error, "do that").is_none());
        assert_eq!(checks.failed(), 1);
        let plain = anstream::adapter::strip_str(&render(&checks.all)).to_string();
        assert_eq!(
            plain,
            "a\n-\n√ one\n‼ two\n    not quite\n    hint: do this\n\n\
             bc\n--\n× no 3\n    no\n    hint: do that\n"
        );
    }
}
