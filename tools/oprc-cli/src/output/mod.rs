//! Output of commands: tables for people, JSON and YAML for programs. Results go to standard output,
//! progress and messages to standard error.

mod color;
pub(crate) mod duration;
mod progress;
mod redact;
mod table;
mod tree;

use std::{
    fmt::Write as _,
    io::{IsTerminal as _, Write as _},
};

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::error::{CliError, StdoutError, is_closed_pipe};

pub(crate) use self::{
    color::{Color, Tone, paint, sanitize, sanitize_lines, set_color, tone_of},
    progress::step,
    redact::redact,
    table::Table,
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
    pub(crate) fn reject_formats(&self, formats: &[Format]) -> Result<(), CliError> {
        if self.no_headers {
            return Err(CliError::InvalidInput(
                "--no-headers applies to tables only; this output is not a table".to_owned(),
            ));
        }
        match self.output.to_possible_value() {
            Some(value) if formats.contains(&self.output) => {
                let name = value.get_name();
                Err(CliError::InvalidInput(format!(
                    "output format {name:?} is not supported by this command"
                )))
            }
            _ => Ok(()),
        }
    }

    fn text<T: Serialize>(&self, value: &T) -> Result<String> {
        match self.output {
            Format::Yaml => Ok(serde_saphyr::to_string(value)?),
            _ => Ok(escape_control_characters(&serde_json::to_string_pretty(value)?) + "\n"),
        }
    }

    /// Prints a list: `table` renders it for people, `name` is the name of an item.
    pub(crate) fn list<T: Serialize>(
        &self,
        items: &[T],
        name: impl Fn(&T) -> String,
        table: impl FnOnce(bool) -> Table,
    ) -> Result<()> {
        match self.output {
            Format::Json | Format::Yaml => self.document(&items),
            Format::Name => {
                print(&items.iter().map(|item| sanitize(&name(item)) + "\n").collect::<String>())
            }
            Format::Table | Format::Wide => {
                let table = table(self.output == Format::Wide);
                if items.is_empty() && std::io::stderr().is_terminal() {
                    note("No resources found.");
                }
                print(&table.render(!self.no_headers))
            }
        }
    }

    /// Prints one object: `text` renders it for people, `name` is its name or names.
    pub(crate) fn one<T: Serialize>(
        &self,
        item: &T,
        name: impl FnOnce(&T) -> String,
        text: impl FnOnce(&T, bool) -> String,
    ) -> Result<()> {
        match self.output {
            Format::Json | Format::Yaml => self.document(item),
            Format::Name => print(&(sanitize_lines(&name(item)) + "\n")),
            Format::Table | Format::Wide => print(&text(item, self.output == Format::Wide)),
        }
    }

    pub(crate) fn document<T: Serialize>(&self, value: &T) -> Result<()> {
        print(&self.text(value)?)
    }

    /// Like [`Self::one`], for commands whose exit code carries the result: a closed pipe must not
    /// change it.
    pub(crate) fn print_result<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        let text = if self.is_document() { self.text(value)? } else { text(value) };
        match print(&text) {
            Err(error) if is_closed_pipe(&error) => Ok(()),
            printed => printed,
        }
    }

    /// Prints an item of a stream: one JSON document per line, or YAML documents.
    pub(crate) fn print_item<T: Serialize>(
        &self,
        value: &T,
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

pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(StdoutError)?;
    Ok(())
}

/// Prints without sanitizing.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(StdoutError)?;
    Ok(())
}

/// Prints a line to standard error; failures are ignored.
pub(crate) fn note(text: &str) {
    let mut out = anstream::stderr().lock();
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

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
