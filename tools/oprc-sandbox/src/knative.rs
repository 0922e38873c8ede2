//! Knative Serving with Kourier and Envoy, installed from the manifests in their Go modules.

use std::{path::Path, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::{Value, json};

use crate::{
    Result,
    apply::{apply, deployment_ready, documents, within},
    command::blocking,
    files,
    image::Image,
    image_loader::ImageLoader,
    programs::Knative,
    progress::Step,
};

/// Knative doesn't resolve tags of this registry and of oprc.local to digests.
const REGISTRY: &str = "dev.local";
const PROGRAMS: [&str; 5] = ["activator", "autoscaler", "controller", "queue", "webhook"];
const READY_TIMEOUT: Duration = Duration::from_mins(5);
const ENVOY: &str = "/usr/local/bin/envoy";

/// Loads the images, applies the manifests and waits until the Deployments are ready.
pub(crate) async fn install(client: &Client, loader: &ImageLoader) -> Result<()> {
    let programs = blocking(Knative::provide).await?;
    let step = Step::begin("Starting Knative Serving and Kourier");
    let mut images: Vec<_> = PROGRAMS
        .iter()
        .map(|name| Image::of_program(&image_of(name), &programs.serving.join(name)))
        .collect();
    images.push(Image::of_program(&image_of("kourier"), &programs.kourier.join("kourier")));
    images.push(envoy(&programs.envoy));
    loader.load_images(images).await?;

    let mut objects = read(&programs.serving.join("manifests.yaml"))?;
    objects.extend(read(&programs.kourier.join("manifests.yaml"))?);
    let objects = objects.into_iter().filter_map(adapt);
    // CRDs must be established before their objects are applied.
    let (crds, rest): (Vec<_>, Vec<_>) =
        objects.partition(|object| is_kind(object, "CustomResourceDefinition"));
    apply(client, &crds).await?;
    for crd in &crds {
        let name = crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let established = await_condition(api, name, is_crd_established());
        within(&format!("CRD {name} to be established"), READY_TIMEOUT, established).await?;
    }
    apply(client, &rest).await?;
    let deployments = rest.iter().filter(|object| is_kind(object, "Deployment"));
    for (namespace, name) in deployments.filter_map(full_name) {
        deployment_ready(client, namespace, name, READY_TIMEOUT).await?;
    }
    step.done();
    Ok(())
}

fn image_of(program: &str) -> String {
    format!("{REGISTRY}/{program}:oprc")
}

/// Envoy is dynamically linked, so its image contains the C library and the dynamic loader.
fn envoy(program: &Path) -> Image {
    let mut files = vec![(ENVOY.to_owned(), program.to_owned())];
    let folders = ["/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib"];
    let libraries = [
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
        "libc.so.6",
        "libdl.so.2",
        "libm.so.6",
        "libpthread.so.0",
        "librt.so.1",
    ];
    let paths = folders.iter().flat_map(|folder| libraries.map(|it| Path::new(folder).join(it)));
    files
        .extend(paths.filter(|path| path.is_file()).map(|path| (path.display().to_string(), path)));
    Image { name: image_of("envoy"), entrypoint: vec![ENVOY.to_owned()], files }
}

fn read(file: &Path) -> Result<Vec<Value>> {
    // The manifests refer to images by Go packages (ko).
    let mut text = files::read(file)?;
    text = text.replace("ko://knative.dev/net-kourier/cmd/kourier", &image_of("kourier"));
    for name in PROGRAMS {
        text = text.replace(&format!("ko://knative.dev/serving/cmd/{name}"), &image_of(name));
    }
    documents(&text, &[])
}

fn is_kind(object: &Value, kind: &str) -> bool {
    object.get("kind").is_some_and(|found| found == kind)
}

fn full_name(object: &Value) -> Option<(&str, &str)> {
    let metadata = object.get("metadata")?;
    Some((metadata.get("namespace")?.as_str()?, metadata.get("name")?.as_str()?))
}

/// Adapts an object to a sandbox; objects that only make sense in production are omitted.
fn adapt(mut object: Value) -> Option<Value> {
    if ["HorizontalPodAutoscaler", "PodDisruptionBudget"].iter().any(|kind| is_kind(&object, kind))
    {
        return None;
    }
    if is_kind(&object, "Deployment") {
        let containers =
            object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            // Leaves the CPUs of a laptop to functions.
            container.insert("resources".into(), json!({"requests": {"cpu": "20m"}}));
            // The hooks need a shell, which the image doesn't have.
            container.remove("lifecycle");
            let image = container.get("image").and_then(Value::as_str);
            if image.is_some_and(|image| image.contains("envoyproxy")) {
                container.insert("image".into(), image_of("envoy").into());
            }
            if let Some(Value::Object(probe)) = container.get_mut("readinessProbe") {
                probe.insert("initialDelaySeconds".into(), json!(0));
                probe.insert("periodSeconds".into(), json!(1));
            }
        }
    }
    if is_kind(&object, "ConfigMap") {
        let settings = match full_name(&object) {
            Some(("knative-serving", "config-network")) => {
                json!({"ingress-class": "kourier.ingress.networking.knative.dev"})
            }
            Some(("knative-serving", "config-domain")) => json!({"sandbox.test": ""}),
            Some(("knative-serving", "config-deployment")) => {
                json!({"registries-skipping-tag-resolving": format!("oprc.local,{REGISTRY}")})
            }
            Some(("knative-serving", "config-autoscaler")) => {
                // Scales to zero within seconds instead of a minute, for demos and tests.
                json!({"scale-to-zero-grace-period": "10s", "stable-window": "15s"})
            }
            Some(("knative-serving", "config-observability")) => {
                json!({"request-metrics-protocol": "prometheus"})
            }
            _ => json!({}),
        };
        if let (Some(Value::Object(data)), Value::Object(settings)) =
            (object.get_mut("data"), settings)
        {
            data.extend(settings);
        }
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployments_get_small_requests_and_lose_lifecycle_hooks() {
        let object = json!({
            "kind": "Deployment",
            "metadata": {"name": "gateway", "namespace": "kourier-system"},
            "spec": {"template": {"spec": {"containers": [{
                "image": "docker.io/envoyproxy/envoy:v1",
                "resources": {"requests": {"cpu": "1"}},
                "lifecycle": {},
            }]}}},
        });
        let containers =
            adapt(object).unwrap().pointer("/spec/template/spec/containers").cloned().unwrap();
        let resources = json!({"requests": {"cpu": "20m"}});
        assert_eq!(containers, json!([{"image": "dev.local/envoy:oprc", "resources": resources}]));
    }

    #[test]
    fn sets_kourier_as_ingress_class() {
        let object = json!({
            "kind": "ConfigMap",
            "metadata": {"name": "config-network", "namespace": "knative-serving"},
            "data": {"_example": "x"},
        });
        let adapted = adapt(object).unwrap();
        assert_eq!(adapted["data"]["ingress-class"], "kourier.ingress.networking.knative.dev");
    }
}
