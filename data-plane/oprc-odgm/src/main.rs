//! `oprc-odgm`: a node of the data grid.
//!
//! It exits with status 2 and names the variable if one is missing or invalid.

use std::{env, process::ExitCode};

use oprc_observability::Format;
use oprc_odgm::{
    config::{Config, Variables},
    node::{Node, host},
    replica::{EXEC_ETCD, exec_etcd},
};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_some_and(|it| it == EXEC_ETCD) {
        eprintln!("{}", exec_etcd(arguments));
        return ExitCode::FAILURE;
    }
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables: Variables =
        env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let (code, error) = match Config::read(&variables) {
        Err(error) => (2, error),
        Ok(config) => match run(config).await {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => (1, error),
        },
    };
    eprintln!("oprc-odgm: {error}");
    ExitCode::from(code)
}

async fn run(config: Config) -> Result<(), String> {
    oprc_observability::init(Format::Json, &config.log).map_err(|error| error.to_string())?;
    let host = config.bind_address.unwrap_or(host(env::var_os("container").is_some()));
    let node = Node::open(config, host).await?;
    tracing::info!(address = %node.address(), version = env!("CARGO_PKG_VERSION"), "listening");
    let shutdown = oprc_server::shutdown_signal().map_err(|error| error.to_string())?;
    node.run(shutdown).await
}
