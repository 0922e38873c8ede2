//! The table of settings.

use oprc_config::{Kind, Schema, Setting};

use oprc_unit::{Platform, Profile, spec::Resources};

fn environment(profile: &str) -> Platform {
    Platform::of(Profile::parse(profile).unwrap_or_default())
}

// The table wants something that may be unset.
#[allow(clippy::unnecessary_wraps)]
fn yes(_: &str) -> Option<String> {
    Some("true".to_owned())
}

#[allow(clippy::unnecessary_wraps)]
fn only_full(profile: &str) -> Option<String> {
    Some((Profile::parse(profile) == Some(Profile::Full)).to_string())
}

fn function(profile: &str) -> Resources {
    environment(profile).function_sizes.requests
}

fn function_limits(profile: &str) -> Resources {
    environment(profile).function_sizes.limits
}

fn odgm(profile: &str) -> Resources {
    environment(profile).odgm_sizes.requests
}

fn odgm_limits(profile: &str) -> Resources {
    environment(profile).odgm_sizes.limits
}

const MILLISECONDS: Kind = Kind::Integer { min: 0, max: 86_400_000 };

/// Everything that CRM can be told.
pub const SCHEMA: Schema = Schema {
    program: "oprc-crm",
    about: "Class Runtime Manager: keeps the classes of one Kubernetes cluster as they are to be",
    env_prefix: "OPRC_CRM_",
    root: Some("crm"),
    profile: "profile",
    settings: SETTINGS,
    refused: &[
        ("kubernetes.crd_group", "the group is oaas.io"),
        ("kubernetes.crd_version", "the version is v1alpha1"),
        ("kubernetes.watch_timeout", "watches are opened again by themselves"),
        (
            "environments",
            "environments become objects of their own; until then a class's environment is a name",
        ),
        ("templates.load_on_start", "templates become objects, which are watched"),
        ("templates.path", "templates become objects, which are watched"),
        ("templates.selection_timeout", "selecting a template takes no time"),
        (
            "package_manager",
            "CRM never calls the package manager: that one opens the status stream",
        ),
        ("monitoring.enabled", "figures are always served"),
        ("monitoring.metrics_path", "figures are at /metrics"),
        ("monitoring.metrics_interval", "figures are counted as things happen"),
        ("monitoring.health_path", "health is at /health/live and /health/ready"),
        ("performance.cache_size", "caches hold what there is"),
        ("performance.cache_ttl", "caches are kept by watches"),
        ("logging.audit_enabled", "the API server audits, by the name of CRM's account"),
        ("logging.audit_path", "the API server audits, by the name of CRM's account"),
        ("odgm.defaults", "what a class doesn't say follows from its requirements"),
        ("odgm.collection_templates", "what a class doesn't say follows from its requirements"),
        ("odgm.partition_strategies", "partitions follow from throughput"),
        ("odgm.health_checks", "the data grid is probed over gRPC"),
        ("nfr_enforcement", "requirements aren't watched yet"),
    ],
};

const SETTINGS: &[Setting] = &[
    Setting {
        path: "profile",
        env: &["OPRC_CRM_PROFILE"],
        kind: Kind::OneOf(&Profile::NAMES),
        help: "Sizes and defaults: a developer's machine, scarce resources, or production",
        default: |_| Some("dev".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.host",
        env: &["OPRC_CRM_SERVER_HOST"],
        kind: Kind::Text,
        help: "The address to listen on; left out, all of a container's own and loopback elsewhere",
        ..Setting::EMPTY
    },
    Setting {
        path: "server.port",
        env: &["HTTP_PORT", "GRPC_PORT", "OPRC_CRM_SERVER_PORT"],
        kind: Kind::Integer { min: 0, max: 65_535 },
        help: "The port for HTTP and gRPC",
        default: |_| Some("8088".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.shutdown_timeout",
        env: &["OPRC_CRM_SERVER_SHUTDOWN_TIMEOUT"],
        kind: Kind::Duration,
        help: "How long open calls may take to finish when CRM stops",
        default: |_| Some("10s".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.max_concurrent_calls",
        env: &["OPRC_CRM_SERVER_MAX_CONCURRENT_CALLS"],
        kind: Kind::Integer { min: 1, max: 1_000_000 },
        help: "How many gRPC calls are worked on at once; more are RESOURCE_EXHAUSTED",
        default: |_| Some("1024".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "kubernetes.namespace",
        env: &["OPRC_CRM_K8S_NAMESPACE"],
        kind: Kind::Text,
        help: "The namespace of classes that don't say; left out, CRM's own, or that of the kubeconfig",
        ..Setting::EMPTY
    },
    Setting {
        path: "kubernetes.scope",
        env: &["OPRC_CRM_K8S_SCOPE"],
        kind: Kind::OneOf(&["cluster", "namespace"]),
        help: "Whether CRM sees the whole cluster, or its namespace only",
        default: |_| Some("cluster".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "kubernetes.lease",
        env: &["OPRC_CRM_K8S_LEASE"],
        kind: Kind::Text,
        help: "The name of the lease by which several CRMs choose the one that writes",
        default: |_| Some("oprc-crm".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "kubernetes.lease_namespace",
        env: &["OPRC_CRM_K8S_LEASE_NAMESPACE"],
        kind: Kind::Text,
        help: "The namespace of that lease; left out, CRM's own. One that runs outside of the cluster and sees all of it takes the lease in oaas-system where there is one, otherwise the kubeconfig's namespace",
        ..Setting::EMPTY
    },
    Setting {
        path: "features.odgm",
        env: &["OPRC_CRM_FEATURES_ODGM"],
        kind: Kind::Bool,
        help: "Whether classes may have a data grid",
        default: only_full,
        ..Setting::EMPTY
    },
    Setting {
        path: "features.hpa",
        env: &["OPRC_CRM_FEATURES_HPA"],
        kind: Kind::Bool,
        help: "Whether functions with a range of scales get an autoscaler",
        default: only_full,
        ..Setting::EMPTY
    },
    Setting {
        path: "features.knative",
        env: &["OPRC_CRM_FEATURES_KNATIVE"],
        kind: Kind::Bool,
        help: "Whether Knative is used where the cluster has it",
        default: yes,
        ..Setting::EMPTY
    },
    Setting {
        path: "features.leader_election",
        env: &["OPRC_CRM_FEATURES_LEADER_ELECTION"],
        kind: Kind::Bool,
        help: "Whether several CRMs choose one that writes; off only where there is one for certain",
        default: yes,
        ..Setting::EMPTY
    },
    Setting {
        path: "templates.default_template",
        env: &["OPRC_CRM_TEMPLATES_DEFAULT_TEMPLATE"],
        kind: Kind::Text,
        help: "The template of classes that nothing speaks for any; left out, k8s_deployment",
        ..Setting::EMPTY
    },
    Setting {
        path: "templates.drain",
        env: &["OPRC_CRM_TEMPLATES_DRAIN"],
        kind: Kind::Duration,
        help: "How long what a change of template replaces goes on answering",
        default: |_| Some("10s".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "templates.floors.k8s_deployment_ms",
        env: &["OPRC_CRM_TEMPLATES_FLOORS_K8S_DEPLOYMENT_MS"],
        kind: MILLISECONDS,
        help: "The least latency that k8s_deployment can promise",
        default: |_| Some("1".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "templates.floors.knative_warm_ms",
        env: &["OPRC_CRM_TEMPLATES_FLOORS_KNATIVE_WARM_MS"],
        kind: MILLISECONDS,
        help: "The least latency that knative can promise with a minimum scale of 1 or more",
        default: |_| Some("10".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "templates.floors.knative_cold_ms",
        env: &["OPRC_CRM_TEMPLATES_FLOORS_KNATIVE_COLD_MS"],
        kind: MILLISECONDS,
        help: "The least latency that knative can promise from zero",
        default: |_| Some("3000".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "templates.knative_max_timeout",
        env: &["OPRC_CRM_TEMPLATES_KNATIVE_MAX_TIMEOUT"],
        kind: Kind::Duration,
        help: "The longest timeout that Knative takes: its own max-revision-timeout-seconds",
        default: |_| Some("10m".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "performance.max_concurrent_deployments",
        env: &["OPRC_CRM_PERFORMANCE_MAX_CONCURRENT_DEPLOYMENTS"],
        kind: Kind::Integer { min: 1, max: 10_000 },
        help: "How many classes are looked at at once",
        default: |_| Some("16".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "performance.deployment_timeout",
        env: &["OPRC_CRM_PERFORMANCE_DEPLOYMENT_TIMEOUT"],
        kind: Kind::Duration,
        help: "How long a class may take to become Available that doesn't say",
        default: |profile| Some(format!("{}s", environment(profile).progress_deadline.as_secs())),
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.image",
        env: &["OPRC_CRM_ODGM_IMAGE"],
        kind: Kind::Text,
        help: "The data grid's image for classes that don't name one; left out, the profile's own",
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.disk",
        env: &["OPRC_CRM_ODGM_DISK"],
        kind: Kind::Text,
        help: "The disk of each node of a persistent data grid",
        default: |profile| Some(environment(profile).odgm_disk),
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.container_resources.function.requests.cpu",
        env: &["OPRC_CRM_FUNCTION_REQUESTS_CPU"],
        kind: Kind::Text,
        help: "Processor time that functions ask for that don't say",
        default: |profile| function(profile).cpu,
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.container_resources.function.requests.memory",
        env: &["OPRC_CRM_FUNCTION_REQUESTS_MEMORY"],
        kind: Kind::Text,
        help: "Memory that functions ask for that don't say",
        default: |profile| function(profile).memory,
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.container_resources.function.limits.cpu",
        env: &["OPRC_CRM_FUNCTION_LIMITS_CPU"],
        kind: Kind::Text,
        help: "Processor time that functions may not exceed that don't say",
        default: |profile| function_limits(profile).cpu,
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.container_resources.function.limits.memory",
        env: &["OPRC_CRM_FUNCTION_LIMITS_MEMORY"],
        kind: Kind::Text,
        help: "Memory that functions may not exceed that don't say",
        default: |profile| function_limits(profile).memory,
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.container_resources.odgm.requests.cpu",
        env: &["OPRC_CRM_ODGM_REQUESTS_CPU"],
        kind: Kind::Text,
        help: "Processor time that nodes of the data grid ask for",
        default: |profile| odgm(profile).cpu,
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.container_resources.odgm.requests.memory",
        env: &["OPRC_CRM_ODGM_REQUESTS_MEMORY"],
        kind: Kind::Text,
        help: "Memory that nodes of the data grid ask for",
        default: |profile| odgm(profile).memory,
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.container_resources.odgm.limits.cpu",
        env: &["OPRC_CRM_ODGM_LIMITS_CPU"],
        kind: Kind::Text,
        help: "Processor time that nodes of the data grid may not exceed",
        default: |profile| odgm_limits(profile).cpu,
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.container_resources.odgm.limits.memory",
        env: &["OPRC_CRM_ODGM_LIMITS_MEMORY"],
        kind: Kind::Text,
        help: "Memory that nodes of the data grid may not exceed",
        default: |profile| odgm_limits(profile).memory,
        ..Setting::EMPTY
    },
    Setting {
        path: "security.mtls",
        env: &["OPRC_CRM_SECURITY_MTLS"],
        kind: Kind::Bool,
        help: "Whether gRPC clients need a certificate",
        default: only_full,
        ..Setting::EMPTY
    },
    Setting {
        path: "security.token_file",
        env: &["OPRC_CRM_SECURITY_TOKEN_FILE"],
        kind: Kind::Path,
        help: "A file of bearer tokens, one to a line, one of which gRPC clients need; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.certificate",
        env: &["OPRC_CRM_SECURITY_TLS_CERTIFICATE"],
        kind: Kind::Path,
        help: "The certificate of the port, as PEM; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.key",
        env: &["OPRC_CRM_SECURITY_TLS_KEY"],
        kind: Kind::Path,
        help: "Its key, as PEM; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.client_ca",
        env: &["OPRC_CRM_SECURITY_TLS_CLIENT_CA"],
        kind: Kind::Path,
        help: "Who signs clients' certificates, as PEM; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "logging.level",
        env: &["RUST_LOG", "SERVICE_LOG", "OPRC_CRM_LOG"],
        kind: Kind::Text,
        help: "What is logged, such as info or oprc_crm=debug,info",
        default: |profile| {
            let level = if profile == "dev" { "info,oprc_crm=debug" } else { "info" };
            Some(level.to_owned())
        },
        ..Setting::EMPTY
    },
    Setting {
        path: "logging.format",
        env: &["OPRC_CRM_LOG_FORMAT"],
        kind: Kind::OneOf(&["json", "pretty"]),
        help: "How logs are written",
        default: |profile| Some(if profile == "dev" { "pretty" } else { "json" }.to_owned()),
        ..Setting::EMPTY
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        assert_eq!(SCHEMA.faults(), Vec::<String>::new());
    }
}
