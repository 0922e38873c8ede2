//! Output of commands: tables for people, JSON and YAML for programs. Results go to standard output,
//! progress and messages to standard error.

mod charset;
mod color;
pub(crate) mod duration;
mod progress;
mod redact;
mod sparkline;
mod table;
mod tree;

use std::{
    fmt::Write as _,
    io::{IsTerminal as _, Write as _},
};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::error::{CliError, StdoutError, is_closed_pipe};

pub(crate) use self::{
    charset::Charset,
    color::{Color, Tone, paint, sanitize, sanitize_lines, set_color, tone_of},
    progress::step,
    redact::redact,
    sparkline::sparkline,
    table::{Column, table},
    tree::Tree,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable.
    #[default]
    Table,
    /// Table with additional columns.
    Wide,
    /// JSON as returned by the API.
    Json,
    /// YAML with the same fields.
    Yaml,
    /// One name per line.
    Name,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub(crate) output: Format,
    /// Don't print table headers.
    #[arg(long)]
    pub(crate) no_headers: bool,
}

impl OutputArgs {
    /// JSON or YAML.
    pub(crate) fn is_document(&self) -> bool {
        matches!(self.output, Format::Json | Format::Yaml)
    }

    /// Rejects formats that the command doesn't support, and --no-headers as it prints no table.
    pub(crate) fn reject_formats(&self, formats: &[Format]) -> Result<()> {
        let message = "--no-headers applies to tables only; this output is not a table";
        ensure!(!self.no_headers, CliError::InvalidInput(message.to_owned()));
        match self.output.to_possible_value() {
            Some(value) if formats.contains(&self.output) => {
                let name = value.get_name();
                let message = format!("output format {name:?} is not supported by this command");
                bail!(CliError::InvalidInput(message))
            }
            _ => Ok(()),
        }
    }

    fn text(&self, value: &impl Serialize) -> Result<String> {
        match self.output {
            Format::Yaml => Ok(serde_saphyr::to_string(value)?),
            _ => Ok(escape_control_characters(&serde_json::to_string_pretty(value)?) + "\n"),
        }
    }

    /// Prints a list; `name` is the name of an item, and `wide` are columns of the wide format.
    pub(crate) fn list<T: Serialize>(
        &self,
        items: &[T],
        name: impl Fn(&T) -> String,
        columns: &[Column<T>],
        wide: &[Column<T>],
    ) -> Result<()> {
        let names: Vec<_> = items.iter().map(name).collect();
        self.one(&items, &names, |is_wide| {
            if items.is_empty() && std::io::stderr().is_terminal() {
                note("No resources found.");
            }
            let wide = if is_wide { wide } else { &[] };
            table(items, &[columns, wide].concat(), !self.no_headers)
        })
    }

    /// Prints a value: `text` renders it for people, and gets whether the format is wide.
    pub(crate) fn one(
        &self,
        value: &impl Serialize,
        names: &[impl AsRef<str>],
        text: impl FnOnce(bool) -> String,
    ) -> Result<()> {
        let names = names.iter().map(|name| sanitize(name.as_ref()) + "\n");
        match self.output {
            Format::Json | Format::Yaml => print(&self.text(value)?),
            Format::Name => print(&names.collect::<String>()),
            Format::Table | Format::Wide => print(&text(self.output == Format::Wide)),
        }
    }

    /// Like [`Self::one`], for commands whose exit code carries the result: a closed pipe must not
    /// change it.
    pub(crate) fn print_result(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let text = if self.is_document() { self.text(value)? } else { text() };
        match print(&text) {
            Err(error) if is_closed_pipe(&error) => Ok(()),
            printed => printed,
        }
    }

    /// Prints an item of a stream: one JSON document per line, or YAML documents.
    pub(crate) fn print_item(
        &self,
        value: &impl Serialize,
        line: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.output {
            Format::Json => {
                print(&(escape_control_characters(&serde_json::to_string(value)?) + "\n"))
            }
            Format::Yaml => print(&format!("---\n{}", serde_saphyr::to_string(value)?)),
            _ => print(&line()),
        }
    }
}

/// Escapes DEL and C1 control characters, which JSON allows in strings and terminals interpret.
fn escape_control_characters(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for letter in json.chars() {
        match u32::from(letter) {
            code @ 0x7f..=0x9f => {
                let _ = write!(escaped, "\\u{code:04x}");
            }
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// Joins the parts that aren't empty.
pub(crate) fn join_non_empty(parts: &[&str], separator: &str) -> String {
    let parts = parts.iter().copied().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(separator)
}

/// The serialized name of an enum value, such as `RUNNING`; empty for anything but a string.
pub(crate) fn api_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

pub(crate) fn print(text: &str) -> Result<()> {
    write(anstream::stdout().lock(), text.as_bytes())
}

/// Prints without sanitizing, and colors even if standard output is no terminal.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    write(std::io::stdout().lock(), bytes)
}

fn write(mut out: impl std::io::Write, bytes: &[u8]) -> Result<()> {
    Ok(out.write_all(bytes).and_then(|()| out.flush()).map_err(StdoutError)?)
}

/// Prints a line to standard error, sanitized; failures are ignored.
pub(crate) fn note(text: &str) {
    note_styled(&sanitize(text));
}

/// Like [`note`], for sanitized text with colors or line breaks.
pub(crate) fn note_styled(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use oprc_rest::DeploymentCondition;

    use super::*;

    #[test]
    fn names_are_spelled_as_in_the_api() {
        assert_eq!(api_name(&DeploymentCondition::RollingBack), "ROLLING_BACK");
    }

    #[test]
    fn documents_have_no_control_characters_and_keep_their_content() {
        let text = "a\u{9b}2J\u{1b}[2J\u{7f}ü";
        for output in [Format::Json, Format::Yaml] {
            let show = OutputArgs { output, no_headers: false };
            let printed = show.text(&[text]).unwrap();
            assert!(!printed.contains(|it: char| it.is_control() && it != '\n'), "{printed:?}");
            let read: Vec<String> = serde_saphyr::from_str(&printed).unwrap();
            assert_eq!(read, [text]);
        }
    }
}
