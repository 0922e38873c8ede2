//! What is installed into a cluster in addition to Kubernetes.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::{
    Error, Result,
    apply::{apply, deployment_ready, documents, node_ready},
    command::blocking,
    files,
    image::Image,
    image_loader::ImageLoader,
    knative,
    layout::Layout,
    node, programs,
    progress::Step,
    prometheus,
    spec::{NodeKind, Spec},
};

/// Number of PersistentVolumes; released ones must be deleted by hand.
const VOLUMES: u8 = 40;
const READY_TIMEOUT: Duration = Duration::from_mins(5);

/// Loads the images of system pods into real nodes.
pub(crate) async fn load_images(spec: &Spec) -> Result<Option<ImageLoader>> {
    if spec.kind == NodeKind::Simulated {
        return Ok(None);
    }
    let programs = &spec.programs;
    let images = vec![
        Image::of_program(node::PAUSE_IMAGE, &programs.pause),
        Image::of_program("localhost/oprc-metrics-server:1", &programs.metrics_server),
        Image::of_program("localhost/oprc-coredns:1", &programs.coredns),
    ];
    let loader = ImageLoader::connect(spec).await?;
    loader.load_images(images).await?;
    Ok(Some(loader))
}

/// Installs the addons and waits until nodes and addons are ready.
pub(crate) async fn install(
    spec: &Spec,
    layout: &Layout,
    client: &Client,
    loader: Option<&ImageLoader>,
    since: Option<Timestamp>,
) -> Result<()> {
    let nodes = spec.node_names();
    let step = Step::begin(match spec.kind {
        NodeKind::Real => format!("Waiting for {} real node(s)", nodes.len()),
        NodeKind::Simulated => format!("Creating {} simulated node(s)", nodes.len()),
    });
    if spec.kind == NodeKind::Simulated {
        apply(client, &nodes.iter().map(|name| simulated_node(name)).collect::<Vec<_>>()).await?;
    }
    for node in &nodes {
        node_ready(client, node, since, READY_TIMEOUT).await?;
    }
    step.done();
    if spec.prometheus {
        apply(client, &documents(include_str!("../manifests/prometheus.yaml"), &[])?).await?;
        let crds = files::read(&blocking(programs::monitor_definitions).await?)?;
        apply(client, &documents(&crds, &[])?).await?;
    }
    if let Some(loader) = loader {
        install_on_real_nodes(spec, layout, client, loader).await?;
    }
    if spec.prometheus {
        let step = Step::begin("Waiting for Prometheus");
        prometheus::ready(spec, READY_TIMEOUT).await?;
        step.done();
    }
    Ok(())
}

async fn install_on_real_nodes(
    spec: &Spec,
    layout: &Layout,
    client: &Client,
    loader: &ImageLoader,
) -> Result<()> {
    let step = Step::begin("Starting CoreDNS and metrics-server");
    let dns = [("DNS", spec.addresses().service(10).to_string())];
    // metrics-server first, because it takes longest to become ready.
    apply(client, &documents(include_str!("../manifests/metrics-server.yaml"), &[])?).await?;
    apply(client, &documents(include_str!("../manifests/coredns.yaml"), &dns)?).await?;
    apply(client, &storage(layout)?).await?;
    if spec.prometheus {
        let text = include_str!("../manifests/prometheus-service.yaml");
        let (host, port) = (spec.host().to_string(), spec.ports.prometheus.to_string());
        apply(client, &documents(text, &[("HOST", host), ("PORT", port)])?).await?;
    }
    deployment_ready(client, "kube-system", "coredns", READY_TIMEOUT).await?;
    deployment_ready(client, "kube-system", "metrics-server", READY_TIMEOUT).await?;
    step.done();
    if spec.knative { knative::install(client, loader).await } else { Ok(()) }
}

/// A node that KWOK manages.
fn simulated_node(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
        },
    })
}

/// The default StorageClass, and PersistentVolumes in folders of this machine.
fn storage(layout: &Layout) -> Result<Vec<Value>> {
    let mut objects = vec![json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    })];
    for number in 0..VOLUMES {
        let folder = layout.data("volumes").join(format!("{number:02}"));
        files::create_folder(&folder)?;
        // Pods run as different users, and kubelet doesn't change the owner of hostPath volumes.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))
            .map_err(Error::path("creating", &folder))?;
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": format!("volume-{number:02}")},
            "spec": {
                "storageClassName": "standard",
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": folder, "type": "Directory"},
            },
        }));
    }
    Ok(objects)
}
