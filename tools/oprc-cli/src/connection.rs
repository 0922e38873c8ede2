//! The connection to a package manager, from options, environment and contexts.

use std::{env, fs, path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Args;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    client::Client,
    contexts::{Context, Contexts},
    error::CliError,
    output::{Column, OutputArgs, duration},
    tunnel,
};

const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_TOKEN_BYTES: u64 = 16 << 10;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Context to use [env: OPRC_CONTEXT] [default: the current context].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// URL of the package manager; overrides the context, whose token and CA are then ignored [env:
    /// OPRC_SERVER].
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// File with the bearer token [env: OPRC_TOKEN_FILE, ignored with --server or --context].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with CA certificates to verify the server [env: OPRC_CA, ignored with --server or
    /// --context].
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Timeout of a single request, such as 30s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    pub(crate) request_timeout: Duration,
}

impl ConnectionArgs {
    pub(crate) fn resolve(&self) -> Result<Context> {
        let contexts = Contexts::load(&Contexts::path()?)?;
        self.resolve_with(&contexts, |name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// With --server or --context the environment is ignored, and a token or CA of one server is
    /// never used for another.
    fn resolve_with(
        &self,
        contexts: &Contexts,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Context> {
        let explicit = self.context.is_some() || self.server.is_some();
        let from_env = |name: &str| if explicit { None } else { variable(name) };
        let name = self.context.clone().or_else(|| from_env("OPRC_CONTEXT"));
        let server = self.server.clone().or_else(|| from_env("OPRC_SERVER"));
        let mut context = match (name, server) {
            (None, Some(server)) => Context { server, ..Context::default() },
            (name, server) => {
                let mut context = contexts.select(name.as_deref())?;
                // The context's token and CA belong to its own server.
                if let Some(server) = server {
                    let clusters = context.clusters;
                    context = Context { server, clusters, ..Context::default() };
                }
                context
            }
        };
        let file = |name: &str| from_env(name).map(PathBuf::from);
        let token = self.token_file.clone().or_else(|| file("OPRC_TOKEN_FILE"));
        context.token_file = token.or(context.token_file);
        context.ca = self.ca.clone().or_else(|| file("OPRC_CA")).or(context.ca);
        Ok(context)
    }

    pub(crate) fn of_context(name: &str) -> Self {
        Self {
            context: Some(name.to_owned()),
            server: None,
            token_file: None,
            ca: None,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
        }
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        let mut context = self.resolve()?;
        if let Some(tunnel) = &context.tunnel {
            context.server = tunnel::open(tunnel).await?;
        }
        let token = context.token_file.as_ref().map(read_token).transpose()?;
        Client::new(&context.server, token, context.ca.as_deref(), self.request_timeout)
    }
}

// Options of commands that print objects of the package manager. No doc comment: clap would use it
// as the description of these commands.
#[derive(Clone, Debug, Args)]
pub(crate) struct ApiArgs {
    #[command(flatten)]
    pub(crate) show: OutputArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl ApiArgs {
    pub(crate) async fn client(&self) -> Result<Client> {
        self.connection.client().await
    }

    /// Fetches a list and prints it; see [`OutputArgs::list`].
    pub(crate) async fn list<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        name: impl Fn(&T) -> String,
        columns: &[Column<T>],
        wide: &[Column<T>],
    ) -> Result<()> {
        self.show.list(&self.client().await?.list(path).await?, name, columns, wide)
    }
}

fn read_token(path: &PathBuf) -> Result<String, CliError> {
    let invalid =
        |why: &str| CliError::InvalidInput(format!("token file {}: {why}", path.display()));
    let size = fs::metadata(path).map_err(|error| invalid(&error.to_string()))?.len();
    if size > MAX_TOKEN_BYTES {
        return Err(invalid("is too large for a token; check the path"));
    }
    let text = fs::read_to_string(path).map_err(|error| invalid(&error.to_string()))?;
    let token = text.trim();
    if token.is_empty() || token.chars().any(|it| it.is_whitespace() || it.is_control()) {
        return Err(invalid("must contain one token and nothing else"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contexts::Tunnel;

    #[test]
    fn options_override_the_environment() {
        let context_of = |server: &str| Context {
            server: server.to_owned(),
            token_file: Some(server.into()),
            ..Context::default()
        };
        let contexts = Contexts {
            current: Some("dev".to_owned()),
            contexts: [("dev", "http://dev"), ("stage", "http://stage")]
                .map(|(name, server)| (name.to_owned(), context_of(server)))
                .into(),
        };
        let variable = |name: &str| match name {
            "OPRC_SERVER" => Some("http://prod".to_owned()),
            "OPRC_TOKEN_FILE" => Some("prod-token".to_owned()),
            "OPRC_CA" => Some("prod-ca".to_owned()),
            _ => None,
        };
        let resolve =
            |connection: ConnectionArgs| connection.resolve_with(&contexts, variable).unwrap();
        let context = resolve(ConnectionArgs::of_context("stage"));
        assert_eq!(
            (context.server.as_str(), context.token_file),
            ("http://stage", Some("http://stage".into()))
        );
        let context = resolve(ConnectionArgs { context: None, ..ConnectionArgs::of_context("") });
        assert_eq!(
            (context.server.as_str(), context.token_file),
            ("http://prod", Some("prod-token".into()))
        );
        let server = Some("http://other".to_owned());
        let context =
            resolve(ConnectionArgs { context: None, server, ..ConnectionArgs::of_context("") });
        assert_eq!(
            (context.server.as_str(), context.token_file, context.ca),
            ("http://other", None, None),
            "the token of another server must not be sent"
        );
    }

    #[test]
    fn a_contexts_token_is_never_sent_to_another_server() {
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
        let no_options = ConnectionArgs { context: None, ..ConnectionArgs::of_context("") };
        assert_eq!(no_options.resolve_with(&contexts, variable).unwrap(), plain);
        let options = ConnectionArgs { server: other(), ..ConnectionArgs::of_context("prod") };
        assert_eq!(options.resolve_with(&contexts, |_| None).unwrap(), plain);
        // A token given along with the server is meant for it.
        let variable = |name: &str| match name {
            "OPRC_TOKEN_FILE" => Some("other-token".to_owned()),
            "OPRC_CA" => Some("other-ca".to_owned()),
            name => variable(name),
        };
        let given = no_options.resolve_with(&contexts, variable).unwrap();
        let files = (Some("other-token".into()), Some("other-ca".into()));
        assert_eq!((given.token_file, given.ca), files);
        let options = ConnectionArgs { token_file: Some("mine".into()), ..options };
        assert_eq!(
            options.resolve_with(&contexts, |_| None).unwrap().token_file,
            Some("mine".into())
        );
    }

    #[test]
    fn rejects_token_files_with_more_than_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "abc\n").unwrap();
        assert_eq!(read_token(&path).unwrap(), "abc");
        fs::write(&path, "name abc\n").unwrap();
        let error = read_token(&path).unwrap_err().to_string();
        // The error must not quote the file.
        assert!(error.contains("one token") && !error.contains("abc"), "{error}");
        fs::write(&path, "").unwrap();
        assert!(read_token(&path).is_err());
    }
}
