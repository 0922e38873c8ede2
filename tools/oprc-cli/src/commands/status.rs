//! `oprc status`: how deployments are, as a table; how one is, as a tree.

use std::{collections::BTreeMap, fmt::Write as _, process::ExitCode};

use anyhow::Result;
use oprc_rest::{Contact, Deployment, DeploymentStatus, Revision, UnitStatus};

use crate::{
    client::escape,
    failure::Failure,
    kube::{self, Access, PodLine, is_of_function},
    output::{Show, Table, Tone, Tree, age, clean, paint, tone_of},
    remote::Remote,
    words::word,
};

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc status\n  oprc status hello --pods\n  oprc status hello --history\n  oprc status hello --watch"
)]
pub(crate) struct Command {
    /// The deployment; all of them, where left out.
    deployment: Option<String>,
    /// Also ask the clusters for its pods.
    #[arg(long, requires = "deployment")]
    pods: bool,
    /// What was wanted before.
    #[arg(long, requires = "deployment", conflicts_with = "pods")]
    history: bool,
    /// Tell each change as it comes, as `oprc watch` does.
    #[arg(long, short, requires = "deployment", conflicts_with_all = ["pods", "history"])]
    watch: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    remote: Remote,
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let Command { deployment, pods, history, watch, access, show, remote } = command;
    if let (Some(key), true) = (&deployment, watch) {
        return super::watch::run(super::watch::Command::of(key.clone(), show, remote)).await;
    }
    if deployment.is_some() && !history {
        show.refuse(&[])?;
    }
    let client = remote.client().await?;
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
    let mut seen = BTreeMap::new();
    if pods && show.is_document() {
        let told = "documents are the package manager's, which knows no pods: leave --pods out";
        return Err(Failure::Wrong(told.to_owned()).into());
    }
    if pods {
        let context = remote.settle()?;
        for unit in &found.status.units {
            let pods = kube::pods(&access, &context, unit).await;
            seen.insert(unit.id.clone(), pods.map_err(|error| format!("{error:#}")));
        }
    }
    let text = |it: &Deployment, wide| tree(&key, it, &seen, wide).render();
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
            word(&status.condition),
            format!("{}/{}", status.available, status.units_total),
            age::since(&status.since),
        ];
        if wide {
            let mut clusters: Vec<_> =
                it.plan.units.iter().map(|unit| unit.cluster.as_str()).collect();
            clusters.sort_unstable();
            clusters.dedup();
            row.extend([it.revision.clone(), clusters.join(","), status.message.clone()]);
        }
        table.painted(row, 3);
    }
    table
}

fn revisions(all: &[Revision]) -> Table {
    let mut table = Table::new(&["REVISION", "AGE", "VERSION", "CAUSE", "BY", "OUTCOME"]);
    for it in all {
        let by = it.by.clone().unwrap_or_default();
        let (age, cause) = (age::since(&it.at), it.cause.clone());
        table.row([it.revision.clone(), age, it.version.clone(), cause, by, it.outcome.clone()]);
    }
    table
}

/// The pods of units, or why they aren't known.
type Pods = BTreeMap<String, Result<Vec<PodLine>, String>>;

/// The tree: deployment, cluster, class, functions and data grid, pods.
fn tree(key: &str, found: &Deployment, pods: &Pods, wide: bool) -> Tree {
    let DeploymentStatus { condition, message, since, available, units_total, units, .. } =
        &found.status;
    let version = format!("{} {}", found.plan.package, found.plan.version);
    let counted = format!("{available}/{units_total} available");
    let mut title = line(key, &word(condition), message, since);
    title.push_str(&paint(Tone::Faint, &clean(&format!("  {version}, {counted}"))));
    let mut root = Tree::new(title);
    let mut clusters: BTreeMap<&str, Vec<&UnitStatus>> = BTreeMap::new();
    for unit in units {
        clusters.entry(&unit.cluster).or_default().push(unit);
    }
    for (name, units) in clusters {
        let contact = units.iter().map(|unit| unit.contact).find(|it| *it != Contact::Fresh);
        let contact = contact.map(|it| match it {
            Contact::Unconfigured => ", not configured any more".to_owned(),
            other => format!(", {}", word(&other).to_lowercase()),
        });
        let mut cluster =
            Tree::new(format!("cluster {}{}", clean(name), contact.unwrap_or_default()));
        for it in units {
            cluster.push(unit(it, pods.get(&it.id), wide));
        }
        root.push(cluster);
    }
    root
}

fn unit(unit: &UnitStatus, pods: Option<&Result<Vec<PodLine>, String>>, wide: bool) -> Tree {
    let place = if unit.environment.is_empty() {
        String::new()
    } else {
        format!(" in {}", unit.environment)
    };
    let condition = if unit.phase.is_empty() { word(&unit.condition) } else { unit.phase.clone() };
    let why = match (unit.reason.is_empty(), unit.message.is_empty()) {
        (false, false) => format!("{}: {}", unit.reason, unit.message),
        _ => format!("{}{}", unit.reason, unit.message),
    };
    let mut title = line(&format!("class {}{place}", unit.class), &condition, &why, &unit.since);
    if !unit.current {
        title.push_str("  (not what is wanted yet)");
    }
    if wide {
        let more = format!("  {} {}", unit.id, unit.template);
        title.push_str(&paint(Tone::Faint, &clean(more.trim_end())));
    }
    let mut tree = Tree::new(title);
    let mut pods: Vec<&PodLine> = match pods {
        Some(Ok(pods)) => pods.iter().collect(),
        Some(Err(why)) => {
            tree.push(Tree::new(paint(Tone::Bad, &clean(&format!("pods: {why}")))));
            Vec::new()
        }
        None => Vec::new(),
    };
    for function in &unit.functions {
        let error = function.error_msg.as_deref().unwrap_or_default();
        let mut title =
            line(&format!("function {}", function.key), &word(&function.condition), error, "");
        if let Some(url) = &function.invocation_url {
            title.push_str(&clean(&format!("  {url}")));
        }
        let is_its = |pod: &PodLine| is_of_function(&pod.function, &function.key);
        tree.push(above(title, &mut pods, is_its));
    }
    if let Some(grid) = &unit.odgm {
        let condition = if grid.ready { "RUNNING" } else { "DEPLOYING" };
        let more = format!("{} node(s), {}", grid.replicas, grid.collections.join(", "));
        let title = line("odgm", condition, &more, "");
        tree.push(above(title, &mut pods, |pod| pod.function.is_empty()));
    }
    // Those of what isn't told of any more.
    for pod in pods {
        tree.push(Tree::new(pod.tell()));
    }
    tree
}

/// A line with its pods below it, which are taken from the others.
fn above(title: String, pods: &mut Vec<&PodLine>, is_its: impl Fn(&PodLine) -> bool) -> Tree {
    let mut tree = Tree::new(title);
    pods.retain(|pod| {
        let its = is_its(pod);
        if its {
            tree.push(Tree::new(pod.tell()));
        }
        !its
    });
    tree
}

fn line(name: &str, condition: &str, message: &str, since: &str) -> String {
    let mut line = format!("{}  {}", clean(name), paint(tone_of(condition), &clean(condition)));
    if !since.is_empty() {
        let _ = write!(line, " for {}", age::since(since));
    }
    if !message.is_empty() {
        let _ = write!(line, ": {}", clean(message));
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
    fn a_deployment_is_a_tree() {
        let pod = |name: String, function: &str| {
            let mut pod = PodLine::default();
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
        let told = |deployment: &Deployment, pods: &Pods| {
            let text = tree("hello", deployment, pods, false).render();
            anstream::adapter::strip_str(&text).to_string()
        };
        assert_eq!(
            told(&deployment, &pods),
            "hello  PARTIAL  hello 0.1.0, 0/1 available\n\
             └─ cluster east, stale\n   \
             └─ class Hello  Degraded: ImagePull: no image\n      \
             ├─ function greet  DOWN  http://hello.default.svc\n      \
             │  └─ pod of-greet  , not ready\n      \
             ├─ function Part_Ways  PENDING\n      \
             │  └─ pod of-part-ways-0123456789  , not ready\n      \
             ├─ odgm  DEPLOYING: 1 node(s), Hello\n      \
             │  └─ pod of-  , not ready\n      \
             └─ pod of-gone  , not ready\n"
        );
        let away = BTreeMap::from([("u1".to_owned(), Err("nobody\nanswers".to_owned()))]);
        assert!(told(&sample(), &away).contains("├─ pods: nobody answers\n"));
    }

    #[test]
    fn a_list_counts_what_is_available() {
        let text =
            anstream::adapter::strip_str(&table(&[sample()], false).render(false)).to_string();
        assert_eq!(text, "-   hello   0.1.0   PARTIAL   0/1   -\n");
    }
}
