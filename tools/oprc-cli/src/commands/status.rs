//! `oprc status`: all deployments as a table, or one as a tree.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anyhow::{Result, ensure};
use oprc_rest::{
    Contact, Deployment, DeploymentStatus, GridStatus, Revision, UnitGrid, UnitStatus,
};
use oprc_unit::names;

use super::grid::space;
use crate::{
    client::escape,
    connection::ApiArgs,
    error::CliError,
    kube::{KubeArgs, PodSummary, connect, list_pods},
    output::{
        Column, Tone, Tree, api_name, duration, join_non_empty, note, paint, sanitize, tone_of,
    },
    rollout::phase_of,
};

const COLUMNS: &[Column<Deployment>] = &[
    ("DEPLOYMENT", |it| it.deployment.key.clone()),
    ("PACKAGE", |it| it.plan.package.clone()),
    ("VERSION", |it| it.plan.version.clone()),
    ("CONDITION", |it| api_name(&it.status.condition)),
    ("AVAILABLE", |it| format!("{}/{}", it.status.available, it.status.units_total)),
    ("SINCE", |it| duration::age(&it.status.since)),
];
const WIDE_COLUMNS: &[Column<Deployment>] = &[
    ("REVISION", |it| it.revision.clone()),
    ("CLUSTERS", |it| {
        let clusters: BTreeSet<_> = it.plan.units.iter().map(|it| it.cluster.as_str()).collect();
        clusters.into_iter().collect::<Vec<_>>().join(",")
    }),
    ("MESSAGE", |it| it.status.message.clone()),
];
const REVISION_COLUMNS: &[Column<Revision>] = &[
    ("REVISION", |it| it.revision.clone()),
    ("AGE", |it| duration::age(&it.at)),
    ("VERSION", |it| it.version.clone()),
    ("CAUSE", |it| it.cause.clone()),
    ("BY", |it| it.by.clone().unwrap_or_default()),
    ("OUTCOME", |it| it.outcome.clone()),
];

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc status\n  oprc status hello --pods\n  oprc status hello --history\n  oprc status hello --watch"
)]
pub(crate) struct Command {
    /// Deployment [default: all].
    deployment: Option<String>,
    /// Show the pods of the deployment; requires a kubeconfig for each cluster.
    #[arg(long, requires = "deployment")]
    pods: bool,
    /// Show the revisions of the deployment.
    #[arg(long, requires = "deployment", conflicts_with = "pods")]
    history: bool,
    /// Watch status changes, like `oprc watch`.
    #[arg(long, short, requires = "deployment", conflicts_with_all = ["pods", "history"])]
    watch: bool,
    #[command(flatten)]
    access: KubeArgs,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let Command { deployment, pods, history, watch, access, api } = command;
    let Some(key) = deployment else {
        let name = |it: &Deployment| it.deployment.key.clone();
        return api.list("/deployments", name, COLUMNS, WIDE_COLUMNS).await;
    };
    if watch {
        let (deployment, until_running, limit) = (key, false, None);
        let command = super::watch::Command { deployment, until_running, limit, api };
        return super::watch::run(command).await;
    }
    let path = format!("/deployments/{}", escape(&key));
    if history {
        let path = format!("{path}/history");
        return api.list(&path, |it| it.revision.clone(), REVISION_COLUMNS, &[]).await;
    }
    api.show.reject_formats(&[])?;
    let found: Deployment = api.client().await?.get(&path).await?;
    let mut pods_by_unit = BTreeMap::new();
    if pods {
        let message = "--pods cannot be combined with -o json or -o yaml";
        ensure!(!api.show.is_document(), CliError::InvalidInput(message.to_owned()));
        let context = api.connection.resolve()?;
        for unit in &found.status.units {
            let pods =
                async { list_pods(&connect(&access, &context, &unit.cluster).await?, unit).await };
            let pods = pods.await.map_err(|error| format!("{error:#}"));
            pods_by_unit.insert(unit.id.clone(), pods);
        }
    }
    let grids = if api.show.is_document() { Vec::new() } else { grids(&api, &path, &found).await };
    let details = Details { pods: pods_by_unit, grids };
    api.show.one(&found, &[&key], |wide| tree(&key, &found, &details, wide).render())
}

/// What the data grids of a deployment report; without it, the tree has their status only.
async fn grids(api: &ApiArgs, path: &str, found: &Deployment) -> Vec<UnitGrid> {
    if found.status.units.iter().all(|it| it.odgm.is_none()) {
        return Vec::new();
    }
    let grids = async { api.client().await?.list(&format!("{path}/grid")).await };
    grids.await.unwrap_or_else(|error| {
        note(&format!("the package manager doesn't report data grids: {error:#}"));
        Vec::new()
    })
}

/// What is shown besides the status.
#[derive(Debug, Default)]
struct Details {
    pods: Pods,
    grids: Vec<UnitGrid>,
}

/// Pods by unit id, or the error of listing them.
type Pods = BTreeMap<String, Result<Vec<PodSummary>, String>>;

/// Deployment, clusters, classes, functions and data grid, pods.
fn tree(key: &str, found: &Deployment, details: &Details, wide: bool) -> Tree {
    let DeploymentStatus { condition, message, since, available, units_total, units, .. } =
        &found.status;
    let version = format!("{} {}", found.plan.package, found.plan.version);
    let counted = format!("{available}/{units_total} units available");
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
            cluster.push(unit(it, details, wide));
        }
        root.push(cluster);
    }
    root
}

fn unit(unit: &UnitStatus, details: &Details, wide: bool) -> Tree {
    let pods = details.pods.get(&unit.id);
    let phase = phase_of(unit);
    let reason = if unit.reason == phase { "" } else { unit.reason.as_str() };
    let why = join_non_empty(&[reason, &unit.message], ": ");
    let name = join_non_empty(&[&format!("class {}", unit.class), &unit.environment], " in ");
    let mut title = line(&name, &phase, &why, &unit.since);
    if !unit.current {
        title.push_str("  (update pending)");
    }
    if wide {
        let more = format!("  {} {}", unit.id, unit.template);
        title.push_str(&paint(Tone::Faint, &sanitize(more.trim_end())));
    }
    let mut tree = Tree::new(title);
    if let Some(Err(why)) = pods {
        tree.push(Tree::new(paint(Tone::Bad, &sanitize(&format!("pods: {why}")))));
    }
    let mut pods: Vec<&PodSummary> = pods.into_iter().flatten().flatten().collect();
    for function in &unit.functions {
        let error = function.error_msg.as_deref().unwrap_or_default();
        let mut title =
            line(&format!("function {}", function.key), &api_name(&function.condition), error, "");
        if let Some(url) = &function.invocation_url {
            title.push_str(&sanitize(&format!("  {url}")));
        }
        if function.odgm_connection_status.as_deref() == Some("WaitingForDataGrid") {
            title.push_str("  (waiting for the data grid)");
        }
        let label = names::label(&function.key);
        tree.push(with_pods(title, &mut pods, |pod| pod.function == label));
    }
    if let Some(status) = &unit.odgm {
        let own = |it: &&UnitGrid| it.id == unit.id && it.cluster == unit.cluster;
        let title = grid_line(status, details.grids.iter().find(own));
        tree.push(with_pods(title, &mut pods, |pod| pod.function.is_empty()));
    }
    // Pods of functions that the status no longer lists.
    for pod in pods {
        tree.push(Tree::new(pod.describe()));
    }
    tree
}

fn grid_line(status: &GridStatus, grid: Option<&UnitGrid>) -> String {
    let condition = if status.ready { "RUNNING" } else { "DEPLOYING" };
    let replicas = status.replicas;
    let collections = format!("collections {}", status.collections.join(", "));
    let Some(grid) = grid.filter(|it| it.error.is_none()) else {
        let mut line = line("odgm", condition, &format!("replicas {replicas}, {collections}"), "");
        if let Some(error) = grid.and_then(|it| it.error.as_ref()) {
            line.push_str(&paint(Tone::Bad, &sanitize(&format!(", {error}"))));
        }
        return line;
    };
    let ready = grid.nodes.iter().filter(|it| it.status == "active").count();
    let more = format!("{ready}/{replicas} nodes ready, {collections}");
    let mut line = line("odgm", condition, &more, "");
    if let Some(space) = space(grid).filter(|_| grid.low_on_space) {
        line.push_str(&paint(Tone::Bad, &format!(", {space}")));
    }
    line
}

/// A line with the pods that belong to it, which are removed from `pods`.
fn with_pods(
    title: String,
    pods: &mut Vec<&PodSummary>,
    belongs: impl Fn(&PodSummary) -> bool,
) -> Tree {
    let mut tree = Tree::new(title);
    for pod in pods.extract_if(.., |pod| belongs(pod)) {
        tree.push(Tree::new(pod.describe()));
    }
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
    use oprc_rest::{Condition, DeploymentCondition, FunctionStatus, GridNode, Plan};

    use super::*;
    use crate::output::table;

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
        unit.functions.push(FunctionStatus {
            key: "Part ways".to_owned(),
            odgm_connection_status: Some("WaitingForDataGrid".to_owned()),
            ..FunctionStatus::default()
        });
        let collections = vec!["Hello".to_owned()];
        unit.odgm = Some(GridStatus { replicas: 1, collections, ..GridStatus::default() });
        let hashed = names::label("Part ways");
        let pods = [("hashed", hashed.as_str()), ("", ""), ("greet", "greet"), ("gone", "gone")];
        let pods = pods.map(|(name, function)| pod(format!("of-{name}"), function));
        let pods = BTreeMap::from([("u1".to_owned(), Ok(pods.to_vec()))]);
        let rendered = |deployment: &Deployment, details: &Details| {
            let text = tree("hello", deployment, details, false).render();
            anstream::adapter::strip_str(&text).to_string()
        };
        let mut details = Details { pods, ..Details::default() };
        assert_eq!(
            rendered(&deployment, &details),
            "hello  PARTIAL  hello 0.1.0, 0/1 units available\n\
             └─ cluster east, stale\n   \
             └─ class Hello  Degraded: ImagePull: no image\n      \
             ├─ function greet  DOWN  http://hello.default.svc\n      \
             │  └─ pod of-greet  , not ready\n      \
             ├─ function Part ways  PENDING  (waiting for the data grid)\n      \
             │  └─ pod of-hashed  , not ready\n      \
             ├─ odgm  DEPLOYING: replicas 1, collections Hello\n      \
             │  └─ pod of-  , not ready\n      \
             └─ pod of-gone  , not ready\n"
        );
        let node = |status: &str| GridNode { status: status.to_owned(), ..GridNode::default() };
        details.grids = vec![UnitGrid {
            id: "u1".to_owned(),
            cluster: "east".to_owned(),
            nodes: vec![node("active"), node("starting")],
            store_bytes: Some(1800 << 20),
            store_quota_bytes: Some(2 << 30),
            ..UnitGrid::default()
        }];
        let text = rendered(&deployment, &details);
        assert!(text.contains("─ odgm  DEPLOYING: 1/1 nodes ready, collections Hello\n"), "{text}");
        details.grids[0].low_on_space = true;
        let text = rendered(&deployment, &details);
        assert!(text.contains("Hello, low on space: 1800 of 2048 MiB used\n"), "{text}");
        details.grids[0].error = Some("it\nis down".to_owned());
        let text = rendered(&deployment, &details);
        assert!(text.contains("replicas 1, collections Hello, it is down\n"), "{text}");
        details.pods = BTreeMap::from([("u1".to_owned(), Err("no\nresponse".to_owned()))]);
        assert!(rendered(&sample(), &details).contains("├─ pods: no response\n"));
    }

    #[test]
    fn omits_a_reason_that_repeats_the_phase() {
        let mut deployment = sample();
        let unit = &mut deployment.status.units[0];
        "Available".clone_into(&mut unit.phase);
        "Available".clone_into(&mut unit.reason);
        let text = tree("hello", &deployment, &Details::default(), false).render();
        let text = anstream::adapter::strip_str(&text).to_string();
        assert!(text.contains("class Hello  Available: no image\n"), "{text}");
    }

    #[test]
    fn list_counts_available_units() {
        let text = anstream::adapter::strip_str(&table(&[sample()], COLUMNS, false)).to_string();
        assert_eq!(text, "-   hello   0.1.0   PARTIAL   0/1   -\n");
    }
}
