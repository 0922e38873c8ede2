//! Containers and pods, as far as shapes share them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapEnvSource, ConfigMapKeySelector, ConfigMapVolumeSource, Container,
        ContainerPort, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource, GRPCAction,
        HTTPGetAction, LocalObjectReference, PersistentVolumeClaimVolumeSource, PodSecurityContext,
        PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecretEnvSource,
        SecretKeySelector, SecretVolumeSource, SecurityContext, TCPSocketAction,
        TopologySpreadConstraint, Volume, VolumeMount,
    },
    apimachinery::pkg::{
        api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString,
    },
};
use oprc_unit::{
    Sizes, ValidFunction, exceeds, names,
    spec::{self, Resources, Security, SecurityLevel},
};

use super::{Context, FunctionPlan, GRID_PORT, Labels, selector};

/// The default user of containers.
pub(crate) const USER: i64 = 65_532;
pub(crate) const CONTAINER: &str = "function";
/// How long a terminating pod keeps serving, until endpoints are updated on every node.
pub(crate) const LAME_DUCK_SECONDS: i64 = 5;
/// The default timeout of a call.
pub(crate) const TIMEOUT_MS: i32 = 25_000;

/// The API server drops empty values; applying one would be a difference in every reconcile.
pub(crate) fn variable(name: &str, value: impl Into<String>) -> EnvVar {
    let value = Some(value.into()).filter(|value| !value.is_empty());
    EnvVar { name: name.to_owned(), value, value_from: None }
}

impl Context<'_> {
    /// The container of a function without probes.
    pub(crate) fn container(
        &self,
        function: &ValidFunction,
        plan: &FunctionPlan,
        port_name: &str,
    ) -> Container {
        Container {
            name: CONTAINER.to_owned(),
            image: Some(function.image.clone()),
            image_pull_policy: function.pull_policy.map(|policy| policy.as_str().to_owned()),
            command: filled(function.command.iter().cloned()),
            args: filled(function.args.iter().cloned()),
            ports: Some(vec![container_port(port_name, function.port)]),
            env: Some(self.variables(function)),
            env_from: filled(function.env_from.iter().map(env_from)),
            resources: Some(plan.resources.clone()),
            volume_mounts: filled(function.mounts.iter().enumerate().map(mount)),
            security_context: security(&function.security),
            ..Container::default()
        }
    }

    fn variables(&self, function: &ValidFunction) -> Vec<EnvVar> {
        let identity = &self.class.identity;
        let mut all = vec![
            variable("FUNCTION_KEY", &function.key),
            variable("DEPLOYMENT_ID", &identity.deployment_id),
            variable("ENVIRONMENT", identity.environment.as_deref().unwrap_or("default")),
        ];
        all.extend(function.throughput.map(|it| variable("EXPECTED_THROUGHPUT", it.to_string())));
        all.extend(function.latency.map(|it| variable("MAX_LATENCY_MS", it.to_string())));
        let endpoint = self.class.telemetry.otlp_endpoint.as_ref();
        all.extend(endpoint.map(|it| variable("OTEL_EXPORTER_OTLP_ENDPOINT", it)));
        if let Some(odgm) = &self.class.odgm {
            let service = format!("{}:{GRID_PORT}", names::odgm_service(&identity.base));
            let mut collections = function.odgm.collections.clone();
            if collections.is_empty() {
                collections.extend(odgm.collections.iter().map(|it| it.name.clone()));
            }
            let access = function.odgm.access_mode.unwrap_or_default();
            let caching = function.odgm.caching_strategy.unwrap_or_default();
            all.extend([
                variable(super::ODGM_ENABLED, "true"),
                variable("ODGM_ENDPOINT", format!("http://{service}")),
                variable("ODGM_SERVICE", service),
                variable("ODGM_COLLECTIONS", collections.join(",")),
                variable("ODGM_CLUSTER_ID", &odgm.cluster_id),
                variable("ODGM_NODE_ROLE", "client"),
                variable("ODGM_ACCESS_MODE", word(&access)),
                variable("ODGM_CACHING_STRATEGY", word(&caching)),
            ]);
        }
        all.extend(function.env.iter().map(user_variable));
        all
    }

    /// Also for a single instance: pods must not depend on the number of instances, or a change of it
    /// would replace them.
    pub(crate) fn spread(&self, plan: &FunctionPlan) -> Vec<TopologySpreadConstraint> {
        vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(selector(self.function_selector(plan))),
            ..TopologySpreadConstraint::default()
        }]
    }
}

pub(crate) fn pod_spec(function: &ValidFunction, container: Container) -> PodSpec {
    let secret = |name: &String| LocalObjectReference { name: name.clone() };
    PodSpec {
        containers: vec![container],
        service_account_name: function.service_account.clone(),
        image_pull_secrets: filled(function.pull_secrets.iter().map(secret)),
        volumes: filled(function.mounts.iter().enumerate().map(volume)),
        security_context: volume_security(function),
        // A function without its own ServiceAccount has no need for the API server.
        automount_service_account_token: function.service_account.is_none().then_some(false),
        enable_service_links: Some(false),
        ..PodSpec::default()
    }
}

/// The template of the pods of a workload.
pub(crate) fn pod_template(labels: Labels, annotations: Labels, spec: PodSpec) -> PodTemplateSpec {
    PodTemplateSpec { metadata: Some(template_meta(labels, annotations)), spec: Some(spec) }
}

pub(crate) fn template_meta(labels: Labels, annotations: Labels) -> ObjectMeta {
    ObjectMeta {
        labels: Some(labels),
        annotations: Some(annotations).filter(|it| !it.is_empty()),
        ..ObjectMeta::default()
    }
}

pub(crate) fn container_port(name: &str, port: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// The serialized name of an enum value.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// None if there are no items.
fn filled<T>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let items: Vec<T> = items.collect();
    (!items.is_empty()).then_some(items)
}

pub(crate) fn user_variable(user: &spec::EnvVar) -> EnvVar {
    let parts =
        |from: &spec::KeyRef| (from.name.clone(), from.key.clone(), from.optional.then_some(true));
    let secret = user.secret.as_ref().map(parts).map(|(name, key, optional)| EnvVarSource {
        secret_key_ref: Some(SecretKeySelector { name, key, optional }),
        ..EnvVarSource::default()
    });
    let config_map =
        user.config_map.as_ref().map(parts).map(|(name, key, optional)| EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector { name, key, optional }),
            ..EnvVarSource::default()
        });
    let value_from = secret.or(config_map);
    let value = user.value.as_deref().filter(|_| value_from.is_none()).unwrap_or_default();
    EnvVar { value_from, ..variable(&user.name, value) }
}

fn env_from(source: &spec::EnvFrom) -> EnvFromSource {
    let optional = source.optional.then_some(true);
    EnvFromSource {
        prefix: source.prefix.clone().filter(|prefix| !prefix.is_empty()),
        secret_ref: source.secret.clone().map(|name| SecretEnvSource { name, optional }),
        config_map_ref: source.config_map.clone().map(|name| ConfigMapEnvSource { name, optional }),
    }
}

fn mount((at, mount): (usize, &spec::VolumeMount)) -> VolumeMount {
    VolumeMount {
        name: format!("mount-{at}"),
        mount_path: mount.mount_path.clone(),
        sub_path: mount.sub_path.clone(),
        read_only: mount.read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// The volume that [`mount`] refers to.
fn volume((at, mount): (usize, &spec::VolumeMount)) -> Volume {
    let read_only = mount.read_only.then_some(true);
    Volume {
        name: format!("mount-{at}"),
        secret: mount.secret.clone().map(|name| SecretVolumeSource {
            secret_name: Some(name),
            ..SecretVolumeSource::default()
        }),
        config_map: mount
            .config_map
            .clone()
            .map(|name| ConfigMapVolumeSource { name, ..ConfigMapVolumeSource::default() }),
        persistent_volume_claim: mount
            .claim
            .clone()
            .map(|claim_name| PersistentVolumeClaimVolumeSource { claim_name, read_only }),
        empty_dir: mount.empty_dir.as_ref().map(|folder| EmptyDirVolumeSource {
            medium: folder.in_memory.then(|| "Memory".to_owned()),
            size_limit: folder.size_limit.clone().map(Quantity),
        }),
        ..Volume::default()
    }
}

/// Explicit values are kept; defaults are adjusted so that requests don't exceed limits.
pub(crate) fn resources(
    requests: &Resources,
    limits: &Resources,
    default: &Sizes,
) -> ResourceRequirements {
    type Quantities = [(&'static str, fn(&Resources) -> &Option<String>); 3];
    let quantities: Quantities = [
        ("cpu", |it| &it.cpu),
        ("memory", |it| &it.memory),
        ("ephemeral-storage", |it| &it.ephemeral_storage),
    ];
    let mut all_requests = BTreeMap::new();
    let mut all_limits = BTreeMap::new();
    for (name, of) in quantities {
        let request = of(requests).clone().or_else(|| match (of(&default.requests), of(limits)) {
            (Some(request), Some(limit)) if exceeds(request, limit) => Some(limit.clone()),
            (request, _) => request.clone(),
        });
        let limit = of(limits).clone().or_else(|| match (of(&default.limits), &request) {
            (Some(limit), Some(request)) if exceeds(request, limit) => Some(request.clone()),
            (limit, _) => limit.clone(),
        });
        all_requests.extend(request.map(|it| (name.to_owned(), Quantity(it))));
        all_limits.extend(limit.map(|it| (name.to_owned(), Quantity(it))));
    }
    ResourceRequirements {
        requests: (!all_requests.is_empty()).then_some(all_requests),
        limits: (!all_limits.is_empty()).then_some(all_limits),
        claims: None,
    }
}

pub(crate) fn security(security: &Security) -> Option<SecurityContext> {
    match security.level {
        SecurityLevel::Restricted => Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            run_as_non_root: Some(true),
            // The kubelet can't verify that a user that the image gives by name isn't root.
            run_as_user: Some(security.run_as_user.unwrap_or(USER)),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        }),
        SecurityLevel::Baseline => security
            .run_as_user
            .map(|user| SecurityContext { run_as_user: Some(user), ..SecurityContext::default() }),
    }
}

/// Without an fsGroup a volume belongs to root, and other users can't write to it.
fn volume_security(function: &ValidFunction) -> Option<PodSecurityContext> {
    let claims = function.mounts.iter().any(|mount| mount.claim.is_some());
    (claims && function.security.level == SecurityLevel::Restricted).then(|| PodSecurityContext {
        fs_group: Some(function.security.run_as_user.unwrap_or(USER)),
        ..PodSecurityContext::default()
    })
}

/// A container with probes of its port, or of the one that the function sets.
pub(crate) fn with_probes(
    container: Container,
    function: &ValidFunction,
    port: IntOrString,
) -> Container {
    let health = &function.health;
    let port = health.port.map_or(port, IntOrString::Int);
    let number = health.port.unwrap_or(function.port);
    let action = Probe {
        grpc: health.grpc.then_some(GRPCAction { port: number, service: None }),
        http_get: health.path.clone().map(|path| HTTPGetAction {
            path: Some(path),
            port: port.clone(),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        tcp_socket: (!health.grpc && health.path.is_none())
            .then_some(TCPSocketAction { port, host: None }),
        ..Probe::default()
    };
    // A latency requirement shortens the period; a probe may take as long as a call.
    let quick = function.latency.is_some_and(|latency| latency < 100);
    let timeout = health.timeout_seconds.unwrap_or_else(|| {
        let call = function.timeout_ms.unwrap_or(1000).div_euclid(1000);
        call.clamp(1, 5)
    });
    let period = health.period_seconds.unwrap_or(if quick { 2 } else { 5 });
    let failures = health.failure_threshold.unwrap_or(3);
    let start = health.startup_seconds.unwrap_or(60);
    let probe = |period, failures| Some(probe(&action, period, timeout, failures));
    Container {
        startup_probe: probe(1, start),
        readiness_probe: probe(period, failures),
        liveness_probe: probe(period.saturating_mul(2), failures),
        ..container
    }
}

pub(crate) fn probe(action: &Probe, period: i32, timeout: i32, failures: i32) -> Probe {
    Probe {
        period_seconds: Some(period),
        timeout_seconds: Some(timeout),
        failure_threshold: Some(failures),
        success_threshold: Some(1),
        ..action.clone()
    }
}

/// The lame-duck period and one call. The time after that is for the function to end; behind a proxy it
/// gets SIGTERM only when all calls have ended.
pub(crate) fn grace_seconds(function: &ValidFunction, proxied: bool) -> i64 {
    let call = function.timeout_ms.unwrap_or(TIMEOUT_MS);
    LAME_DUCK_SECONDS + i64::from(call).div_euclid(1000) + if proxied { 5 } else { 1 }
}
