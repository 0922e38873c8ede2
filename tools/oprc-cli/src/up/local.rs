//! Clusters of this machine, with a package manager beside the first.

use anyhow::Result;
use oprc_sandbox::{Cluster, Error, NodeKind, Options, Spec, image, supervisor::Action};

use super::{Up, beside, install, keep};
use crate::{
    contexts::{Context, Kube},
    output::say,
    remote::Remote,
};

/// The images of a cluster: what runs in it, and what the samples run.
const IMAGES: [&str; 3] = ["oprc-crm", "hello-fn", "odgm-stand-in"];

/// The clusters of a name: the first is called just so. Those that it has from before stay.
fn names(name: &str, count: u8, owned: Vec<String>) -> Vec<String> {
    let further = (2..=count).map(|at| format!("{name}-{at}"));
    let mut names: Vec<_> = [name.to_owned()].into_iter().chain(further).collect();
    names.extend(owned.into_iter().filter(|it| !names.contains(it)).collect::<Vec<_>>());
    names
}

/// Brings everything up; whether anything runs there that could answer.
pub(super) async fn up(command: &Up) -> Result<bool> {
    let options = Options {
        node: command.node.into(),
        prometheus: true,
        knative: command.knative,
        ..Options::default()
    };
    let names = names(&command.name, command.clusters, Spec::owned_by(&command.name)?);
    if names.len() > usize::from(command.clusters) {
        let told = format!("There are {} clusters from before, and they stay", names.len());
        say(&format!("{told}: `oprc down` ends them all."));
    }
    let (mut clusters, mut crms) = (Vec::new(), Vec::new());
    for name in names {
        let cluster = if name == command.name {
            Cluster::up(&name, &options).await?
        } else {
            Cluster::up_owned_by(&name, &options, &command.name).await?
        };
        if name != command.name && cluster.spec().owner.as_ref() != Some(&command.name) {
            say(&format!("Cluster '{name}' was there already: `oprc down` leaves it."));
        }
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
    let client = Remote::of_context(&command.name).client().await?;
    if let Err(error) = super::ready(&client).await {
        return Err(beside::explain(first, "pm", &error).await);
    }
    let runs = clusters.iter().all(|it| it.spec().kind == NodeKind::Real);
    if !runs {
        say("The nodes are simulated: classes turn Available, and nothing runs that could answer.");
    }
    Ok(runs)
}

/// Brings CRM into a cluster, or beside one whose nodes run nothing; where it is called.
async fn crm(cluster: &Cluster, command: &Up) -> Result<String> {
    let client = cluster.client().await?;
    let mut loaded = Vec::new();
    if cluster.spec().kind == NodeKind::Simulated {
        install::manifests(&client, &[install::CRDS], command.images_with(&loaded)).await?;
        return beside::crm(cluster).await;
    }
    for image in IMAGES {
        let archive = command.images.join(format!("{image}.oci.tar"));
        cluster.load_image(&archive).await?;
        loaded.extend(image::inspect(&archive)?);
    }
    let all = [install::CRDS, install::RBAC, install::CRM];
    install::manifests(&client, &all, command.images_with(&loaded)).await?;
    install::ready(&client, "oprc-crm").await?;
    install::crm_url(&client).await
}

/// Ends the clusters that `up` made under that name, and no other that is only called like them.
pub(super) async fn down(name: &str) -> Result<()> {
    let further = Spec::owned_by(name)?;
    if let (false, Ok(first)) = (further.is_empty(), Cluster::open(name)) {
        // The package manager ends before what it drives; where it doesn't run it has ended.
        let _ = first.supervisor().act("pm", Action::Stop).await;
    }
    // The first goes last: while it is there, whoever ran this knows that not all are gone.
    for it in further.iter().map(String::as_str).chain([name]) {
        match Cluster::down(it).await {
            Ok(()) => say(&format!("Cluster '{it}' is gone.")),
            // An earlier `down` that was interrupted may have ended it.
            Err(Error::UnknownCluster { .. }) if !further.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_counted_and_those_from_before_stay() {
        let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(names("oprc", 3, owned(&[])), ["oprc", "oprc-2", "oprc-3"]);
        assert_eq!(names("oprc", 1, owned(&["oprc-2"])), ["oprc", "oprc-2"]);
        assert_eq!(names("oprc", 2, owned(&["oprc-2"])), ["oprc", "oprc-2"]);
    }
}
