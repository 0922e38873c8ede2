//! `oprc-pm`, the Package Manager: the REST API of the control plane.

use clap::Command;
use oprc_pm::{
    config::{Config, SCHEMA, describe_clusters, take_variables},
    run::Pm,
};
use oprc_server::shutdown_signal;

fn main() -> anyhow::Result<()> {
    let command = SCHEMA
        .command()
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand(Command::new("openapi").about("Print the OpenAPI document of the REST API"));
    let matches = command.get_matches();
    if matches.subcommand_matches("settings").is_some() {
        print!("{}", SCHEMA.markdown());
        return Ok(());
    }
    if matches.subcommand_matches("openapi").is_some() {
        println!("{}", oprc_pm::api::document().to_pretty_json()?);
        return Ok(());
    }
    let mut env = oprc_config::environment();
    let variables = take_variables(&mut env);
    let settings = SCHEMA.resolve(&matches, &env)?;
    let config = Config::of(&settings, &variables)?;
    if matches.subcommand_matches("config").is_some() {
        for warning in settings.warnings() {
            eprintln!("warning: {warning}");
        }
        print!("{}{}", settings.describe(), describe_clusters(&config.clusters));
        return Ok(());
    }
    oprc_observability::init(config.log_format, &config.log_filter)?;
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let pm = Pm::bind(config).await?;
        tracing::info!(address = %pm.address(), version = env!("CARGO_PKG_VERSION"), "listening");
        pm.run(shutdown_signal()?).await
    })
}
