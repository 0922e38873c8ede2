//! What is brought into a cluster: the definition of classes, CRM with its permissions, and the
//! package manager where it is to run there.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, Client, api::ListParams};
use oprc_sandbox::{apply, deployment_ready, documents, image::ImageRef};
use serde_json::Value;

use crate::{
    failure::Failure,
    kube::{PodLine, within},
};

/// Where CRM and the package manager are.
pub(super) const NAMESPACE: &str = "oaas-system";
/// What images are called where nothing else is said.
pub(super) const REGISTRY: &str = "oprc.local";
/// Their tag.
pub(super) const TAG: &str = "dev";
/// The definition of classes.
pub(super) const CRDS: &str = include_str!("../../../../k8s/crds/classruntimes.gen.yaml");
/// What CRM may do.
pub(super) const RBAC: &str = include_str!("../../../../k8s/rbac/crm-rbac.yaml");
/// CRM.
pub(super) const CRM: &str = include_str!("../../../../k8s/deploy/crm.yaml");
/// The package manager.
pub(super) const PM: &str = include_str!("../../../../k8s/deploy/pm.yaml");

/// How long a Deployment may take to be ready: images may have to be pulled.
const READY: Duration = Duration::from_mins(3);

/// Which image a pod was made for, on its template.
const IMAGE: &str = "oaas.io/image-digest";

/// Where images come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Images<'a> {
    pub(super) registry: &'a str,
    pub(super) tag: &'a str,
    /// Those that were loaded into the nodes.
    pub(super) loaded: &'a [ImageRef],
}

impl Images<'_> {
    pub(super) fn named(self, manifest: &str) -> String {
        let Self { registry, tag, .. } = self;
        let lines = manifest.lines().map(|line| match line.split_once(REGISTRY) {
            Some((before, image)) => {
                let image = image.replace(&format!(":{TAG}"), &format!(":{tag}"));
                format!("{before}{registry}{image}\n")
            }
            None => format!("{line}\n"),
        });
        lines.collect()
    }

    /// Notes on a workload which image was loaded for it. One that is loaded anew under the same
    /// name would change nothing, and what runs would stay the old one.
    fn note(self, document: &mut Value) {
        let image = document.pointer("/spec/template/spec/containers/0/image");
        let image = image.and_then(Value::as_str);
        let loaded = self.loaded.iter().find(|it| Some(it.name.as_str()) == image);
        let notes = document.pointer_mut("/spec/template/metadata/annotations");
        if let (Some(loaded), Some(notes)) = (loaded, notes.and_then(Value::as_object_mut)) {
            notes.insert(IMAGE.to_owned(), loaded.digest.as_str().into());
        }
    }
}

/// Applies manifests.
pub(super) async fn manifests(client: &Client, texts: &[&str], images: Images<'_>) -> Result<()> {
    for text in texts {
        let mut documents = documents(&images.named(text), &[])?;
        for document in &mut documents {
            images.note(document);
        }
        apply(client, &documents).await?;
    }
    Ok(())
}

/// Waits until a Deployment of ours is ready; tells why its pods aren't where it doesn't come.
pub(super) async fn ready(client: &Client, name: &str) -> Result<()> {
    let Err(error) = deployment_ready(client, NAMESPACE, name, READY).await else { return Ok(()) };
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pods = within(pods.list(&ListParams::default().labels(&format!("app={name}")))).await;
    let lines = pods.map(|pods| pods.items.iter().map(|pod| PodLine::from(pod).tell()).collect());
    let lines: Vec<String> = lines.unwrap_or_default();
    let hint = "images that nobody can pull go into nodes by `kind load image-archive` and the like, \
                or name a --registry that has them";
    Err(Failure::Failed(format!("{error}\n  {}\nhint: {hint}", lines.join("\n  "))).into())
}

/// Where CRM is called, from wherever the cluster's services are.
pub(super) async fn crm_url(client: &Client) -> Result<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = within(services.get("oprc-crm")).await?;
    let address = service.spec.and_then(|spec| spec.cluster_ip);
    Ok(format!("http://{}:8088", address.context("the service of CRM has no address")?))
}

#[cfg(test)]
mod tests {
    use super::{super::SAMPLE, *};

    #[test]
    fn images_are_named_after_their_registry() {
        let images = Images { registry: "registry.example/oaas", tag: "1.2", loaded: &[] };
        let usual = Images { registry: REGISTRY, tag: TAG, loaded: &[] };
        for (manifest, image) in [(CRM, "oprc-crm"), (PM, "oprc-pm"), (SAMPLE, "hello-fn")] {
            let named = images.named(manifest);
            assert!(!named.contains(REGISTRY), "{named}");
            let image = format!("image: registry.example/oaas/{image}:1.2\n");
            assert!(named.contains(&image), "{named}");
            assert_eq!(usual.named(manifest), manifest);
        }
    }

    #[test]
    fn an_image_that_was_loaded_anew_is_rolled_out() {
        let noted = |digest: &str| {
            let (name, digest) = ("oprc.local/oprc-crm:dev".to_owned(), digest.to_owned());
            let loaded = [ImageRef { name, digest }];
            let images = Images { registry: REGISTRY, tag: TAG, loaded: &loaded };
            let mut documents = documents(CRM, &[]).unwrap();
            for document in &mut documents {
                images.note(document);
            }
            documents
        };
        assert_eq!(noted("sha256:1"), noted("sha256:1"));
        assert_ne!(noted("sha256:1"), noted("sha256:2"));
        let notes = noted("sha256:1")[0].pointer("/spec/template/metadata/annotations").cloned();
        let notes = notes.unwrap();
        assert_eq!(notes[IMAGE], "sha256:1");
        assert_eq!(notes["prometheus.io/port"], "8088");
    }

    #[test]
    fn manifests_can_be_read() {
        for manifest in [CRDS, RBAC, CRM, PM] {
            assert!(!documents(manifest, &[]).unwrap().is_empty());
        }
    }
}
