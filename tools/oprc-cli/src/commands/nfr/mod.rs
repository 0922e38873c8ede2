//! `oprc nfr`: requirements at run time.

mod render;
mod simulate;

use std::{fmt::Write as _, io::IsTerminal as _, time::Duration};

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use oprc_rest::{ClassRuntime, Cluster, Deployment, Health};
use oprc_unit::spec::EnforcementMode;

use crate::{
    client::{Client, escape, filtered},
    connection::ApiArgs,
    deployed_unit::is_named,
    error::{CliError, is_unavailable, optional},
    measurement::{Unmeasured, unmeasured},
    output::{Charset, Format, duration, note},
};

/// CRM measures every 15 s at most, and no stream reports measurements.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// Moves the cursor to the top left corner and clears the screen.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";
const MAX_CLASSES: usize = 50;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  oprc nfr Order\n  oprc nfr shop.Order --cluster east --env prod --watch\n  oprc nfr Order -o json | jq '.[].unit.functions[].nfrCompliance'"
)]
pub(crate) struct Command {
    #[command(subcommand)]
    simulate: Option<Subcommands>,
    /// Class: CLASS, PACKAGE.CLASS, or the id of a ClassRuntime.
    #[arg(required = true)]
    class: Option<String>,
    /// Show only this deployment.
    #[arg(long)]
    deployment: Option<String>,
    /// Show only this cluster.
    #[arg(long)]
    cluster: Option<String>,
    /// Show only this environment.
    #[arg(long = "env", value_name = "ENVIRONMENT")]
    environment: Option<String>,
    /// Show the latest measurements every 5 seconds.
    #[arg(long, short)]
    watch: bool,
    /// Stop watching after this duration, such as 30s or 5m.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, requires = "watch")]
    limit: Option<Duration>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Simulate how enforcement would scale a function under a recorded load.
    Simulate(simulate::Simulate),
}

pub(crate) async fn run(mut command: Command) -> Result<()> {
    if let Some(Subcommands::Simulate(simulate)) = command.simulate {
        return simulate::run(&simulate);
    }
    let class = command.class.take().unwrap_or_default();
    let client = command.api.client().await?;
    if !command.watch {
        return command.show(&client, &class).await;
    }
    if command.api.show.output == Format::Name {
        command.api.show.reject_formats(&[Format::Name])?;
    }
    let work = command.watch(&client, &class);
    match command.limit {
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or(Ok(())),
        None => work.await,
    }
}

/// A class and why it has no live values.
struct Found {
    class: ClassRuntime,
    unmeasured: Option<Unmeasured>,
}

impl Found {
    /// Whether there is anything to show without live values.
    fn has_status(&self) -> bool {
        let unit = &self.class.unit;
        self.has_verdicts()
            || !unit.nfr_history.is_empty()
            || !unit.nfr_recommendations.is_empty()
            || !unit.oom_kills.is_empty()
    }

    fn has_verdicts(&self) -> bool {
        self.class.unit.functions.iter().any(|it| it.nfr_compliance.is_some())
    }

    /// Why the class isn't measured; none if the leader of CRM measures it.
    fn not_measured(&self) -> Option<Unmeasured> {
        self.unmeasured.filter(|it| *it != Unmeasured::NotLeader || !self.has_verdicts())
    }
}

impl Command {
    async fn show(&self, client: &Client, class: &str) -> Result<()> {
        let found = self.find(client, class).await?;
        let classes: Vec<_> = found.iter().map(|it| &it.class).collect();
        let names: Vec<_> = classes.iter().map(|it| it.id.as_str()).collect();
        let show = &self.api.show;
        let reasons = found.iter().map(Found::not_measured).collect::<Option<Vec<_>>>();
        let unmeasured = reasons.and_then(|reasons| reasons.first().copied());
        let is_text = matches!(show.output, Format::Table | Format::Wide);
        if !is_text || unmeasured.is_none() || found.iter().any(Found::has_status) {
            show.one(&classes, &names, |wide| text(&found, wide, !show.no_headers))?;
        }
        // Documents and names are complete without measurements.
        match unmeasured.filter(|_| is_text) {
            Some(why) => bail!(CliError::Failed(format!(
                "class {class:?} is not measured: {}\nhint: {}",
                why.description(),
                why.hint()
            ))),
            None => Ok(()),
        }
    }

    async fn watch(&self, client: &Client, class: &str) -> Result<()> {
        let redraws =
            std::io::stdout().is_terminal() && std::env::var("TERM").is_ok_and(|it| it != "dumb");
        let mut connected = false;
        loop {
            match self.find(client, class).await {
                Ok(found) => {
                    connected = true;
                    let classes: Vec<_> = found.iter().map(|it| &it.class).collect();
                    let show = &self.api.show;
                    show.print_item(&classes, || {
                        let text = text(&found, show.output == Format::Wide, !show.no_headers);
                        if redraws { format!("{CLEAR_SCREEN}{text}") } else { format!("{text}\n") }
                    })?;
                }
                // The package manager may be restarting.
                Err(error) if connected && is_unavailable(&error) => note(&format!("{error:#}")),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    }

    /// The ClassRuntimes of the class, with their latest measurements.
    async fn find(&self, client: &Client, class: &str) -> Result<Vec<Found>> {
        let clusters: Vec<Cluster> = client.list("/clusters").await?;
        if let Some(name) = &self.cluster {
            ensure!(
                clusters.iter().any(|it| it.name == *name),
                CliError::NotFound(format!(
                    "the package manager has no cluster {name:?}; `oprc cluster list` lists clusters"
                ))
            );
        }
        let path = filtered(
            "/class-runtimes",
            &[
                ("deployment", self.deployment.as_deref()),
                ("cluster", self.cluster.as_deref()),
                ("environment", self.environment.as_deref()),
            ],
        );
        let all: Vec<ClassRuntime> = client.list(&path).await?;
        let mut matching: Vec<_> = all.iter().filter(|it| is_named(it, class)).collect();
        ensure!(!matching.is_empty(), not_found(class, &all, &clusters));
        if matching.len() > MAX_CLASSES {
            let count = matching.len();
            note(&format!(
                "{count} ClassRuntimes found, showing {MAX_CLASSES}; use --deployment, --cluster or --env"
            ));
            matching.truncate(MAX_CLASSES);
        }
        let mut found = Vec::new();
        for listed in matching {
            let path = format!("/class-runtimes/{}", escape(&listed.id));
            let path = filtered(&path, &[("cluster", Some(&listed.cluster))]);
            // It may have been deleted since it was listed.
            let Some(class): Option<ClassRuntime> = optional(client.get(&path).await)? else {
                continue;
            };
            let cluster = clusters.iter().find(|it| it.name == class.cluster);
            let mut why = unmeasured(&class, cluster, None);
            if why.is_some() {
                let mode = enforcement_mode(client, &class).await?;
                why = unmeasured(&class, cluster, mode);
            }
            found.push(Found { class, unmeasured: why });
        }
        ensure!(!found.is_empty(), not_found(class, &[], &clusters));
        Ok(found)
    }
}

fn not_found(class: &str, all: &[ClassRuntime], clusters: &[Cluster]) -> CliError {
    let mut known: Vec<_> = all.iter().map(|it| it.unit.class.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    let known = if known.is_empty() {
        "`oprc status` lists deployments".to_owned()
    } else {
        format!("deployed classes: {}", known.join(", "))
    };
    let unreachable = clusters.iter().filter(|it| it.health == Health::Unreachable);
    let unreachable: Vec<_> = unreachable.map(|it| it.name.as_str()).collect();
    let away = match unreachable.as_slice() {
        [] => String::new(),
        names => format!("\nhint: unreachable clusters: {}; see `oprc check`", names.join(", ")),
    };
    CliError::NotFound(format!("class {class:?} is not deployed; {known}{away}"))
}

/// The enforcement mode that PM planned; none if the class belongs to no deployment.
async fn enforcement_mode(
    client: &Client,
    class: &ClassRuntime,
) -> Result<Option<EnforcementMode>> {
    let Some(key) = &class.deployment else { return Ok(None) };
    let path = format!("/deployments/{}", escape(key));
    let Some(deployment) = optional(client.get::<Deployment>(&path).await)? else {
        return Ok(None);
    };
    let unit = deployment.plan.units.into_iter().find(|it| it.id == class.id);
    Ok(unit.and_then(|it| it.spec.nfr?.enforcement).map(|it| it.mode))
}

fn text(found: &[Found], wide: bool, headers: bool) -> String {
    let charset = Charset::of_environment();
    let classes = found.iter().map(|it| {
        let mut text = render::class(&it.class, charset, wide, headers);
        if let Some(why) = it.unmeasured {
            let what = if it.not_measured().is_some() { "not measured" } else { "no live values" };
            let _ = writeln!(text, "{what}: {}; {}", why.description(), why.hint());
        }
        text
    });
    classes.collect::<Vec<_>>().join("\n")
}
