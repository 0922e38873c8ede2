//! The manifests of the data grid.

use k8s_openapi::{
    api::{
        apps::v1::{
            Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment, StatefulSet,
            StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
        },
        core::v1::{
            Affinity, Container, ContainerPort, EmptyDirVolumeSource, GRPCAction,
            PersistentVolumeClaim, PersistentVolumeClaimSpec, PodAffinityTerm, PodAntiAffinity,
            PodSecurityContext, PodSpec, PodTemplateSpec, Probe, Service, ServicePort, ServiceSpec,
            Volume, VolumeMount, VolumeResourceRequirements, WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString,
    },
};
use oprc_unit::{OdgmPlan, Profile, grid_sizes, names, spec::Security};

use super::{
    super::super::manifest::{
        Context, DesiredObject, FunctionPlan, GRID_PORT, desired_object, pod, selector,
    },
    DATA_DIR, ZENOH_PORT,
    env::variables,
};
use crate::kinds::{DEPLOYMENT, SERVICE, STATEFUL_SET};

const VOLUME: &str = names::ODGM_VOLUME;

pub(super) fn service(context: &Context<'_>, name: &str, headless: bool) -> DesiredObject {
    let port = |name: &str, port| ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(name.to_owned())),
        ..ServicePort::default()
    };
    let object = Service {
        metadata: context.meta(name, context.odgm_labels()),
        spec: Some(ServiceSpec {
            selector: Some(context.odgm_selector()),
            ports: Some(vec![port("grpc", GRID_PORT), port("zenoh", ZENOH_PORT)]),
            cluster_ip: headless.then(|| "None".to_owned()),
            // Nodes connect to each other before they are ready.
            publish_not_ready_addresses: headless.then_some(true),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    desired_object(SERVICE, name, &object)
}

pub(super) fn container(
    context: &Context<'_>,
    plan: &OdgmPlan,
    functions: &[FunctionPlan],
) -> Container {
    let port = |name: &str, port| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let probe = |period, failures| Probe {
        grpc: Some(GRPCAction { port: GRID_PORT, service: None }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        success_threshold: Some(1),
        ..Probe::default()
    };
    Container {
        name: "odgm".to_owned(),
        image: Some(
            plan.image
                .clone()
                .unwrap_or_else(|| context.platform.odgm_images.of(context.selection.profile)),
        ),
        ports: Some(vec![port("grpc", GRID_PORT), port("zenoh", ZENOH_PORT)]),
        env: Some(variables(context, plan, functions)),
        resources: Some(pod::resources(
            &plan.requests,
            &plan.limits,
            &grid_sizes(context.platform, context.selection.profile),
        )),
        volume_mounts: Some(vec![VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: DATA_DIR.to_owned(),
            ..VolumeMount::default()
        }]),
        startup_probe: Some(probe(1, 60)),
        readiness_probe: Some(probe(5, 3)),
        liveness_probe: Some(probe(10, 3)),
        security_context: pod::security(&Security::default()),
        ..Container::default()
    }
}

fn template(context: &Context<'_>, plan: &OdgmPlan, container: Container) -> PodTemplateSpec {
    let folder = Volume {
        name: VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(context.odgm_labels()),
            annotations: Some(context.scrape(GRID_PORT, None)).filter(|it| !it.is_empty()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: (!plan.persistent()).then(|| vec![folder]),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            // The volume belongs to the container's user.
            security_context: Some(PodSecurityContext {
                fs_group: Some(pod::USER),
                ..PodSecurityContext::default()
            }),
            affinity: (plan.replicas > 1).then(|| anti_affinity(context)),
            ..PodSpec::default()
        }),
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
    name: &str,
    container: Container,
) -> DesiredObject {
    let object = Deployment {
        metadata: context.meta(name, context.odgm_labels()),
        spec: Some(DeploymentSpec {
            replicas: Some(plan.replicas),
            revision_history_limit: Some(2),
            selector: selector(context.odgm_selector()),
            // The old pod is deleted before the new one is created: two grids at once would each
            // act as the only one. `Recreate` couldn't be restored after a change by another
            // client, because the API server rejects the defaults that it has added.
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(0)),
                    max_unavailable: Some(IntOrString::Int(1)),
                }),
            }),
            template: template(context, plan, container),
            ..DeploymentSpec::default()
        }),
        status: None,
    };
    desired_object(DEPLOYMENT, name, &object)
}

pub(super) fn stateful_set(
    context: &Context<'_>,
    plan: &OdgmPlan,
    name: &str,
    container: Container,
) -> DesiredObject {
    let identity = &context.class.identity;
    let size = plan.storage.size.clone().unwrap_or_else(|| context.platform.odgm_disk.clone());
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
        metadata: context.meta(name, context.odgm_labels()),
        spec: Some(StatefulSetSpec {
            replicas: Some(plan.replicas),
            service_name: Some(names::odgm_peers(&identity.base)),
            selector: selector(context.odgm_selector()),
            pod_management_policy: Some("Parallel".to_owned()),
            persistent_volume_claim_retention_policy: Some(
                StatefulSetPersistentVolumeClaimRetentionPolicy {
                    when_deleted: Some("Retain".to_owned()),
                    when_scaled: Some("Retain".to_owned()),
                },
            ),
            template: template(context, plan, container),
            volume_claim_templates: plan.persistent().then(|| vec![claim]),
            ..StatefulSetSpec::default()
        }),
        status: None,
    };
    desired_object(STATEFUL_SET, name, &object)
}
