//! The manifests of the data grid.

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec},
        core::v1::{
            Affinity, Container, EmptyDirVolumeSource, GRPCAction, PersistentVolumeClaim,
            PersistentVolumeClaimSpec, PodAffinityTerm, PodAntiAffinity, PodSecurityContext,
            PodSpec, PodTemplateSpec, Probe, ServiceSpec, Volume, VolumeMount,
            VolumeResourceRequirements, WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString,
    },
};
use oprc_unit::{OdgmPlan, Profile, grid_sizes, names, spec::Security};

use super::{
    super::super::manifest::{
        self, Context, DesiredObject, FunctionPlan, GRID_PORT, desired_object,
        pod::{self, container_port},
        selector, service_port,
    },
    CONTAINER, DATA_DIR, ZENOH_PORT,
    env::variables,
};
use crate::kinds::STATEFUL_SET;

const VOLUME: &str = names::ODGM_VOLUME;

pub(super) fn service(context: &Context<'_>, name: &str, headless: bool) -> DesiredObject {
    let spec = ServiceSpec {
        selector: Some(context.odgm_selector()),
        ports: Some(vec![service_port("grpc", GRID_PORT), service_port("zenoh", ZENOH_PORT)]),
        cluster_ip: headless.then(|| "None".to_owned()),
        // Nodes connect to each other before they are ready.
        publish_not_ready_addresses: headless.then_some(true),
        ..ServiceSpec::default()
    };
    manifest::service(context.meta(name, context.odgm_labels()), spec)
}

fn container(context: &Context<'_>, plan: &OdgmPlan, functions: &[FunctionPlan]) -> Container {
    let profile = context.selection.profile;
    let image = || context.platform.odgm_images.of(profile);
    let grpc = GRPCAction { port: GRID_PORT, service: None };
    let action = Probe { grpc: Some(grpc), ..Probe::default() };
    let probe = |period, failures| Some(pod::probe(&action, period, 5, failures));
    Container {
        name: CONTAINER.to_owned(),
        image: Some(plan.image.clone().unwrap_or_else(image)),
        ports: Some(vec![container_port("grpc", GRID_PORT), container_port("zenoh", ZENOH_PORT)]),
        env: Some(variables(context, plan, functions)),
        resources: Some(pod::resources(
            &plan.requests,
            &plan.limits,
            &grid_sizes(context.platform, profile),
        )),
        volume_mounts: Some(vec![VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: DATA_DIR.to_owned(),
            ..VolumeMount::default()
        }]),
        startup_probe: probe(1, 60),
        readiness_probe: probe(5, 3),
        liveness_probe: probe(10, 3),
        security_context: pod::security(&Security::default()),
        ..Container::default()
    }
}

pub(super) fn template(
    context: &Context<'_>,
    plan: &OdgmPlan,
    functions: &[FunctionPlan],
) -> PodTemplateSpec {
    let folder = Volume {
        name: VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let spec = PodSpec {
        containers: vec![container(context, plan, functions)],
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
    };
    pod::pod_template(context.odgm_labels(), context.scrape(GRID_PORT, None), spec)
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
