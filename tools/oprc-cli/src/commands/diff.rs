//! `oprc diff`: compares a package with what is published and deployed.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::{Result, bail};
use oprc_models::{OClassDeployment, OPackage};
use oprc_rest::{
    Condition, Contact, Deployment, DeploymentCondition as Is, DeploymentStatus, PackageVersion,
    UnitPlan,
};
use serde::Serialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::{
    client::{Client, escape},
    connection::ApiArgs,
    error::{CliError, optional},
    output::{Format, Tone, api_name, note, paint, sanitize},
    target::{TargetArgs, version_path},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 no differences, 1 differences found, 2 or more on error.\n\nExamples:\n  oprc diff examples/packages/hello.yaml\n  oprc diff hello@0.2.0 || oprc deploy hello@0.2.0"
)]
pub(crate) struct Command {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Serialize)]
struct Difference {
    object: String,
    /// Null for a new object.
    current: Value,
    /// Desired state; null for a deleted object.
    desired: Value,
    /// Both as YAML, with fields in their declared order.
    #[serde(skip)]
    texts: (String, String),
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match compare(command).await {
        Ok(true) => Ok(ExitCode::FAILURE),
        Ok(false) => Ok(ExitCode::SUCCESS),
        // Exit code 1 means differences, so errors must not use it.
        Err(error) => bail!(match error.downcast() {
            Ok(CliError::Failed(why)) => CliError::InvalidInput(why),
            Ok(other) => other,
            Err(error) => CliError::InvalidInput(format!("{error:#}")),
        }),
    }
}

async fn compare(Command { target, api }: Command) -> Result<bool> {
    api.show.reject_formats(&[Format::Name, Format::Wide])?;
    let client = api.client().await?;
    let target = target.resolve(&client).await?;
    let (mut all, mut conflicts) = (Vec::new(), Vec::new());
    let show = |all: &Vec<Difference>| {
        api.show.print_result(all, || all.iter().map(Difference::patch).collect())
    };
    for package in &target.packages {
        let path = version_path(&package.name, &package.version.to_string());
        let old = optional(client.get::<PackageVersion>(&path).await)?.map(|it| it.package);
        let title = format!("package {} {}", package.name, package.version);
        all.extend(differ(&title, old.as_ref(), Some(package))?);
        if old.is_some_and(|old| old != *package) {
            conflicts.push(title);
        }
    }
    for desired in &target.deployments {
        let path = format!("/deployments/{}", escape(&desired.key));
        let old: Option<Deployment> = optional(client.get(&path).await)?;
        let title = format!("deployment {}", desired.key);
        all.extend(differ(&title, old.as_ref().map(|it| &it.deployment), Some(desired))?);
        if let Some(old) = &old {
            all.extend(condition_difference(&title, &old.status)?);
        }
        // A conflicting package can't be published, so there is no plan.
        if conflicts.is_empty() {
            match units(&client, old.as_ref(), desired, &target.packages).await {
                Ok(more) => all.extend(more),
                Err(error) => {
                    show(&all)?;
                    return Err(error);
                }
            }
        }
    }
    for package in conflicts {
        note(&format!(
            "{package} is already published with different content; increase its version"
        ));
    }
    show(&all)?;
    Ok(!all.is_empty())
}

/// A difference if the last revision isn't what runs; the document shows only the desired state.
fn condition_difference(title: &str, status: &DeploymentStatus) -> Result<Option<Difference>> {
    let Some(why) = why_not_current(status) else { return Ok(None) };
    let now = json!({"condition": api_name(&status.condition)});
    let desired = json!({"condition": api_name(&Is::Running)});
    let found = differ(&format!("condition of {title}"), Some(&now), Some(&desired))?;
    if found.is_some() {
        note(&format!("{title} {why}"));
    }
    Ok(found)
}

/// Why the last revision isn't running.
fn why_not_current(status: &DeploymentStatus) -> Option<&'static str> {
    let outdated = status.units.iter().any(|unit| {
        // Nothing is known about units on an unreachable cluster.
        !unit.current && unit.condition != Condition::Deleted && unit.contact == Contact::Fresh
    });
    match status.condition {
        Is::RollingBack => Some("failed and is being rolled back to the previous revision"),
        Is::RolledBack => Some("failed and was rolled back; the previous revision is running"),
        Is::Deleting | Is::Deleted => Some("is being deleted"),
        _ if outdated => Some("is not rolled out yet"),
        _ => None,
    }
}

async fn units(
    client: &Client,
    old: Option<&Deployment>,
    desired: &OClassDeployment,
    packages: &[OPackage],
) -> Result<Vec<Difference>> {
    let plan = super::plan::fetch(client, desired, packages).await?;
    let previous = old.map(|it| it.plan.units.as_slice()).unwrap_or_default();
    let mut all = Vec::new();
    let title = |unit: &UnitPlan| format!("unit {} on {}", unit.id, unit.cluster);
    for unit in &plan.units {
        let before = previous.iter().find(|it| it.id == unit.id);
        all.extend(differ(&title(unit), before.map(|it| &it.spec), Some(&unit.spec))?);
    }
    for unit in previous.iter().filter(|it| plan.units.iter().all(|new| new.id != it.id)) {
        all.extend(differ(&title(unit), Some(&unit.spec), None)?);
    }
    Ok(all)
}

/// `None` if both are equal.
fn differ<T: Serialize>(
    object: &str,
    current: Option<&T>,
    desired: Option<&T>,
) -> Result<Option<Difference>> {
    let text = |it: Option<&T>| it.map(serde_saphyr::to_string).transpose();
    let texts = (text(current)?.unwrap_or_default(), text(desired)?.unwrap_or_default());
    if texts.0 == texts.1 {
        return Ok(None);
    }
    let (current, desired) = (serde_json::to_value(current)?, serde_json::to_value(desired)?);
    Ok(Some(Difference { object: object.to_owned(), current, desired, texts }))
}

impl Difference {
    /// A unified diff.
    fn patch(&self) -> String {
        let title = sanitize(&self.object);
        let mut patch = format!("--- {title} (current)\n+++ {title} (desired)\n");
        let diff = TextDiff::from_lines(&self.texts.0, &self.texts.1);
        for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
            let _ = writeln!(patch, "{}", hunk.header());
            for change in hunk.iter_changes() {
                let line = sanitize(change.value().trim_end_matches('\n'));
                let line = match change.tag() {
                    ChangeTag::Delete => paint(Tone::Bad, &format!("-{line}")),
                    ChangeTag::Insert => paint(Tone::Good, &format!("+{line}")),
                    ChangeTag::Equal => format!(" {line}"),
                };
                let _ = writeln!(patch, "{line}");
            }
        }
        patch
    }
}

#[cfg(test)]
mod tests {
    use oprc_rest::UnitStatus;

    use super::*;

    #[test]
    fn a_rolled_back_deployment_differs() {
        let status = |condition, current, contact| {
            let unit = UnitStatus { current, contact, ..UnitStatus::default() };
            DeploymentStatus { condition, units: vec![unit], ..DeploymentStatus::default() }
        };
        let differs = |status: &DeploymentStatus| condition_difference("a", status).unwrap();
        for is in [Is::RollingBack, Is::RolledBack, Is::Deleting] {
            let found = differs(&status(is, true, Contact::Fresh)).unwrap();
            assert_eq!(found.current, json!({"condition": api_name(&is)}));
        }
        assert!(differs(&status(Is::Deploying, false, Contact::Fresh)).is_some());
        assert!(differs(&status(Is::Running, true, Contact::Fresh)).is_none());
        assert!(differs(&status(Is::Down, false, Contact::Stale)).is_none());
    }

    #[test]
    fn renders_differences_as_patch_and_json() {
        let (one, two) = (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}));
        let found = differ("deployment a", Some(&one), Some(&two)).unwrap().unwrap();
        let plain = anstream::adapter::strip_str(&found.patch()).to_string();
        assert_eq!(
            plain,
            "--- deployment a (current)\n+++ deployment a (desired)\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"
        );
        let document = json!({"object": "deployment a", "current": one, "desired": two});
        assert_eq!(serde_json::to_value(&found).unwrap(), document);
        assert!(differ("a", Some(&one), Some(&one)).unwrap().is_none());
        let new = differ("a", None, Some(&one)).unwrap().unwrap();
        assert!(new.current.is_null() && new.patch().contains("+a: 1"), "{new:?}");
        let deleted = differ("a", Some(&one), None).unwrap().unwrap();
        assert!(deleted.desired.is_null() && deleted.patch().contains("-a: 1"), "{deleted:?}");
    }
}
