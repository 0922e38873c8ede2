//! `oprc check`: whether everything is as it should be, and what to do where it isn't.

use std::{
    fmt::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use oprc_rest::{Cluster, Health};
use serde::Serialize;

use crate::{
    client::Client,
    contexts::Context,
    kube::{Access, connect, within},
    output::{Format, Show, Tone, age, clean, paint, say},
    remote::Remote,
    words::word,
};

/// How soon it is looked again.
const AGAIN: Duration = Duration::from_secs(2);
/// The kinds that CRM brings along.
const KINDS: [&str; 1] = ["classruntimes"];
/// What `logs` and `invoke` need in a cluster, as verb, resource and subresource.
const PERMISSIONS: [(&str, &str, &str); 3] =
    [("list", "pods", ""), ("get", "pods", "log"), ("get", "services", "proxy")];

/// The command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc check\n  oprc check --wait 2m -o json")]
pub(crate) struct Command {
    /// Look again until all is well, though no longer than this.
    #[arg(long, value_name = "TIME", value_parser = age::parse)]
    wait: Option<Duration>,
    /// Only ask the package manager, not the clusters.
    #[arg(long)]
    no_clusters: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    remote: Remote,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Success,
    Warning,
    Error,
}

/// One thing that was checked.
#[derive(Clone, Debug, Serialize)]
struct Check {
    group: String,
    description: String,
    result: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
}

#[derive(Debug, Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn note(&mut self, group: &str, description: &str, wrong: Option<(Outcome, String, &str)>) {
        let (result, message, hint) = wrong.unwrap_or((Outcome::Success, String::new(), ""));
        self.0.push(Check {
            group: group.to_owned(),
            description: description.to_owned(),
            result,
            message,
            hint: if result == Outcome::Success { String::new() } else { hint.to_owned() },
        });
    }

    fn tried<T>(&mut self, group: &str, what: &str, tried: Result<T>, hint: &str) -> Option<T> {
        match tried {
            Ok(found) => {
                self.note(group, what, None);
                Some(found)
            }
            Err(error) => {
                self.note(group, what, Some((Outcome::Error, format!("{error:#}"), hint)));
                None
            }
        }
    }

    fn well(&self) -> bool {
        self.0.iter().all(|check| check.result != Outcome::Error)
    }
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    command.show.refuse(&[Format::Name, Format::Wide])?;
    let begun = Instant::now();
    let checks = loop {
        let checks = all(&command).await?;
        let left = command.wait.and_then(|wait| wait.checked_sub(begun.elapsed()));
        match left {
            Some(left) if !checks.well() => tokio::time::sleep(AGAIN.min(left)).await,
            _ => break checks,
        }
    };
    command.show.beside_code(&checks.0, |checks| tell(checks))?;
    if checks.well() {
        return Ok(ExitCode::SUCCESS);
    }
    let failed = checks.0.iter().filter(|check| check.result == Outcome::Error).count();
    say(&format!("{failed} of {} checks failed", checks.0.len()));
    Ok(ExitCode::FAILURE)
}

async fn all(command: &Command) -> Result<Checks> {
    let mut checks = Checks::default();
    let hint = "see what `oprc context list` says of it";
    let client = command.remote.client().await;
    let Some(client) = checks.tried("package manager", "it is known how to reach it", client, hint)
    else {
        return Ok(checks);
    };
    let Some(clusters) = package_manager(&mut checks, &client).await else { return Ok(checks) };
    let context = command.remote.settle()?;
    if clusters.is_empty() {
        let wrong =
            (Outcome::Error, "there is none".to_owned(), "configure one (OPRC_PM_CRM_CLUSTERS)");
        checks.note("clusters", "clusters are configured", Some(wrong));
    }
    for cluster in &clusters {
        crm(&mut checks, cluster);
        if !command.no_clusters {
            kubernetes(&mut checks, cluster, &command.access, &context).await;
        }
    }
    Ok(checks)
}

/// Checks the package manager; the clusters that it knows, where it says.
async fn package_manager(checks: &mut Checks, client: &Client) -> Option<Vec<Cluster>> {
    let group = "package manager";
    let answers = format!("{} answers", client.server());
    let hint = "see that oprc-pm runs, and what `oprc context list` says of its address";
    checks.tried(group, &answers, client.text("/health/live").await, hint)?;
    let hint = "see the log of oprc-pm: its store or another oprc-pm may be in the way";
    checks.tried(group, "it is ready", client.text("/health/ready").await, hint);
    let hint = "give a token that is valid: --token-file, or `oprc context set`";
    let packages = client.get::<serde_json::Value>("/packages?limit=1").await;
    checks.tried(group, "it lets us in", packages, hint)?;
    let hint = "see the log of oprc-pm";
    checks.tried(group, "it tells its clusters", client.list("/clusters").await, hint)
}

/// Checks what the package manager knows of a cluster.
fn crm(checks: &mut Checks, cluster: &Cluster) {
    let group = format!("cluster {}", cluster.name);
    let wrong = |result| {
        let message = format!("{} {}", word(&cluster.health), cluster.message);
        (
            result,
            message.trim().to_owned(),
            "see that oprc-crm runs there, and that its address, token and certificates are right",
        )
    };
    let health = match cluster.health {
        Health::Healthy => None,
        Health::Degraded => Some(wrong(Outcome::Warning)),
        Health::Unreachable => Some(wrong(Outcome::Error)),
    };
    checks.note(&group, "CRM answers and is ready", health);
    if cluster.health == Health::Unreachable {
        return;
    }
    let nodes = match (cluster.ready_nodes, cluster.nodes) {
        (Some(ready), Some(all)) if ready < all => {
            let message = format!("{ready} of {all} are");
            Some((Outcome::Warning, message, "see `kubectl get nodes`"))
        }
        _ => None,
    };
    checks.note(&group, "nodes are ready", nodes);
    for (name, hint) in [
        ("odgm", "classes with state need it: switch the feature on in CRM"),
        ("knative", "functions that scale to zero need it: install Knative Serving"),
        ("hpa", "functions that scale need it: switch the feature on in CRM"),
    ] {
        let can = cluster.capabilities.get(name).copied().unwrap_or_default();
        let wrong = (!can).then(|| (Outcome::Warning, "it can't".to_owned(), hint));
        checks.note(&group, &format!("CRM can use {name}"), wrong);
    }
}

/// Checks a cluster itself, where it is known how to reach it.
async fn kubernetes(checks: &mut Checks, cluster: &Cluster, access: &Access, context: &Context) {
    let group = format!("cluster {}", cluster.name);
    let what = "Kubernetes is reached directly";
    let client = match connect(access, context, &cluster.name).await {
        Ok(client) => client,
        Err(error) => {
            let hint = "only `logs`, `status --pods` and `invoke` need it";
            checks.note(&group, what, Some((Outcome::Warning, format!("{error:#}"), hint)));
            return;
        }
    };
    let hint = "see that the kubeconfig is right";
    let groups = within(client.list_api_groups()).await;
    let Some(groups) = checks.tried(&group, what, groups, hint) else { return };
    let has = |name: &str| groups.groups.iter().any(|it| it.name == name);
    let kinds = within(client.list_api_group_resources("oaas.io/v1alpha1")).await.ok();
    let kinds = kinds.map(|it| it.resources).unwrap_or_default();
    let missing: Vec<_> =
        KINDS.into_iter().filter(|kind| kinds.iter().all(|it| it.name != *kind)).collect();
    let wrong = (!missing.is_empty()).then(|| {
        let message = format!("missing: {}", missing.join(", "));
        (Outcome::Error, message, "kubectl apply --server-side -f k8s/crds")
    });
    checks.note(&group, "CRDs are there", wrong);
    for (name, api, hint) in [
        (
            "Knative Serving",
            "serving.knative.dev",
            "install it, or use the template k8s_deployment",
        ),
        (
            "Prometheus Operator",
            "monitoring.coreos.com",
            "install it for ServiceMonitors; requirements are then measured",
        ),
    ] {
        let wrong = (!has(api)).then(|| (Outcome::Warning, format!("no {api}"), hint));
        checks.note(&group, &format!("{name} is there"), wrong);
    }
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
    for (verb, resource, subresource) in PERMISSIONS {
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            resource: Some(resource.to_owned()),
            subresource: Some(subresource.to_owned()).filter(|it| !it.is_empty()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = within(reviews.create(&PostParams::default(), &review)).await;
        let allowed = answer.ok().and_then(|it| it.status).is_some_and(|it| it.allowed);
        let name = format!(
            "we may {verb} {resource}{}{subresource}",
            if subresource.is_empty() { "" } else { "/" }
        );
        let hint = "ask for a Role that allows it; `logs`, `status --pods` and `invoke` need it";
        let wrong = (!allowed).then(|| (Outcome::Warning, "we may not".to_owned(), hint));
        checks.note(&group, &name, wrong);
    }
}

fn tell(checks: &[Check]) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            let blank = if group.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{blank}{}", clean(&check.group));
            group = &check.group;
        }
        let mark = match check.result {
            Outcome::Success => paint(Tone::Good, "√"),
            Outcome::Warning => paint(Tone::Fair, "‼"),
            Outcome::Error => paint(Tone::Bad, "×"),
        };
        let _ = writeln!(text, "  {mark} {}", clean(&check.description));
        for (what, said) in [("", &check.message), ("hint: ", &check.hint)] {
            if !said.is_empty() {
                let _ = writeln!(text, "      {what}{}", clean(said));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_grouped_and_give_hints() {
        let mut checks = Checks::default();
        checks.note("a", "one", None);
        checks.note("a", "two", Some((Outcome::Warning, "not quite".to_owned(), "do this")));
        assert!(checks.well());
        checks.tried::<()>("b", "three", Err(anyhow::anyhow!("no")), "do that");
        assert!(!checks.well());
        let plain = anstream::adapter::strip_str(&tell(&checks.0)).to_string();
        assert_eq!(
            plain,
            "a\n  √ one\n  ‼ two\n      not quite\n      hint: do this\n\nb\n  × three\n      no\n      hint: do that\n"
        );
    }

    #[test]
    fn clusters_that_are_away_are_errors() {
        let mut checks = Checks::default();
        crm(&mut checks, &Cluster { name: "east".to_owned(), ..Cluster::default() });
        assert!(!checks.well());
        let healthy = Cluster { health: Health::Healthy, ..Cluster::default() };
        let mut checks = Checks::default();
        crm(&mut checks, &healthy);
        assert!(checks.well(), "what is only not there is a warning");
    }
}
