//! The state that a command gets: as text, from a file, or from standard input.

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use serde_json::{Map, Value};

use crate::{error::CliError, files, grid::json_object};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct InputArgs {
    /// Keys and values as JSON.
    #[arg(long, short, value_name = "JSON", conflicts_with = "file")]
    data: Option<String>,
    /// File with keys and values as JSON; `-` for standard input [default: standard input].
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl InputArgs {
    pub(super) fn read(&self) -> Result<Map<String, Value>> {
        if let Some(text) = &self.data {
            return Ok(json_object(text, "--data")?);
        }
        let Some(file) = &self.file else {
            if std::io::stdin().is_terminal() {
                let message =
                    "the state is missing; give it with --data, --file or on standard input";
                bail!(CliError::InvalidInput(message.to_owned()));
            }
            return Ok(json_object(&files::read(Path::new("-"))?, "standard input")?);
        };
        Ok(json_object(&files::read(file)?, &file.display().to_string())?)
    }
}
