//! Local sandbox clusters, with PM as a process next to the first.

use anyhow::Result;
use oprc_sandbox::{Cluster, Error, NodeKind, Options, Spec, image, supervisor::Action};

use super::{Up, install, local_pm, save_context};
use crate::{
    connection::ConnectionArgs,
    contexts::{Context, KubeconfigRef},
    output::{note, step},
};

/// CRM, and what the samples run.
const IMAGES: [&str; 6] =
    ["oprc-crm", "hello-fn", "oprc-odgm", "oprc-proxy", "sample-fns", "counter-py"];

/// The requested clusters, then existing ones of the same owner.
fn names(name: &str, count: u8, owned: Vec<String>) -> Vec<String> {
    let further = (2..=count).map(|at| format!("{name}-{at}"));
    let mut names: Vec<_> = [name.to_owned()].into_iter().chain(further).collect();
    names.extend(owned.into_iter().filter(|it| !names.contains(it)).collect::<Vec<_>>());
    names
}

/// Returns whether the nodes run containers.
pub(super) async fn up(command: &Up) -> Result<bool> {
    let options = Options {
        node: command.node.into(),
        prometheus: true,
        knative: command.knative,
        ..Options::default()
    };
    let names = names(&command.name, command.clusters, Spec::owned_by(&command.name)?);
    let kept = names.len() - usize::from(command.clusters);
    if kept > 0 {
        note(&format!("keeping {kept} existing clusters; `oprc down` deletes all of them"));
    }
    let (mut clusters, mut crms) = (Vec::new(), Vec::new());
    for name in names {
        note(&format!("cluster {name}:"));
        let owner = (name != command.name).then_some(command.name.as_str());
        let cluster = Cluster::up_owned_by(&name, &options, owner).await?;
        if owner.is_some() && cluster.spec().owner.as_deref() != owner {
            note(&format!("cluster {name} already existed; `oprc down` will not delete it"));
        }
        crms.push((name, install_crm(&cluster, command).await?));
        clusters.push(cluster);
    }
    let Some(first) = clusters.first() else { return Ok(false) };
    let pm = step("Starting oprc-pm", local_pm::start_pm(first, &crms)).await?;
    let kube = |it: &Cluster| {
        let kube = KubeconfigRef { kubeconfig: Some(it.kubeconfig()), context: None };
        (it.spec().name.clone(), kube)
    };
    let context = Context { clusters: clusters.iter().map(kube).collect(), ..pm };
    let waiting = format!("Waiting for oprc-pm at {}", context.server);
    save_context(&command.name, context)?;
    let client = ConnectionArgs::of_context(&command.name).client().await?;
    if let Err(error) = step(&waiting, super::wait_for_pm(&client)).await {
        return Err(local_pm::with_component_state(first, "pm", &error).await);
    }
    let runs_containers = clusters.iter().all(|it| it.spec().kind == NodeKind::Real);
    if !runs_containers {
        note("nodes are simulated: classes become Available, but functions cannot be invoked");
    }
    Ok(runs_containers)
}

/// Installs CRM into a cluster, or starts it next to one with simulated nodes. Returns its URL.
async fn install_crm(cluster: &Cluster, command: &Up) -> Result<String> {
    let client = cluster.client().await?;
    if cluster.spec().kind == NodeKind::Simulated {
        let crds = install::apply_manifests(&client, &[install::CRDS], command.images_with(&[]));
        step("Installing CRDs", crds).await?;
        return step("Starting oprc-crm", local_pm::start_crm(cluster)).await;
    }
    let mut loaded = Vec::new();
    for image in IMAGES {
        let archive = command.images.join(format!("{image}.oci.tar"));
        step(&format!("Loading image {image}"), cluster.load_image(&archive)).await?;
        loaded.extend(image::inspect(&archive)?);
    }
    let crm = install::with_variables(install::CRM, &install::SANDBOX_VARIABLES)?;
    let all = [install::CRDS, install::RBAC, &crm];
    let manifests = install::apply_manifests(&client, &all, command.images_with(&loaded));
    step("Installing CRDs and oprc-crm", manifests).await?;
    step("Waiting for oprc-crm", install::wait_for_deployment(&client, "oprc-crm")).await?;
    install::crm_url(&client).await
}

/// Deletes only clusters that `up` created under that name.
pub(super) async fn down(name: &str) -> Result<()> {
    let further = Spec::owned_by(name)?;
    if let (false, Ok(first)) = (further.is_empty(), Cluster::open(name)) {
        // PM stops before its clusters; an error means that it isn't running.
        let _ = first.supervisor().act("pm", Action::Stop).await;
    }
    // The first is deleted last: while it exists, `down` can be repeated.
    for it in further.iter().map(String::as_str).chain([name]) {
        match Cluster::down(it).await {
            Ok(()) => note(&format!("cluster {it} deleted")),
            // An interrupted `down` may have deleted it before.
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
    fn keeps_existing_clusters() {
        let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(names("oprc", 3, owned(&[])), ["oprc", "oprc-2", "oprc-3"]);
        assert_eq!(names("oprc", 1, owned(&["oprc-2"])), ["oprc", "oprc-2"]);
        assert_eq!(names("oprc", 2, owned(&["oprc-2"])), ["oprc", "oprc-2"]);
    }
}
