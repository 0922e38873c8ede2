//! Containers and pods, as far as shapes share them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapEnvSource, ConfigMapKeySelector, ConfigMapVolumeSource, Container,
        ContainerPort, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource, GRPCAction,
        HTTPGetAction, LocalObjectReference, PersistentVolumeClaimVolumeSource, PodSecurityContext,
        PodSpec, Probe, ResourceRequirements, SeccompProfile, SecretEnvSource, SecretKeySelector,
        SecretVolumeSource, SecurityContext, TCPSocketAction, TopologySpreadConstraint, Volume,
        VolumeMount,
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use oprc_unit::{
    Sizes, ValidFunction, exceeds, function_sizes, names,
    spec::{self, Resources, Security, SecurityLevel},
};

use super::{Context, FunctionPlan, GRID_PORT, labels};

/// The default user of containers.
pub(in crate::reconcile) const USER: i64 = 65_532;
pub(in crate::reconcile) const CONTAINER: &str = "function";
/// How long a terminating pod keeps serving, until endpoints are updated on every node.
pub(in crate::reconcile) const LAME_DUCK_SECONDS: i64 = 5;
/// The default timeout of a call.
const TIMEOUT_MS: i32 = 25_000;

/// The API server drops empty values; applying one would be a difference in every reconcile.
pub(in crate::reconcile) fn variable(name: &str, value: impl Into<String>) -> EnvVar {
    let value = Some(value.into()).filter(|value| !value.is_empty());
    EnvVar { name: name.to_owned(), value, value_from: None }
}

impl Context<'_> {
    /// The container of a function without probes.
    pub(in crate::reconcile) fn container(
        &self,
        function: &ValidFunction,
        port_name: &str,
    ) -> Container {
        Container {
            name: CONTAINER.to_owned(),
            image: Some(function.image.clone()),
            image_pull_policy: function.pull_policy.map(|policy| policy.as_str().to_owned()),
            command: filled(&function.command),
            args: filled(&function.args),
            ports: Some(vec![ContainerPort {
                name: Some(port_name.to_owned()),
                container_port: function.port,
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            }]),
            env: Some(self.variables(function)),
            env_from: filled(&function.env_from.iter().map(env_from).collect::<Vec<_>>()),
            resources: Some(resources(
                &function.requests,
                &function.limits,
                &function_sizes(function, self.platform, self.selection.profile),
            )),
            volume_mounts: filled(&mounts(function)),
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
        if let Some(throughput) = function.throughput {
            all.push(variable("EXPECTED_THROUGHPUT", throughput.to_string()));
        }
        if let Some(latency) = function.latency {
            all.push(variable("MAX_LATENCY_MS", latency.to_string()));
        }
        if let Some(endpoint) = &self.class.telemetry.otlp_endpoint {
            all.push(variable("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint));
        }
        if let Some(odgm) = &self.class.odgm {
            let service = format!("{}:{GRID_PORT}", names::odgm_service(&identity.base));
            let collections = if function.odgm.collections.is_empty() {
                odgm.collections.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(",")
            } else {
                function.odgm.collections.join(",")
            };
            all.extend([
                variable(super::ODGM_ENABLED, "true"),
                variable("ODGM_ENDPOINT", format!("http://{service}")),
                variable("ODGM_SERVICE", service),
                variable("ODGM_COLLECTIONS", collections),
                variable("ODGM_CLUSTER_ID", &odgm.cluster_id),
                variable("ODGM_NODE_ROLE", "client"),
                variable("ODGM_ACCESS_MODE", word(&function.odgm.access_mode.unwrap_or_default())),
                variable(
                    "ODGM_CACHING_STRATEGY",
                    word(&function.odgm.caching_strategy.unwrap_or_default()),
                ),
            ]);
        }
        all.extend(function.env.iter().map(user_variable));
        all
    }

    pub(in crate::reconcile) fn spread(
        &self,
        plan: &FunctionPlan,
    ) -> Option<Vec<TopologySpreadConstraint>> {
        plan.is_many().then(|| {
            vec![TopologySpreadConstraint {
                max_skew: 1,
                topology_key: "kubernetes.io/hostname".to_owned(),
                when_unsatisfiable: "ScheduleAnyway".to_owned(),
                label_selector: Some(labels::selector(self.function_selector(plan))),
                ..TopologySpreadConstraint::default()
            }]
        })
    }
}

pub(in crate::reconcile) fn pod_spec(function: &ValidFunction, container: Container) -> PodSpec {
    let secrets = function.pull_secrets.iter();
    PodSpec {
        containers: vec![container],
        service_account_name: function.service_account.clone(),
        image_pull_secrets: filled(
            &secrets.map(|name| LocalObjectReference { name: name.clone() }).collect::<Vec<_>>(),
        ),
        volumes: filled(&volumes(function)),
        security_context: volume_security(function),
        // A function without its own ServiceAccount has no need for the API server.
        automount_service_account_token: function.service_account.is_none().then_some(false),
        enable_service_links: Some(false),
        ..PodSpec::default()
    }
}

/// The serialized name of an enum value.
pub(in crate::reconcile) fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// None if the list is empty.
pub(in crate::reconcile) fn filled<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

pub(in crate::reconcile) fn user_variable(variable: &spec::EnvVar) -> EnvVar {
    let secret = variable.secret.as_ref().map(|from| EnvVarSource {
        secret_key_ref: Some(SecretKeySelector {
            name: from.name.clone(),
            key: from.key.clone(),
            optional: from.optional.then_some(true),
        }),
        ..EnvVarSource::default()
    });
    let config_map = variable.config_map.as_ref().map(|from| EnvVarSource {
        config_map_key_ref: Some(ConfigMapKeySelector {
            name: from.name.clone(),
            key: from.key.clone(),
            optional: from.optional.then_some(true),
        }),
        ..EnvVarSource::default()
    });
    let value_from = secret.or(config_map);
    let value = match (&value_from, &variable.value) {
        (None, Some(value)) if !value.is_empty() => Some(value.clone()),
        _ => None,
    };
    EnvVar { name: variable.name.clone(), value, value_from }
}

fn env_from(source: &spec::EnvFrom) -> EnvFromSource {
    let optional = source.optional.then_some(true);
    EnvFromSource {
        prefix: source.prefix.clone().filter(|prefix| !prefix.is_empty()),
        secret_ref: source.secret.clone().map(|name| SecretEnvSource { name, optional }),
        config_map_ref: source.config_map.clone().map(|name| ConfigMapEnvSource { name, optional }),
    }
}

fn volume_name(at: usize) -> String {
    format!("mount-{at}")
}

fn mounts(function: &ValidFunction) -> Vec<VolumeMount> {
    let one = |(at, mount): (usize, &spec::VolumeMount)| VolumeMount {
        name: volume_name(at),
        mount_path: mount.mount_path.clone(),
        sub_path: mount.sub_path.clone(),
        read_only: mount.read_only.then_some(true),
        ..VolumeMount::default()
    };
    function.mounts.iter().enumerate().map(one).collect()
}

fn volumes(function: &ValidFunction) -> Vec<Volume> {
    let one = |(at, mount): (usize, &spec::VolumeMount)| Volume {
        name: volume_name(at),
        secret: mount.secret.clone().map(|name| SecretVolumeSource {
            secret_name: Some(name),
            ..SecretVolumeSource::default()
        }),
        config_map: mount
            .config_map
            .clone()
            .map(|name| ConfigMapVolumeSource { name, ..ConfigMapVolumeSource::default() }),
        persistent_volume_claim: mount.claim.clone().map(|claim_name| {
            PersistentVolumeClaimVolumeSource {
                claim_name,
                read_only: mount.read_only.then_some(true),
            }
        }),
        empty_dir: mount.empty_dir.as_ref().map(|folder| EmptyDirVolumeSource {
            medium: folder.in_memory.then(|| "Memory".to_owned()),
            size_limit: folder.size_limit.clone().map(Quantity),
        }),
        ..Volume::default()
    };
    function.mounts.iter().enumerate().map(one).collect()
}

/// Explicit values are kept; defaults are adjusted so that requests don't exceed limits.
pub(in crate::reconcile) fn resources(
    requests: &Resources,
    limits: &Resources,
    default: &Sizes,
) -> ResourceRequirements {
    let mut all_requests = BTreeMap::new();
    let mut all_limits = BTreeMap::new();
    for (name, request, limit, default_request, default_limit) in [
        ("cpu", &requests.cpu, &limits.cpu, &default.requests.cpu, &default.limits.cpu),
        (
            "memory",
            &requests.memory,
            &limits.memory,
            &default.requests.memory,
            &default.limits.memory,
        ),
        ("ephemeral-storage", &requests.ephemeral_storage, &limits.ephemeral_storage, &None, &None),
    ] {
        let request = request.clone().or_else(|| match (default_request, limit) {
            (Some(request), Some(limit)) if exceeds(request, limit) => Some(limit.clone()),
            (request, _) => request.clone(),
        });
        let limit = limit.clone().or_else(|| match (default_limit, &request) {
            (Some(limit), Some(request)) if exceeds(request, limit) => Some(request.clone()),
            (limit, _) => limit.clone(),
        });
        if let Some(request) = request {
            all_requests.insert(name.to_owned(), Quantity(request));
        }
        if let Some(limit) = limit {
            all_limits.insert(name.to_owned(), Quantity(limit));
        }
    }
    ResourceRequirements {
        requests: (!all_requests.is_empty()).then_some(all_requests),
        limits: (!all_limits.is_empty()).then_some(all_limits),
        claims: None,
    }
}

pub(in crate::reconcile) fn security(security: &Security) -> Option<SecurityContext> {
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

pub(in crate::reconcile) struct Probes {
    pub(in crate::reconcile) startup: Probe,
    pub(in crate::reconcile) readiness: Probe,
    pub(in crate::reconcile) liveness: Probe,
}

pub(in crate::reconcile) fn probes(function: &ValidFunction, port: &IntOrString) -> Probes {
    let health = &function.health;
    let port = health.port.map_or_else(|| port.clone(), IntOrString::Int);
    let number = health.port.unwrap_or(function.port);
    let probe = Probe {
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
    Probes {
        startup: Probe {
            period_seconds: Some(1),
            timeout_seconds: Some(timeout),
            failure_threshold: Some(start),
            success_threshold: Some(1),
            ..probe.clone()
        },
        readiness: Probe {
            period_seconds: Some(period),
            timeout_seconds: Some(timeout),
            failure_threshold: Some(failures),
            success_threshold: Some(1),
            ..probe.clone()
        },
        liveness: Probe {
            period_seconds: Some(period.saturating_mul(2)),
            timeout_seconds: Some(timeout),
            failure_threshold: Some(failures),
            success_threshold: Some(1),
            ..probe
        },
    }
}

/// The lame-duck period and one call.
pub(in crate::reconcile) fn grace_seconds(function: &ValidFunction) -> i64 {
    let call = function.timeout_ms.unwrap_or(TIMEOUT_MS);
    LAME_DUCK_SECONDS + i64::from(call).div_euclid(1000) + 1
}
