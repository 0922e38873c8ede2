//! The program `oprc-proxy`; the library documents it.

use std::{env, process::ExitCode};

use oprc_proxy::{Config, Proxy, WaitOptions, wait};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [] => run().await,
        [command, rest @ ..] if command == "wait" => wait_for_server(rest).await,
        _ => Err("usage: oprc-proxy [wait HOST:PORT [--timeout SECONDS]]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oprc-proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let config = Config::from_variables(env::vars_os())?;
    let app_port = config.app_port;
    let describe = |error: std::io::Error| error.to_string();
    let mut terminate = signal(SignalKind::terminate()).map_err(describe)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(describe)?;
    let proxy = Proxy::bind(config).await?;
    println!(
        "oprc-proxy: listening on {}, admin on {}, forwarding to port {app_port}",
        proxy.address().map_err(describe)?,
        proxy.admin_address().map_err(describe)?
    );
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        println!("oprc-proxy: terminating, finishing calls in flight");
    };
    proxy.run(shutdown).await;
    Ok(())
}

async fn wait_for_server(arguments: &[String]) -> Result<(), String> {
    wait(&WaitOptions::parse(arguments)?).await
}
