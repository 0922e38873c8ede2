//! `oprc diff`: what would change.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Result;
use oprc_models::{OClassDeployment, OPackage};
use oprc_rest::{
    Condition, Contact, Deployment, DeploymentCondition as Is, DeploymentStatus, PackageVersion,
};
use serde::Serialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::{
    client::{Client, escape},
    failure::{Failure, is_missing},
    output::{Format, Show, Tone, clean, paint, say},
    remote::Remote,
    wanted::Wanted,
    words::word,
};

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 nothing differs, 1 something does, more where it can't be told.\n\nExamples:\n  oprc diff examples/packages/hello.yaml\n  oprc diff hello@0.2.0 || oprc deploy hello@0.2.0"
)]
pub(crate) struct Command {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    remote: Remote,
}

/// Something that differs.
#[derive(Debug, Serialize)]
struct Difference {
    what: String,
    /// How it is; nothing where it isn't there.
    now: Value,
    /// How it is to be; nothing where it is to go.
    wanted: Value,
    /// Both as people write them, with fields in their own order.
    #[serde(skip)]
    texts: (String, String),
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    // One is for what differs.
    match compare(command).await {
        Ok(true) => Ok(ExitCode::FAILURE),
        Ok(false) => Ok(ExitCode::SUCCESS),
        Err(error) if error.is::<Failure>() => match error.downcast() {
            Ok(Failure::Failed(why)) => Err(Failure::Wrong(why).into()),
            Ok(other) => Err(other.into()),
            Err(error) => Err(error),
        },
        Err(error) => Err(Failure::Wrong(format!("{error:#}")).into()),
    }
}

async fn compare(command: Command) -> Result<bool> {
    command.show.refuse(&[Format::Name, Format::Wide])?;
    let client = command.remote.client().await?;
    let settled = command.wanted.settle(&client).await?;
    let (mut all, mut taken) = (Vec::new(), Vec::new());
    let show = |all: &Vec<Difference>| {
        command.show.beside_code(all, |all| all.iter().map(Difference::patch).collect())
    };
    for package in &settled.packages {
        let (name, version) = (escape(&package.name), escape(&package.version.to_string()));
        let path = format!("/packages/{name}/versions/{version}");
        let old = optional::<PackageVersion>(client.get(&path).await)?;
        if old.as_ref().is_some_and(|old| old.package != *package) {
            taken.push(format!("{} {}", package.name, package.version));
        }
        let title = format!("package {} {}", package.name, package.version);
        all.extend(differ(&title, old.map(|it| it.package).as_ref(), Some(package))?);
    }
    for wanted in &settled.deployments {
        let path = format!("/deployments/{}", escape(&wanted.key));
        let old = optional::<Deployment>(client.get(&path).await)?;
        let title = format!("deployment {}", wanted.key);
        all.extend(differ(&title, old.as_ref().map(|it| &it.deployment), Some(wanted))?);
        if let Some(old) = &old {
            all.extend(condition(&title, &old.status)?);
        }
        // It can't be published, and so not be planned.
        if taken.is_empty() {
            match units(&client, old.as_ref(), wanted, &settled.packages).await {
                Ok(more) => all.extend(more),
                Err(error) => {
                    show(&all)?;
                    return Err(error);
                }
            }
        }
    }
    for one in taken {
        say(&format!("{one} is published with other content: this takes a version of its own"));
    }
    show(&all)?;
    Ok(!all.is_empty())
}

/// That what was wanted last isn't what runs: its document tells only what was wanted.
fn condition(title: &str, status: &DeploymentStatus) -> Result<Option<Difference>> {
    let Some(why) = unmet(status) else { return Ok(None) };
    let now = json!({"condition": word(&status.condition)});
    let wanted = json!({"condition": word(&Is::Running)});
    let found = differ(&format!("condition of {title}"), Some(&now), Some(&wanted))?;
    if found.is_some() {
        say(&clean(&format!("{title} {why}")));
    }
    Ok(found)
}

/// Why what was wanted last isn't what runs, where it isn't.
fn unmet(status: &DeploymentStatus) -> Option<&'static str> {
    let late = status.units.iter().any(|unit| {
        // Of a cluster that is away nothing is known.
        !unit.current && unit.condition != Condition::Deleted && unit.contact == Contact::Fresh
    });
    match status.condition {
        Is::RollingBack => Some("failed: what was before it is being brought back"),
        Is::RolledBack => Some("failed and was rolled back: what runs is what was before it"),
        Is::Deleting | Is::Deleted => Some("is being deleted"),
        _ if late => Some("isn't yet what runs"),
        _ => None,
    }
}

/// What would change in the clusters.
async fn units(
    client: &Client,
    old: Option<&Deployment>,
    wanted: &OClassDeployment,
    packages: &[OPackage],
) -> Result<Vec<Difference>> {
    let plan = super::plan::ask(client, wanted, packages).await?;
    let had = old.map(|it| it.plan.units.as_slice()).unwrap_or_default();
    let mut all = Vec::new();
    for unit in &plan.units {
        let before = had.iter().find(|it| it.id == unit.id);
        let title = format!("unit {} on {}", unit.id, unit.cluster);
        all.extend(differ(&title, before.map(|it| &it.spec), Some(&unit.spec))?);
    }
    for unit in had.iter().filter(|it| plan.units.iter().all(|new| new.id != it.id)) {
        let title = format!("unit {} on {}", unit.id, unit.cluster);
        all.extend(differ(&title, Some(&unit.spec), None)?);
    }
    Ok(all)
}

fn optional<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What differs between two documents; nothing where they are the same.
fn differ<T: Serialize>(
    what: &str,
    now: Option<&T>,
    wanted: Option<&T>,
) -> Result<Option<Difference>> {
    let text = |it: Option<&T>| it.map(serde_saphyr::to_string).transpose();
    let texts = (text(now)?.unwrap_or_default(), text(wanted)?.unwrap_or_default());
    if texts.0 == texts.1 {
        return Ok(None);
    }
    let (now, wanted) = (serde_json::to_value(now)?, serde_json::to_value(wanted)?);
    Ok(Some(Difference { what: what.to_owned(), now, wanted, texts }))
}

impl Difference {
    /// As a patch, for people.
    fn patch(&self) -> String {
        let title = clean(&self.what);
        let mut patch = format!("--- {title} (now)\n+++ {title} (wanted)\n");
        let diff = TextDiff::from_lines(&self.texts.0, &self.texts.1);
        for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
            let _ = writeln!(patch, "{}", hunk.header());
            for change in hunk.iter_changes() {
                let line = clean(change.value().trim_end_matches('\n'));
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
    fn what_was_rolled_back_differs() {
        let status = |condition, current, contact| {
            let unit = UnitStatus { current, contact, ..UnitStatus::default() };
            DeploymentStatus { condition, units: vec![unit], ..DeploymentStatus::default() }
        };
        let differs = |status: &DeploymentStatus| condition("a", status).unwrap();
        for is in [Is::RollingBack, Is::RolledBack, Is::Deleting] {
            let found = differs(&status(is, true, Contact::Fresh)).unwrap();
            assert_eq!(found.now, json!({"condition": word(&is)}));
        }
        assert!(differs(&status(Is::Deploying, false, Contact::Fresh)).is_some());
        assert!(differs(&status(Is::Running, true, Contact::Fresh)).is_none());
        assert!(differs(&status(Is::Down, false, Contact::Stale)).is_none());
    }

    #[test]
    fn what_differs_is_a_patch_or_a_document() {
        let (one, two) = (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}));
        let found = differ("deployment a", Some(&one), Some(&two)).unwrap().unwrap();
        let plain = anstream::adapter::strip_str(&found.patch()).to_string();
        assert_eq!(
            plain,
            "--- deployment a (now)\n+++ deployment a (wanted)\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"
        );
        let document = json!({"what": "deployment a", "now": one, "wanted": two});
        assert_eq!(serde_json::to_value(&found).unwrap(), document);
        assert!(differ("a", Some(&one), Some(&one)).unwrap().is_none());
        let new = differ("a", None, Some(&one)).unwrap().unwrap();
        assert!(new.now.is_null() && new.patch().contains("+a: 1"), "{new:?}");
        let gone = differ("a", Some(&one), None).unwrap().unwrap();
        assert!(gone.wanted.is_null() && gone.patch().contains("-a: 1"), "{gone:?}");
    }
}
