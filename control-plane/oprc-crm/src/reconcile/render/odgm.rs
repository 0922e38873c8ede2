//! The data grid of a class: a workload of its own, with its Services.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{
            Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment, StatefulSet,
            StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
        },
        core::v1::{
            Affinity, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
            GRPCAction, ObjectFieldSelector, PersistentVolumeClaim, PersistentVolumeClaimSpec,
            PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
            Service, ServicePort, ServiceSpec, Volume, VolumeMount, VolumeResourceRequirements,
            WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString,
    },
};
use oprc_unit::{
    OdgmPlan, Profile, names, persistence, shard_type,
    spec::{AccessPattern, Security, ShardAssignment},
};
use serde::Serialize;

use super::{
    Context, FunctionPlan, GRID_PORT, OdgmWanted, Wanted, disruption_budget, labels,
    pod::{self, variable},
    wanted,
};
use crate::kinds::{DEPLOYMENT, SERVICE, STATEFUL_SET};

const ZENOH: i32 = 7447;
const DATA: &str = "/data";
const VOLUME: &str = names::ODGM_VOLUME;

/// Builds everything that belongs to it.
pub(super) fn objects(
    context: &Context<'_>,
    plan: &OdgmPlan,
    functions: &[FunctionPlan],
    into: &mut Vec<Wanted>,
) -> OdgmWanted {
    let base = &context.class.identity.base;
    let name = names::odgm(base);
    let service = names::odgm_service(base);
    into.push(address(context, &service, false));
    let container = container(context, plan, functions);
    let workload = if plan.stateful() {
        into.push(address(context, &names::odgm_peers(base), true));
        stateful_set(context, plan, &name, container)
    } else {
        deployment(context, plan, &name, container)
    };
    let kind = workload.kind.clone();
    into.push(workload);
    if plan.replicas > 1 {
        let meta = context.meta(&name, context.odgm_labels());
        into.push(disruption_budget::budget(&name, meta, context.odgm_selector()));
    }
    OdgmWanted {
        kind,
        workload: name,
        service: format!("{service}:{GRID_PORT}"),
        replicas: plan.replicas,
        needed: plan.needed(),
    }
}

fn address(context: &Context<'_>, name: &str, headless: bool) -> Wanted {
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
            ports: Some(vec![port("grpc", GRID_PORT), port("zenoh", ZENOH)]),
            cluster_ip: headless.then(|| "None".to_owned()),
            // Nodes look for each other before they are ready.
            publish_not_ready_addresses: headless.then_some(true),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    wanted(SERVICE, name, &object)
}

/// A collection, in the data grid's own words.
#[derive(Serialize)]
struct Collection<'a> {
    name: &'a str,
    partition_count: i32,
    replica_count: i32,
    shard_type: &'a str,
    persistence_mode: &'a str,
    access_patterns: &'a [AccessPattern],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    shard_assignments: &'a [ShardAssignment],
    invocations: Invocations<'a>,
}

#[derive(Serialize)]
struct Invocations<'a> {
    fn_routes: &'a BTreeMap<String, oprc_unit::spec::Route>,
}

#[derive(Serialize)]
struct Trigger<'a> {
    function_key: &'a str,
    collection_filters: &'a [String],
    async_execution: bool,
}

fn json(value: &impl Serialize) -> String {
    // Our own types always serialise.
    serde_json::to_string(value).unwrap_or_default()
}

fn variables(context: &Context<'_>, plan: &OdgmPlan, functions: &[FunctionPlan]) -> Vec<EnvVar> {
    let identity = &context.class.identity;
    let mut routes = plan.routes.clone();
    // Only what the grid has to call: others may come and go without its being restarted.
    let called = |key: &str| plan.triggers.iter().any(|trigger| trigger.function_key == key);
    for function in functions.iter().filter(|function| called(&function.key)) {
        let Some(url) = function.url.clone() else { continue };
        let standby = context.class.functions.iter().any(|it| it.key == function.key && it.standby);
        routes.entry(function.key.clone()).or_insert(oprc_unit::spec::Route {
            url,
            stateless: false,
            standby,
        });
    }
    let collections: Vec<Collection<'_>> = plan
        .collections
        .iter()
        .map(|it| Collection {
            name: &it.name,
            partition_count: it.partitions,
            replica_count: it.replicas,
            shard_type: shard_type(it.shard_type),
            persistence_mode: persistence(it.persistence),
            access_patterns: &it.access_patterns,
            shard_assignments: &it.assignments,
            invocations: Invocations { fn_routes: &routes },
        })
        .collect();
    let names: Vec<&str> = plan.collections.iter().map(|it| it.name.as_str()).collect();
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    };
    let workload = names::odgm(&identity.base);
    let (own, members) = if plan.stateful() {
        let peers = format!("{}.{}.svc", names::odgm_peers(&identity.base), identity.namespace);
        let members = (0..plan.replicas)
            .map(|at| format!("{workload}-{at}.{peers}:{GRID_PORT}"))
            .collect::<Vec<_>>();
        (format!("$(ODGM_NODE_NAME).{peers}"), members.join(","))
    } else {
        let own = format!("{}.{}.svc", names::odgm_service(&identity.base), identity.namespace);
        let members = format!("{own}:{GRID_PORT}");
        (own, members)
    };
    let level = if context.selection.profile == Profile::Dev { "DEBUG" } else { "INFO" };
    let mut all = vec![
        field("ODGM_NODE_NAME", "metadata.name"),
        variable("ODGM_HTTP_PORT", GRID_PORT.to_string()),
        variable("ODGM_NODE_ADDR", format!("http://{own}:{GRID_PORT}")),
        variable("ODGM_MEMBERS", members),
        variable("ODGM_CLUSTER_ID", &plan.cluster_id),
        variable("ODGM_COLLECTIONS", names.join(",")),
        variable("ODGM_COLLECTION", json(&collections)),
        variable("ODGM_EVENTS_ENABLED", plan.events.to_string()),
        variable("ODGM_MAX_TRIGGER_DEPTH", plan.trigger_depth.to_string()),
        variable("ODGM_TRIGGER_TIMEOUT_MS", plan.trigger_timeout_ms.to_string()),
        variable("ODGM_MAX_SESSIONS", "4"),
        variable("ODGM_REFLECTION_ENABLED", "false"),
        variable("ODGM_LOG", format!("{level},openraft=info,zenoh=info,h2=warn")),
        variable("ODGM_DATA_DIR", DATA),
        variable("OPRC_ZENOH_PORT", ZENOH.to_string()),
    ];
    if plan.stateful() {
        all.push(field("ODGM_NODE_INDEX", "metadata.labels['apps.kubernetes.io/pod-index']"));
        // Three digits up to the tenth node; a pod knows its number only as it is written.
        all.push(variable("ODGM_NODE_ID", format!("{}00$(ODGM_NODE_INDEX)", plan.node_id_prefix)));
    } else {
        all.push(variable("ODGM_NODE_ID", format!("{}000", plan.node_id_prefix)));
    }
    if plan.events {
        let triggers: Vec<_> = plan
            .triggers
            .iter()
            .map(|it| Trigger {
                function_key: &it.function_key,
                collection_filters: &it.collection_filters,
                async_execution: it.async_execution,
            })
            .collect();
        all.push(variable("ODGM_EVENT_TRIGGERS", json(&triggers)));
    }
    if let Some((size, timeout)) = plan.batch.filter(|_| plan.events) {
        all.push(variable("ODGM_BATCH_SIZE", size.to_string()));
        all.push(variable("ODGM_BATCH_TIMEOUT_MS", timeout.to_string()));
    }
    all.extend(plan.env.iter().map(pod::user_variable));
    all
}

fn container(context: &Context<'_>, plan: &OdgmPlan, functions: &[FunctionPlan]) -> Container {
    let environment = context.environment;
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
                .unwrap_or_else(|| environment.odgm_images.of(context.selection.profile)),
        ),
        ports: Some(vec![port("grpc", GRID_PORT), port("zenoh", ZENOH)]),
        env: Some(variables(context, plan, functions)),
        resources: Some(pod::resources(&plan.requests, &plan.limits, &context.sized().odgm_sizes)),
        volume_mounts: Some(vec![VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: DATA.to_owned(),
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
            // The disk belongs to whom the container runs as.
            security_context: Some(PodSecurityContext {
                fs_group: Some(pod::USER),
                ..PodSecurityContext::default()
            }),
            affinity: (plan.replicas > 1).then(|| apart(context)),
            ..PodSpec::default()
        }),
    }
}

/// Nodes of a grid stay apart: in production as a rule that a scheduler follows wherever it can.
fn apart(context: &Context<'_>) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(labels::selector(context.odgm_selector())),
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

fn deployment(context: &Context<'_>, plan: &OdgmPlan, name: &str, container: Container) -> Wanted {
    let object = Deployment {
        metadata: context.meta(name, context.odgm_labels()),
        spec: Some(DeploymentSpec {
            replicas: Some(plan.replicas),
            revision_history_limit: Some(2),
            selector: labels::selector(context.odgm_selector()),
            // The old one goes before the new one comes: two grids at once would each believe
            // themselves to be the only one. (`Recreate` can't be put back once somebody changes
            // it: the API server then finds fault with fields that it has added itself.)
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
    wanted(DEPLOYMENT, name, &object)
}

fn stateful_set(
    context: &Context<'_>,
    plan: &OdgmPlan,
    name: &str,
    container: Container,
) -> Wanted {
    let identity = &context.class.identity;
    let size = plan.storage.size.clone().unwrap_or_else(|| context.environment.odgm_disk.clone());
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
            selector: labels::selector(context.odgm_selector()),
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
    wanted(STATEFUL_SET, name, &object)
}
