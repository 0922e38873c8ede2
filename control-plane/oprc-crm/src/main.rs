//! `oprc-crm`, the Class Runtime Manager: the controller of one Kubernetes cluster.

use anyhow::Context as _;
use oprc_crm::{
    cache::{ApiHealth, client},
    config::{Config, SCHEMA, port_warning},
    run::{Crm, wall_clock},
};
use oprc_server::shutdown_signal;

fn main() -> anyhow::Result<()> {
    let matches = SCHEMA.command().version(env!("CARGO_PKG_VERSION")).get_matches();
    if matches.subcommand_matches("settings").is_some() {
        print!("{}", SCHEMA.markdown());
        return Ok(());
    }
    let environment = oprc_config::environment();
    let settings = SCHEMA.resolve(&matches, &environment)?;
    let config = Config::of(&settings)?;
    let port = port_warning(&environment, config.server.address.port());
    let warnings = settings.warnings().iter().cloned().chain(config.warnings());
    let warnings: Vec<_> = warnings.chain(port).collect();
    if matches.subcommand_matches("config").is_some() {
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        print!("{}", settings.describe());
        return Ok(());
    }
    let level = oprc_observability::init(config.log_format, &config.log_filter)?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let api_health = ApiHealth::default();
        let kube = kube::Config::infer()
            .await
            .context("cannot find a kubeconfig or an in-cluster configuration")?;
        let client = client(kube, &api_health)?;
        let crm = Crm::bind(config, client, api_health, wall_clock(), Some(level)).await?;
        tracing::info!(address = %crm.address(), version = env!("CARGO_PKG_VERSION"), "listening");
        crm.run(shutdown_signal()?).await
    })
}
