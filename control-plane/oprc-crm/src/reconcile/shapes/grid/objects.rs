//! The manifests of the data grid.

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec},
        core::v1::{
            Affinity, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, GRPCAction,
            KeyToPath, PersistentVolumeClaim, PersistentVolumeClaimSpec, PodAffinityTerm,
            PodAntiAffinity, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
            ResourceRequirements, Secret, SecretVolumeSource, ServiceSpec, Volume, VolumeMount,
            VolumeResourceRequirements, WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString,
    },
};
use oprc_unit::{OdgmPlan, Profile, names, spec::Security};

use super::{
    super::super::manifest::{
        self, Context, DNS_NAME, DesiredObject, GRID_PORT, desired_object,
        pod::{self, container_port},
        selector, service_port,
    },
    CONTAINER, DATA_DIR, TLS_DIR,
    document::CONFIG_DIR,
    env::variables,
    image, volume_size,
};
use crate::kinds::{SECRET, STATEFUL_SET};

const VOLUME: &str = names::ODGM_VOLUME;
const CONFIG_VOLUME: &str = "config";
const GRPC: (&str, i32) = ("grpc", GRID_PORT);
const PUBLIC: (&str, i32) = ("public", 8083);
/// Calls between nodes, and etcd's members.
const PEER_PORTS: [(&str, i32); 2] = [("peer", 8082), ("etcd", 2380)];
const TLS_VOLUME: &str = "tls";
const TLS_FILES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

pub(super) fn service(
    context: &Context<'_>,
    plan: &OdgmPlan,
    name: &str,
    headless: bool,
) -> DesiredObject {
    let ports = ports(plan).filter(|port| PEER_PORTS.contains(port) == headless || *port == GRPC);
    let spec = ServiceSpec {
        selector: Some(context.odgm_selector()),
        ports: Some(ports.map(|(name, port)| service_port(name, port)).collect()),
        cluster_ip: headless.then(|| "None".to_owned()),
        // Nodes connect to each other before they are ready.
        publish_not_ready_addresses: headless.then_some(true),
        ..ServiceSpec::default()
    };
    manifest::service(context.meta(name, context.odgm_labels()), spec)
}

/// Ports of a node. Callers from outside use one of their own, at which it admits only what is PUBLIC.
fn ports(plan: &OdgmPlan) -> impl Iterator<Item = (&'static str, i32)> {
    let peers = PEER_PORTS.into_iter().filter(|_| plan.is_replicated());
    [GRPC, PUBLIC].into_iter().chain(peers)
}

/// The Secret that the nodes of a replicated grid recognise each other by. Its keys are made when it is
/// written.
pub(super) fn certificate(context: &Context<'_>) -> DesiredObject {
    let identity = &context.class.identity;
    let mut metadata = context.meta(&names::odgm(&identity.base), context.odgm_labels());
    let name = format!("*.{}.{}.svc", names::odgm_peers(&identity.base), identity.namespace);
    metadata.annotations.get_or_insert_default().insert(DNS_NAME.to_owned(), name);
    desired_object(SECRET, &Secret { metadata, ..Secret::default() })
}

fn container(context: &Context<'_>, plan: &OdgmPlan, resources: ResourceRequirements) -> Container {
    let probe = |service: &str, period, failures| {
        let grpc = GRPCAction { port: GRID_PORT, service: Some(service.to_owned()) };
        let action = Probe { grpc: Some(grpc), ..Probe::default() };
        Some(pod::probe(&action, period, 5, failures))
    };
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image(context, plan)),
        ports: Some(ports(plan).map(|(name, port)| container_port(name, port)).collect()),
        env: Some(variables(context, plan)),
        resources: Some(resources),
        // A folder and no `subPath`, so that the kubelet updates the files.
        volume_mounts: Some(
            [mount(VOLUME, DATA_DIR, false), mount(CONFIG_VOLUME, CONFIG_DIR, true)]
                .into_iter()
                .chain(plan.is_replicated().then(|| mount(TLS_VOLUME, TLS_DIR, true)))
                .collect(),
        ),
        // A lost quorum must not restart the nodes that are left.
        startup_probe: probe("live", 1, 60),
        readiness_probe: probe("ready", 5, 3),
        liveness_probe: probe("live", 10, 3),
        security_context: pod::security(&Security::default()),
        ..Container::default()
    }
}

pub(super) fn template(
    context: &Context<'_>,
    plan: &OdgmPlan,
    resources: ResourceRequirements,
) -> PodTemplateSpec {
    let mut volumes = vec![Volume {
        name: CONFIG_VOLUME.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: names::odgm(&context.class.identity.base),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }];
    volumes.extend((!plan.persistent()).then(|| Volume {
        name: VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }));
    volumes.extend(plan.is_replicated().then(|| tls_volume(context)));
    let spec = PodSpec {
        containers: vec![container(context, plan, resources)],
        volumes: Some(volumes),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        // The volume belongs to the container's user.
        security_context: Some(PodSecurityContext {
            fs_group: Some(pod::USER),
            ..PodSecurityContext::default()
        }),
        affinity: (plan.replicas > 1).then(|| anti_affinity(context)),
        ..PodSpec::default()
    };
    pod::pod_template(context.odgm_labels(), context.scrape(GRID_PORT, None), spec)
}

/// Without the key of the authority, with which only CRM issues certificates.
fn tls_volume(context: &Context<'_>) -> Volume {
    let file = |name: &str| KeyToPath {
        key: name.to_owned(),
        path: name.to_owned(),
        ..KeyToPath::default()
    };
    Volume {
        name: TLS_VOLUME.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(names::odgm(&context.class.identity.base)),
            items: Some(TLS_FILES.map(file).into()),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Nodes of a grid are spread over cluster nodes wherever possible.
fn anti_affinity(context: &Context<'_>) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(selector(context.odgm_selector())),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    let weight = if context.selection.profile == Profile::Full { 100 } else { 10 };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                WeightedPodAffinityTerm { weight, pod_affinity_term: term },
            ]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

pub(super) fn deployment(
    context: &Context<'_>,
    plan: &OdgmPlan,
    metadata: ObjectMeta,
    template: PodTemplateSpec,
) -> DesiredObject {
    // The old pod is deleted before the new one is created: two grids at once would each act as the
    // only one. `Recreate` couldn't be restored after a change by another client, because the API
    // server rejects the defaults that it has added.
    let limits = [IntOrString::Int(0), IntOrString::Int(1)];
    manifest::deployment(metadata, context.odgm_selector(), plan.replicas, limits, template)
}

pub(super) fn stateful_set(
    context: &Context<'_>,
    plan: &OdgmPlan,
    metadata: ObjectMeta,
    template: PodTemplateSpec,
) -> DesiredObject {
    let size = volume_size(context, plan);
    let claim = PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(VOLUME.to_owned()),
            labels: Some(context.odgm_labels()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: plan.storage.class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), Quantity(size))].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    };
    let object = StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            replicas: Some(plan.replicas),
            service_name: Some(names::odgm_peers(&context.class.identity.base)),
            selector: selector(context.odgm_selector()),
            pod_management_policy: Some("Parallel".to_owned()),
            persistent_volume_claim_retention_policy: Some(
                StatefulSetPersistentVolumeClaimRetentionPolicy {
                    when_deleted: Some("Retain".to_owned()),
                    when_scaled: Some("Retain".to_owned()),
                },
            ),
            template,
            volume_claim_templates: plan.persistent().then(|| vec![claim]),
            ..StatefulSetSpec::default()
        }),
        status: None,
    };
    desired_object(STATEFUL_SET, &object)
}
