//! Manifests that are applied to a cluster: CRDs, RBAC, CRM and PM.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, Client, api::ListParams};
use oprc_sandbox::{apply, deployment_ready, documents, image::ImageRef};
use serde_json::{Value, json};

use crate::{
    error::CliError,
    kube::{PodSummary, with_timeout},
};

pub(super) const NAMESPACE: &str = "oaas-system";
pub(super) const DEFAULT_REGISTRY: &str = "oprc.local";
pub(super) const DEFAULT_TAG: &str = "dev";
pub(super) const CRDS: &str = include_str!("../../../../k8s/crds/classruntimes.gen.yaml");
pub(super) const RBAC: &str = include_str!("../../../../k8s/rbac/crm-rbac.yaml");
pub(super) const CRM: &str = include_str!("../../../../k8s/deploy/crm.yaml");
pub(super) const PM: &str = include_str!("../../../../k8s/deploy/pm.yaml");

/// Includes pulling images.
const ROLLOUT_TIMEOUT: Duration = Duration::from_mins(3);

/// Pod template annotation with the digest of the loaded image.
const IMAGE_DIGEST: &str = "oaas.io/image-digest";

/// Variables of CRM in a sandbox, whose Prometheus scrapes by itself every 5 s.
pub(super) const SANDBOX_VARIABLES: [(&str, &str); 4] = [
    ("OPRC_CRM_FEATURES_PROMETHEUS", "true"),
    ("OPRC_CRM_PROM_URL", "http://prometheus.monitoring.svc:9090"),
    ("OPRC_CRM_PROM_SCRAPE_KIND", "none"),
    ("OPRC_CRM_PROM_SCRAPE_INTERVAL", "5s"),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Images<'a> {
    pub(super) registry: &'a str,
    pub(super) tag: &'a str,
    /// Images that were loaded into the nodes.
    pub(super) loaded: &'a [ImageRef],
}

impl Images<'_> {
    /// Replaces registry and tag of all images in a manifest.
    pub(super) fn rewrite(self, manifest: &str) -> String {
        let Self { registry, tag, .. } = self;
        let lines = manifest.lines().map(|line| match line.split_once(DEFAULT_REGISTRY) {
            Some((before, image)) => {
                let image = image.replace(&format!(":{DEFAULT_TAG}"), &format!(":{tag}"));
                format!("{before}{registry}{image}\n")
            }
            None => format!("{line}\n"),
        });
        lines.collect()
    }

    /// Annotates a workload with the digest of its loaded image, so that a new image with the same
    /// name triggers a rollout.
    fn annotate(self, document: &mut Value) {
        let image = document.pointer("/spec/template/spec/containers/0/image");
        let image = image.and_then(Value::as_str);
        let loaded = self.loaded.iter().find(|it| Some(it.name.as_str()) == image);
        let annotations = document.pointer_mut("/spec/template/metadata/annotations");
        if let (Some(loaded), Some(annotations)) =
            (loaded, annotations.and_then(Value::as_object_mut))
        {
            annotations.insert(IMAGE_DIGEST.to_owned(), loaded.digest.as_str().into());
        }
    }
}

pub(super) async fn apply_manifests(
    client: &Client,
    texts: &[&str],
    images: Images<'_>,
) -> Result<()> {
    for text in texts {
        let mut documents = documents(&images.rewrite(text), &[])?;
        for document in &mut documents {
            images.annotate(document);
        }
        apply(client, &documents).await?;
    }
    Ok(())
}

/// Adds variables to the first container of all Deployments of a manifest.
pub(super) fn with_variables(manifest: &str, variables: &[(&str, &str)]) -> Result<String> {
    let mut documents = documents(manifest, &[])?;
    for document in &mut documents {
        let env = document.pointer_mut("/spec/template/spec/containers/0/env");
        if let Some(env) = env.and_then(Value::as_array_mut) {
            env.extend(variables.iter().map(|(name, value)| json!({"name": name, "value": value})));
        }
    }
    let documents = documents.iter().map(serde_json::to_string_pretty);
    Ok(documents.collect::<Result<Vec<_>, _>>()?.join("\n---\n"))
}

/// Waits until a Deployment is rolled out; the error lists its pods.
pub(super) async fn wait_for_deployment(client: &Client, name: &str) -> Result<()> {
    let Err(error) = deployment_ready(client, NAMESPACE, name, ROLLOUT_TIMEOUT).await else {
        return Ok(());
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pods = with_timeout(pods.list(&ListParams::default().labels(&format!("app={name}")))).await;
    let pods = pods.into_iter().flat_map(|pods| pods.items);
    let lines: Vec<_> = pods.map(|pod| PodSummary::from(&pod).describe()).collect();
    let hint = "if an image cannot be pulled, load it into the nodes (`kind load image-archive`) or set \
                --registry";
    bail!(CliError::Failed(format!("{error}\n  {}\nhint: {hint}", lines.join("\n  "))))
}

/// URL of CRM's Service inside the cluster.
pub(super) async fn crm_url(client: &Client) -> Result<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = with_timeout(services.get("oprc-crm")).await?;
    let address = service.spec.and_then(|spec| spec.cluster_ip);
    Ok(format!("http://{}:8088", address.context("Service oprc-crm has no cluster IP")?))
}

#[cfg(test)]
mod tests {
    use super::{super::SAMPLE, *};

    #[test]
    fn rewrites_registry_and_tag() {
        let images = Images { registry: "registry.example/oaas", tag: "1.2", loaded: &[] };
        let default = Images { registry: DEFAULT_REGISTRY, tag: DEFAULT_TAG, loaded: &[] };
        for (manifest, image) in [(CRM, "oprc-crm"), (PM, "oprc-pm"), (SAMPLE, "hello-fn")] {
            let rewritten = images.rewrite(manifest);
            assert!(!rewritten.contains(DEFAULT_REGISTRY), "{rewritten}");
            let image = format!("image: registry.example/oaas/{image}:1.2\n");
            assert!(rewritten.contains(&image), "{rewritten}");
            assert_eq!(default.rewrite(manifest), manifest);
        }
    }

    #[test]
    fn a_new_image_digest_changes_the_pod_template() {
        let annotated = |digest: &str| {
            let (name, digest) = ("oprc.local/oprc-crm:dev".to_owned(), digest.to_owned());
            let loaded = [ImageRef { name, digest }];
            let images = Images { registry: DEFAULT_REGISTRY, tag: DEFAULT_TAG, loaded: &loaded };
            let mut documents = documents(CRM, &[]).unwrap();
            for document in &mut documents {
                images.annotate(document);
            }
            documents
        };
        assert_eq!(annotated("sha256:1"), annotated("sha256:1"));
        assert_ne!(annotated("sha256:1"), annotated("sha256:2"));
        let annotations =
            annotated("sha256:1")[0].pointer("/spec/template/metadata/annotations").cloned();
        let annotations = annotations.unwrap();
        assert_eq!(annotations[IMAGE_DIGEST], "sha256:1");
        assert_eq!(annotations["prometheus.io/port"], "8088");
    }

    #[test]
    fn variables_are_added_to_the_container() {
        let manifest = with_variables(CRM, &SANDBOX_VARIABLES).unwrap();
        let documents = documents(&manifest, &[]).unwrap();
        assert_eq!(documents.len(), super::documents(CRM, &[]).unwrap().len());
        let env = documents[0].pointer("/spec/template/spec/containers/0/env").unwrap();
        let env = env.as_array().unwrap();
        assert!(env.contains(&json!({"name": "OPRC_CRM_FEATURES_PROMETHEUS", "value": "true"})));
        assert!(env.contains(&json!({"name": "OPRC_CRM_PROFILE", "value": "dev"})));
    }

    #[test]
    fn manifests_are_valid_yaml() {
        for manifest in [CRDS, RBAC, CRM, PM] {
            assert!(!documents(manifest, &[]).unwrap().is_empty());
        }
    }
}
