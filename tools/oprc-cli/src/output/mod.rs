//! What commands print: tables for people, documents for programs. Results go to standard output,
//! everything that is said about them to standard error.

pub(crate) mod age;
mod paint;
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

use crate::failure::{Failure, NotPrinted, is_closed_pipe};

pub(crate) use self::{
    paint::{Colour, Tone, clean, clean_lines, paint, set_colour, tone_of},
    redact::redact,
    table::Table,
    tree::Tree,
};

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// The same, with more columns.
    Wide,
    /// The API's own documents.
    Json,
    /// The same as YAML.
    Yaml,
    /// Names, one a line, for other commands.
    Name,
}

/// How results are shown.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Show {
    /// How results are printed.
    #[arg(long, short, value_enum, default_value_t)]
    pub(crate) output: Format,
    /// Leave out the first line of tables.
    #[arg(long)]
    pub(crate) no_headers: bool,
}

impl Show {
    /// Whether a program reads the result.
    pub(crate) fn is_document(&self) -> bool {
        matches!(self.output, Format::Json | Format::Yaml)
    }

    /// Refuses what a command has no use for: none of these formats, and no first line to leave out.
    pub(crate) fn refuse(&self, formats: &[Format]) -> Result<(), Failure> {
        if self.no_headers {
            let told = "--no-headers: what is printed has no first line to leave out";
            return Err(Failure::Wrong(told.to_owned()));
        }
        match self.output.to_possible_value() {
            Some(value) if formats.contains(&self.output) => {
                let name = value.get_name().to_owned();
                Err(Failure::Wrong(format!("-o {name}: this can't be printed so")))
            }
            _ => Ok(()),
        }
    }

    /// A document as text.
    fn text<T: Serialize>(&self, value: &T) -> Result<String> {
        match self.output {
            Format::Yaml => Ok(serde_saphyr::to_string(value)?),
            _ => Ok(escaped(&serde_json::to_string_pretty(value)?) + "\n"),
        }
    }

    /// Prints a list: `table` makes it one for people, `name` tells what each is called.
    pub(crate) fn list<T: Serialize>(
        &self,
        items: &[T],
        name: impl Fn(&T) -> String,
        table: impl FnOnce(bool) -> Table,
    ) -> Result<()> {
        match self.output {
            Format::Json | Format::Yaml => self.document(&items),
            Format::Name => {
                print(&items.iter().map(|item| clean(&name(item)) + "\n").collect::<String>())
            }
            Format::Table | Format::Wide => {
                let table = table(self.output == Format::Wide);
                if items.is_empty() && std::io::stderr().is_terminal() {
                    say("There are none.");
                }
                print(&table.render(!self.no_headers))
            }
        }
    }

    /// Prints one thing: `text` tells it to people, `name` what it or each part of it is called.
    pub(crate) fn one<T: Serialize>(
        &self,
        item: &T,
        name: impl FnOnce(&T) -> String,
        text: impl FnOnce(&T, bool) -> String,
    ) -> Result<()> {
        match self.output {
            Format::Json | Format::Yaml => self.document(item),
            Format::Name => print(&(clean_lines(&name(item)) + "\n")),
            Format::Table | Format::Wide => print(&text(item, self.output == Format::Wide)),
        }
    }

    /// Prints something as it is.
    pub(crate) fn document<T: Serialize>(&self, value: &T) -> Result<()> {
        print(&self.text(value)?)
    }

    /// Prints one of two: a document for programs, a text for people. The exit code stays what it
    /// is, whoever stopped reading.
    pub(crate) fn beside_code<T: Serialize>(
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

    /// Prints one of many things that come one by one: JSON line by line, YAML by documents.
    pub(crate) fn next<T: Serialize>(
        &self,
        value: &T,
        line: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.output {
            Format::Json => print(&(escaped(&serde_json::to_string(value)?) + "\n")),
            Format::Yaml => print(&format!("---\n{}", serde_saphyr::to_string(value)?)),
            _ => print(&line()),
        }
    }
}

/// JSON whose texts steer no terminal: it leaves some control characters as they are, which only
/// stand within texts, and mean the same as they are written here.
fn escaped(json: &str) -> String {
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

/// Prints a result.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(NotPrinted)?;
    Ok(())
}

/// Prints a result just as it is, whatever it holds.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(NotPrinted)?;
    Ok(())
}

/// Says something about a result. That nobody listens is no reason to stop.
pub(crate) fn say(text: &str) {
    let mut out = anstream::stderr().lock();
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_steer_no_terminal_and_stay_what_they_are() {
        let text = "a\u{9b}2J\u{1b}[2J\u{7f}ü";
        for output in [Format::Json, Format::Yaml] {
            let show = Show { output, no_headers: false };
            let told = show.text(&[text]).unwrap();
            assert!(!told.contains(|it: char| it.is_control() && it != '\n'), "{told:?}");
            let read: Vec<String> = serde_saphyr::from_str(&told).unwrap();
            assert_eq!(read, [text]);
        }
    }
}
