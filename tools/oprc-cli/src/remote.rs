//! Which package manager a command speaks to.

use std::{env, fs, path::PathBuf, time::Duration};

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
    /// The context to use; where left out `OPRC_CONTEXT`, or the current one (see `oprc context`).
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where the package manager answers, whatever the context says, whose token and certificates
    /// are then left out (`OPRC_SERVER`).
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A file with the token to show (`OPRC_TOKEN_FILE`, unless --server or --context is said).
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A file with the certificates that the server's must be signed by (`OPRC_CA`, likewise).
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// How long one answer may take.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = age::parse)]
    pub(crate) request_timeout: Duration,
}

impl Remote {
    /// How it is spoken to, all being said.
    pub(crate) fn settle(&self) -> Result<Context> {
        let contexts = Contexts::load(&Contexts::path()?)?;
        self.settle_with(&contexts, |name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// What is said on the command line counts, not what a variable says of another server: nothing
    /// goes to one that wasn't meant, and no token of one to another.
    fn settle_with(
        &self,
        contexts: &Contexts,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Context> {
        let said = self.context.is_some() || self.server.is_some();
        let unsaid = |name: &str| if said { None } else { variable(name) };
        let name = self.context.clone().or_else(|| unsaid("OPRC_CONTEXT"));
        let server = self.server.clone().or_else(|| unsaid("OPRC_SERVER"));
        let mut context = match (name, server) {
            (None, Some(server)) => Context { server, ..Context::default() },
            (name, server) => {
                let mut context = contexts.choose(name.as_deref())?;
                // What is shown to the context's own server isn't shown to another.
                if let Some(server) = server {
                    let clusters = context.clusters;
                    context = Context { server, clusters, ..Context::default() };
                }
                context
            }
        };
        let file = |name: &str| unsaid(name).map(PathBuf::from);
        let token = self.token_file.clone().or_else(|| file("OPRC_TOKEN_FILE"));
        context.token_file = token.or(context.token_file);
        context.ca = self.ca.clone().or_else(|| file("OPRC_CA")).or(context.ca);
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
        if let Some(tunnel) = &context.tunnel {
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
    use crate::contexts::Tunnel;

    #[test]
    fn what_is_said_counts_more_than_variables() {
        let context = |server: &str| Context {
            server: server.to_owned(),
            token_file: Some(server.into()),
            ..Context::default()
        };
        let contexts = Contexts {
            current: Some("dev".to_owned()),
            contexts: [("dev", "http://dev"), ("stage", "http://stage")]
                .map(|(name, server)| (name.to_owned(), context(server)))
                .into(),
        };
        let variable = |name: &str| match name {
            "OPRC_SERVER" => Some("http://prod".to_owned()),
            "OPRC_TOKEN_FILE" => Some("prod-token".to_owned()),
            "OPRC_CA" => Some("prod-ca".to_owned()),
            _ => None,
        };
        let settle = |remote: Remote| remote.settle_with(&contexts, variable).unwrap();
        let said = settle(Remote::of_context("stage"));
        assert_eq!(
            (said.server.as_str(), said.token_file),
            ("http://stage", Some("http://stage".into()))
        );
        let said = settle(Remote { context: None, ..Remote::of_context("") });
        assert_eq!(
            (said.server.as_str(), said.token_file),
            ("http://prod", Some("prod-token".into()))
        );
        let server = Some("http://other".to_owned());
        let said = settle(Remote { context: None, server, ..Remote::of_context("") });
        assert_eq!(
            (said.server.as_str(), said.token_file, said.ca),
            ("http://other", None, None),
            "what belongs to another server stays here"
        );
    }

    #[test]
    fn what_a_context_shows_its_server_is_shown_to_no_other() {
        let prod = Context {
            server: "https://prod".to_owned(),
            tunnel: Some(Tunnel::default()),
            token_file: Some("prod-token".into()),
            ca: Some("prod-ca".into()),
            ..Context::default()
        };
        let contexts = Contexts { current: None, contexts: [("prod".to_owned(), prod)].into() };
        let other = || Some("http://other".to_owned());
        let plain = Context { server: "http://other".to_owned(), ..Context::default() };
        let variable = |name: &str| match name {
            "OPRC_CONTEXT" => Some("prod".to_owned()),
            "OPRC_SERVER" => other(),
            _ => None,
        };
        let nothing = Remote { context: None, ..Remote::of_context("") };
        assert_eq!(nothing.settle_with(&contexts, variable).unwrap(), plain);
        let said = Remote { server: other(), ..Remote::of_context("prod") };
        assert_eq!(said.settle_with(&contexts, |_| None).unwrap(), plain);
        // What is given beside the server is meant for it.
        let variable = |name: &str| match name {
            "OPRC_TOKEN_FILE" => Some("other-token".to_owned()),
            "OPRC_CA" => Some("other-ca".to_owned()),
            name => variable(name),
        };
        let given = nothing.settle_with(&contexts, variable).unwrap();
        let files = (Some("other-token".into()), Some("other-ca".into()));
        assert_eq!((given.token_file, given.ca), files);
        let said = Remote { token_file: Some("mine".into()), ..said };
        assert_eq!(said.settle_with(&contexts, |_| None).unwrap().token_file, Some("mine".into()));
    }

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
