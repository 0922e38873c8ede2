//! Clusters of this machine, with a package manager beside the first.

use anyhow::Result;
use oprc_sandbox::{Cluster, NodeKind, Options, Spec};

use super::{Up, beside, install, keep};
use crate::{
    contexts::{Context, Kube},
    output::say,
    remote::Remote,
};

/// No more are made, so no more are looked for.
const MOST: u8 = 8;
/// The images of a cluster: what runs in it, and what the samples run.
const IMAGES: [&str; 3] = ["oprc-crm", "hello-fn", "odgm-stand-in"];

/// The clusters of a name: the first is called just so.
fn names(name: &str, count: u8) -> impl Iterator<Item = String> {
    (1..=count).map(move |at| if at == 1 { name.to_owned() } else { format!("{name}-{at}") })
}

/// Brings everything up; whether anything runs there that could answer.
pub(super) async fn up(command: &Up) -> Result<bool> {
    let options = Options {
        node: command.node.into(),
        prometheus: true,
        knative: command.knative,
        ..Options::default()
    };
    let (mut clusters, mut crms) = (Vec::new(), Vec::new());
    for name in names(&command.name, command.clusters) {
        let cluster = Cluster::up(&name, &options).await?;
        crms.push((name, crm(&cluster, command).await?));
        clusters.push(cluster);
    }
    let Some(first) = clusters.first() else { return Ok(false) };
    let running = beside::package_manager(first, &crms).await?;
    let context = Context {
        server: running.server,
        token_file: Some(running.token),
        clusters: clusters
            .iter()
            .map(|it| {
                let kube = Kube { kubeconfig: Some(it.kubeconfig()), context: None };
                (it.spec().name.clone(), kube)
            })
            .collect(),
        ..Context::default()
    };
    say(&format!("The package manager is at {}.", context.server));
    keep(&command.name, context)?;
    super::ready(&Remote::of_context(&command.name).client().await?).await?;
    let runs = clusters.iter().all(|it| it.spec().kind == NodeKind::Real);
    if !runs {
        say("The nodes are simulated: classes turn Available, and nothing runs that could answer.");
    }
    Ok(runs)
}

/// Brings CRM into a cluster, or beside one whose nodes run nothing; where it is called.
async fn crm(cluster: &Cluster, command: &Up) -> Result<String> {
    let client = cluster.client().await?;
    let images = install::Images { registry: install::REGISTRY, tag: install::TAG };
    if cluster.spec().kind == NodeKind::Simulated {
        install::manifests(&client, &[install::CRDS], images).await?;
        return beside::crm(cluster).await;
    }
    for image in IMAGES {
        cluster.load_image(&command.images.join(format!("{image}.oci.tar"))).await?;
    }
    let all = [install::CRDS, install::RBAC, install::CRM];
    install::manifests(&client, &all, images).await?;
    install::ready(&client, "oprc-crm").await?;
    install::crm_url(&client).await
}

/// Ends the clusters that `up` made under that name, and no other that is only called like them.
pub(super) async fn down(name: &str) -> Result<()> {
    let known = Spec::names()?;
    let made = beside::clusters(&Spec::folder_of(name)?);
    let ours: Vec<_> = names(name, MOST)
        .filter(|it| known.contains(it) && (it == name || made.contains(it)))
        .collect();
    if ours.is_empty() {
        // It says that there is none, and which there are.
        return Ok(Cluster::down(name).await?);
    }
    // The package manager is beside the first: it ends before what it drives.
    for name in ours {
        Cluster::down(&name).await?;
        say(&format!("Cluster '{name}' is gone."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_counted() {
        assert_eq!(names("oprc", 3).collect::<Vec<_>>(), ["oprc", "oprc-2", "oprc-3"]);
    }
}
