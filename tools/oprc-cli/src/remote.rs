//! Which package manager a command speaks to.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Args;

use crate::{
    client::Client,
    contexts::{Context, Contexts},
    failure::Failure,
    output::age,
    tunnel,
};

/// How long one answer may take where nothing is said.
const ANSWER: Duration = Duration::from_secs(15);
/// A token is a line, not a file of any size.
const MAX_TOKEN: u64 = 16 << 10;

/// Which package manager.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Remote {
    /// The context to use, the current one where left out (see `oprc context`).
    #[arg(long, value_name = "NAME", env = "OPRC_CONTEXT")]
    pub(crate) context: Option<String>,
    /// Where the package manager answers, whatever the context says.
    #[arg(long, value_name = "URL", env = "OPRC_SERVER")]
    pub(crate) server: Option<String>,
    /// A file with the token to show.
    #[arg(long, value_name = "FILE", env = "OPRC_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A file with the certificates that the server's must be signed by.
    #[arg(long, value_name = "FILE", env = "OPRC_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// How long one answer may take.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = age::parse)]
    pub(crate) request_timeout: Duration,
}

impl Remote {
    /// How it is spoken to, all being said.
    pub(crate) fn settle(&self) -> Result<Context> {
        let contexts = Contexts::load(&Contexts::path()?)?;
        let mut context = match (&self.context, &self.server) {
            // The token of one server isn't for another one.
            (None, Some(server)) => Context { server: server.clone(), ..Context::default() },
            (name, server) => {
                let mut context = contexts.choose(name.as_deref())?;
                context.server = server.clone().unwrap_or(context.server);
                context
            }
        };
        context.token_file = self.token_file.clone().or(context.token_file);
        context.ca = self.ca.clone().or(context.ca);
        Ok(context)
    }

    /// That of a context, whatever else is said.
    pub(crate) fn of_context(name: &str) -> Self {
        Self {
            context: Some(name.to_owned()),
            server: None,
            token_file: None,
            ca: None,
            request_timeout: ANSWER,
        }
    }

    /// A client for it.
    pub(crate) async fn client(&self) -> Result<Client> {
        let mut context = self.settle()?;
        if let (Some(tunnel), None) = (&context.tunnel, &self.server) {
            context.server = tunnel::open(tunnel).await?;
        }
        let token = context.token_file.as_ref().map(read_token).transpose()?;
        Client::new(&context.server, token, context.ca.as_deref(), self.request_timeout)
    }
}

fn read_token(path: &PathBuf) -> Result<String, Failure> {
    let wrong = |why: &str| Failure::Wrong(format!("token file {}: {why}", path.display()));
    let size = fs::metadata(path).map_err(|error| wrong(&error.to_string()))?.len();
    if size > MAX_TOKEN {
        return Err(wrong("is too large for a token"));
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    let token = text.trim();
    if token.is_empty() || token.chars().any(|it| it.is_whitespace() || it.is_control()) {
        return Err(wrong("is to hold one token and nothing else"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_one_word() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "abc\n").unwrap();
        assert_eq!(read_token(&path).unwrap(), "abc");
        fs::write(&path, "name abc\n").unwrap();
        let told = read_token(&path).unwrap_err().to_string();
        // What is in the file isn't told.
        assert!(told.contains("one token") && !told.contains("abc"), "{told}");
        fs::write(&path, "").unwrap();
        assert!(read_token(&path).is_err());
    }
}
