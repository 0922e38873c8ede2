//! `oprc diff`: what would change.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Result;
use oprc_models::{OClassDeployment, OPackage};
use oprc_rest::{Deployment, PackageVersion};
use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use crate::{
    client::{Client, escape},
    failure::{Failure, is_closed_pipe, is_missing},
    output::{Tone, clean, paint, print, say},
    remote::Remote,
    wanted::Wanted,
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
    remote: Remote,
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
        Err(error) if is_closed_pipe(&error) => Err(error),
        Err(error) => Err(Failure::Wrong(format!("{error:#}")).into()),
    }
}

async fn compare(command: Command) -> Result<bool> {
    let client = command.remote.client().await?;
    let settled = command.wanted.settle(&client).await?;
    let (mut text, mut taken) = (String::new(), Vec::new());
    for package in &settled.packages {
        let (name, version) = (escape(&package.name), escape(&package.version.to_string()));
        let path = format!("/packages/{name}/versions/{version}");
        let old = optional::<PackageVersion>(client.get(&path).await)?;
        if old.as_ref().is_some_and(|old| old.package != *package) {
            taken.push(format!("{} {}", package.name, package.version));
        }
        let title = format!("package {} {}", package.name, package.version);
        text.push_str(&differ(&title, old.map(|it| it.package).as_ref(), package)?);
    }
    for wanted in &settled.deployments {
        let path = format!("/deployments/{}", escape(&wanted.key));
        let old = optional::<Deployment>(client.get(&path).await)?;
        let title = format!("deployment {}", wanted.key);
        text.push_str(&differ(&title, old.as_ref().map(|it| &it.deployment), wanted)?);
        // It can't be published, and so not be planned.
        if taken.is_empty() {
            match units(&client, old.as_ref(), wanted, &settled.packages).await {
                Ok(more) => text.push_str(&more),
                Err(error) => {
                    print(&text)?;
                    return Err(error);
                }
            }
        }
    }
    for one in taken {
        say(&format!("{one} is published with other content: this takes a version of its own"));
    }
    print(&text)?;
    Ok(!text.is_empty())
}

/// What would change in the clusters.
async fn units(
    client: &Client,
    old: Option<&Deployment>,
    wanted: &OClassDeployment,
    packages: &[OPackage],
) -> Result<String> {
    let plan = super::plan::ask(client, wanted, packages).await?;
    let had = old.map(|it| it.plan.units.as_slice()).unwrap_or_default();
    let mut text = String::new();
    for unit in &plan.units {
        let before = had.iter().find(|it| it.id == unit.id);
        let title = format!("unit {} on {}", unit.id, unit.cluster);
        text.push_str(&differ(&title, before.map(|it| &it.spec), &unit.spec)?);
    }
    for unit in had.iter().filter(|it| plan.units.iter().all(|new| new.id != it.id)) {
        let title = format!("unit {} on {}", unit.id, unit.cluster);
        text.push_str(&differ(&title, Some(&unit.spec), &serde_json::Value::Null)?);
    }
    Ok(text)
}

fn optional<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What differs between two documents, as a patch; nothing where they are the same.
fn differ<T: Serialize>(title: &str, old: Option<&T>, new: &T) -> Result<String> {
    let old = old.map(serde_saphyr::to_string).transpose()?.unwrap_or_default();
    let mut new = serde_saphyr::to_string(new)?;
    if new.trim() == "null" {
        new.clear();
    }
    if old == new {
        return Ok(String::new());
    }
    let diff = TextDiff::from_lines(&old, &new);
    let title = clean(title);
    let mut text = format!("--- {title} (now)\n+++ {title} (wanted)\n");
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        let _ = writeln!(text, "{}", hunk.header());
        for change in hunk.iter_changes() {
            let line = clean(change.value().trim_end_matches('\n'));
            let line = match change.tag() {
                ChangeTag::Delete => paint(Tone::Bad, &format!("-{line}")),
                ChangeTag::Insert => paint(Tone::Good, &format!("+{line}")),
                ChangeTag::Equal => format!(" {line}"),
            };
            let _ = writeln!(text, "{line}");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_a_patch() {
        let told = differ("deployment a", Some(&json!({"a": 1, "b": 2})), &json!({"a": 1, "b": 3}));
        let plain = anstream::adapter::strip_str(&told.unwrap()).to_string();
        assert_eq!(
            plain,
            "--- deployment a (now)\n+++ deployment a (wanted)\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"
        );
        assert_eq!(differ("a", Some(&json!({"x": 1})), &json!({"x": 1})).unwrap(), "");
        assert!(differ("a", None, &json!({"x": 1})).unwrap().contains("+x: 1"));
    }
}
