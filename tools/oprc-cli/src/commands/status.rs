//! `oprc status`: all deployments as a table, or one as a tree.

use std::{collections::BTreeMap, fmt::Write as _, process::ExitCode};

use anyhow::Result;
use oprc_rest::{Contact, Deployment, DeploymentStatus, Revision, UnitStatus};

use crate::{
    client::escape,
    connection::ConnectionArgs,
    display::api_name,
    error::CliError,
    kube::{self, KubeArgs, PodSummary, label_matches_function},
    output::{OutputArgs, Table, Tone, Tree, duration, paint, sanitize, tone_of},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc status\n  oprc status hello --pods\n  oprc status hello --history\n  oprc status hello --watch"
)]
pub(crate) struct Command {
    /// Deployment [default: all].
    deployment: Option<String>,
    /// Show its pods; needs access to the clusters.
    #[arg(long, requires = "deployment")]
    pods: bool,
    /// Show its revisions.
    #[arg(long, requires = "deployment", conflicts_with = "pods")]
    history: bool,
    /// Watch status changes, like `oprc watch`.
    #[arg(long, short, requires = "deployment", conflicts_with_all = ["pods", "history"])]
    watch: bool,
    #[command(flatten)]
    access: KubeArgs,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let Command { deployment, pods, history, watch, access, show, connection } = command;
    if let (Some(key), true) = (&deployment, watch) {
        return super::watch::run(super::watch::Command::unbounded(key.clone(), show, connection))
            .await;
    }
    if deployment.is_some() && !history {
        show.reject_formats(&[])?;
    }
    let client = connection.client().await?;
    let Some(key) = deployment else {
        let all: Vec<Deployment> = client.list("/deployments").await?;
        show.list(&all, |it| it.deployment.key.clone(), |wide| table(&all, wide))?;
        return Ok(ExitCode::SUCCESS);
    };
    let path = format!("/deployments/{}", escape(&key));
    if history {
        let all: Vec<Revision> = client.list(&format!("{path}/history")).await?;
        show.list(&all, |it| it.revision.clone(), |_| revisions(&all))?;
        return Ok(ExitCode::SUCCESS);
    }
    let found: Deployment = client.get(&path).await?;
    let mut pods_by_unit = BTreeMap::new();
    if pods && show.is_document() {
        let message = "--pods cannot be combined with -o json or -o yaml";
        return Err(CliError::InvalidInput(message.to_owned()).into());
    }
    if pods {
        let context = connection.resolve()?;
        for unit in &found.status.units {
            let pods = kube::list_pods(&access, &context, unit).await;
            pods_by_unit.insert(unit.id.clone(), pods.map_err(|error| format!("{error:#}")));
        }
    }
    let text = |it: &Deployment, wide| tree(&key, it, &pods_by_unit, wide).render();
    show.one(&found, |_| key.clone(), text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Deployment], wide: bool) -> Table {
    let mut headers = vec!["DEPLOYMENT", "PACKAGE", "VERSION", "CONDITION", "AVAILABLE", "SINCE"];
    if wide {
        headers.extend(["REVISION", "CLUSTERS", "MESSAGE"]);
    }
    let mut table = Table::new(&headers);
    for it in all {
        let status = &it.status;
        let mut row = vec![
            it.deployment.key.clone(),
            it.plan.package.clone(),
            it.plan.version.clone(),
            api_name(&status.condition),
            format!("{}/{}", status.available, status.units_total),
            duration::age(&status.since),
        ];
        if wide {
            let mut clusters: Vec<_> =
                it.plan.units.iter().map(|unit| unit.cluster.as_str()).collect();
            clusters.sort_unstable();
            clusters.dedup();
            row.extend([it.revision.clone(), clusters.join(","), status.message.clone()]);
        }
        table.row_colored(row, 3);
    }
    table
}

fn revisions(all: &[Revision]) -> Table {
    let mut table = Table::new(&["REVISION", "AGE", "VERSION", "CAUSE", "BY", "OUTCOME"]);
    for it in all {
        let by = it.by.clone().unwrap_or_default();
        let (age, cause) = (duration::age(&it.at), it.cause.clone());
        table.row([it.revision.clone(), age, it.version.clone(), cause, by, it.outcome.clone()]);
    }
    table
}

/// Pods by unit id, or the error of listing them.
type Pods = BTreeMap<String, Result<Vec<PodSummary>, String>>;

/// Deployment, clusters, classes, functions and data grid, pods.
fn tree(key: &str, found: &Deployment, pods: &Pods, wide: bool) -> Tree {
    let DeploymentStatus { condition, message, since, available, units_total, units, .. } =
        &found.status;
    let version = format!("{} {}", found.plan.package, found.plan.version);
    let counted = format!("{available}/{units_total} available");
    let mut title = line(key, &api_name(condition), message, since);
    title.push_str(&paint(Tone::Faint, &sanitize(&format!("  {version}, {counted}"))));
    let mut root = Tree::new(title);
    let mut clusters: BTreeMap<&str, Vec<&UnitStatus>> = BTreeMap::new();
    for unit in units {
        clusters.entry(&unit.cluster).or_default().push(unit);
    }
    for (name, units) in clusters {
        let contact = units.iter().map(|unit| unit.contact).find(|it| *it != Contact::Fresh);
        let contact = contact.map(|it| match it {
            Contact::Unconfigured => ", no longer configured".to_owned(),
            other => format!(", {}", api_name(&other).to_lowercase()),
        });
        let mut cluster =
            Tree::new(format!("cluster {}{}", sanitize(name), contact.unwrap_or_default()));
        for it in units {
            cluster.push(unit(it, pods.get(&it.id), wide));
        }
        root.push(cluster);
    }
    root
}

fn unit(unit: &UnitStatus, pods: Option<&Result<Vec<PodSummary>, String>>, wide: bool) -> Tree {
    let place = if unit.environment.is_empty() {
        String::new()
    } else {
        format!(" in {}", unit.environment)
    };
    let condition =
        if unit.phase.is_empty() { api_name(&unit.condition) } else { unit.phase.clone() };
    let why = match (unit.reason.is_empty(), unit.message.is_empty()) {
        (false, false) => format!("{}: {}", unit.reason, unit.message),
        _ => format!("{}{}", unit.reason, unit.message),
    };
    let mut title = line(&format!("class {}{place}", unit.class), &condition, &why, &unit.since);
    if !unit.current {
        title.push_str("  (update pending)");
    }
    if wide {
        let more = format!("  {} {}", unit.id, unit.template);
        title.push_str(&paint(Tone::Faint, &sanitize(more.trim_end())));
    }
    let mut tree = Tree::new(title);
    let mut pods: Vec<&PodSummary> = match pods {
        Some(Ok(pods)) => pods.iter().collect(),
        Some(Err(why)) => {
            tree.push(Tree::new(paint(Tone::Bad, &sanitize(&format!("pods: {why}")))));
            Vec::new()
        }
        None => Vec::new(),
    };
    for function in &unit.functions {
        let error = function.error_msg.as_deref().unwrap_or_default();
        let mut title =
            line(&format!("function {}", function.key), &api_name(&function.condition), error, "");
        if let Some(url) = &function.invocation_url {
            title.push_str(&sanitize(&format!("  {url}")));
        }
        let belongs = |pod: &PodSummary| label_matches_function(&pod.function, &function.key);
        tree.push(with_pods(title, &mut pods, belongs));
    }
    if let Some(grid) = &unit.odgm {
        let condition = if grid.ready { "RUNNING" } else { "DEPLOYING" };
        let more =
            format!("replicas {}, collections {}", grid.replicas, grid.collections.join(", "));
        let title = line("odgm", condition, &more, "");
        tree.push(with_pods(title, &mut pods, |pod| pod.function.is_empty()));
    }
    // Pods of functions that the status no longer lists.
    for pod in pods {
        tree.push(Tree::new(pod.describe()));
    }
    tree
}

/// A line with the pods that belong to it, which are removed from `pods`.
fn with_pods(
    title: String,
    pods: &mut Vec<&PodSummary>,
    belongs: impl Fn(&PodSummary) -> bool,
) -> Tree {
    let mut tree = Tree::new(title);
    pods.retain(|pod| {
        let belongs = belongs(pod);
        if belongs {
            tree.push(Tree::new(pod.describe()));
        }
        !belongs
    });
    tree
}

fn line(name: &str, condition: &str, message: &str, since: &str) -> String {
    let mut line =
        format!("{}  {}", sanitize(name), paint(tone_of(condition), &sanitize(condition)));
    if !since.is_empty() {
        let _ = write!(line, " for {}", duration::age(since));
    }
    if !message.is_empty() {
        let _ = write!(line, ": {}", sanitize(message));
    }
    line
}

#[cfg(test)]
mod tests {
    use oprc_rest::{Condition, DeploymentCondition, FunctionStatus, GridStatus, Plan};

    use super::*;

    fn sample() -> Deployment {
        let unit = UnitStatus {
            id: "u1".to_owned(),
            cluster: "east".to_owned(),
            class: "Hello".to_owned(),
            phase: "Degraded".to_owned(),
            reason: "ImagePull".to_owned(),
            message: "no image".to_owned(),
            contact: Contact::Stale,
            current: true,
            functions: vec![FunctionStatus {
                key: "greet".to_owned(),
                condition: Condition::Down,
                invocation_url: Some("http://hello.default.svc".to_owned()),
                ..FunctionStatus::default()
            }],
            ..UnitStatus::default()
        };
        Deployment {
            plan: Plan {
                package: "hello".to_owned(),
                version: "0.1.0".to_owned(),
                ..Plan::default()
            },
            status: DeploymentStatus {
                condition: DeploymentCondition::Partial,
                units_total: 1,
                units: vec![unit],
                ..DeploymentStatus::default()
            },
            ..Deployment::default()
        }
    }

    #[test]
    fn renders_a_deployment_as_a_tree() {
        let pod = |name: String, function: &str| {
            let mut pod = PodSummary::default();
            (pod.name, pod.function) = (name, function.to_owned());
            pod
        };
        let mut deployment = sample();
        let unit = &mut deployment.status.units[0];
        unit.functions.push(FunctionStatus { key: "Part_Ways".to_owned(), ..Default::default() });
        let collections = vec!["Hello".to_owned()];
        unit.odgm = Some(GridStatus { replicas: 1, collections, ..GridStatus::default() });
        let pods = ["part-ways-0123456789", "", "greet", "gone"];
        let pods = pods.map(|function| pod(format!("of-{function}"), function));
        let pods = BTreeMap::from([("u1".to_owned(), Ok(pods.to_vec()))]);
        let rendered = |deployment: &Deployment, pods: &Pods| {
            let text = tree("hello", deployment, pods, false).render();
            anstream::adapter::strip_str(&text).to_string()
        };
        assert_eq!(
            rendered(&deployment, &pods),
            "hello  PARTIAL  hello 0.1.0, 0/1 available\n\
             └─ cluster east, stale\n   \
             └─ class Hello  Degraded: ImagePull: no image\n      \
             ├─ function greet  DOWN  http://hello.default.svc\n      \
             │  └─ pod of-greet  , not ready\n      \
             ├─ function Part_Ways  PENDING\n      \
             │  └─ pod of-part-ways-0123456789  , not ready\n      \
             ├─ odgm  DEPLOYING: replicas 1, collections Hello\n      \
             │  └─ pod of-  , not ready\n      \
             └─ pod of-gone  , not ready\n"
        );
        let unreachable = BTreeMap::from([("u1".to_owned(), Err("no\nresponse".to_owned()))]);
        assert!(rendered(&sample(), &unreachable).contains("├─ pods: no response\n"));
    }

    #[test]
    fn list_counts_available_units() {
        let text =
            anstream::adapter::strip_str(&table(&[sample()], false).render(false)).to_string();
        assert_eq!(text, "-   hello   0.1.0   PARTIAL   0/1   -\n");
    }
}
