//! Containers of functions.

use std::collections::BTreeMap;

use crate::{
    diagnostics::FieldCursor,
    limits,
    model::{Container, EnvFrom, EnvSource, EnvValue, HealthCheck, KeyRef, Volume},
    names::quote,
    rules::{has_white_space, is_env_name, is_mount_path, is_reserved_env},
};

const SECRET_OR_CONFIG_MAP: &str = "set either secret or configMap";

pub(super) fn check_container(at: &FieldCursor<'_>, container: &Container) {
    check_image(&at.field("image"), container.image.as_ref());
    at.field("port").range(container.port, limits::PORT);
    at.field("minScale").range(container.min_scale, limits::MIN_SCALE);
    at.field("maxScale").range(container.max_scale, limits::MAX_SCALE);
    if let (Some(min), Some(max)) = (container.min_scale, container.max_scale)
        && min > max
    {
        at.field("minScale").add(format!("{min} must not exceed maxScale ({max})"));
    }
    at.resources(&[
        ("cpu", &container.cpu, "requestsCpu", &container.requests_cpu),
        ("memory", &container.memory, "requestsMemory", &container.requests_memory),
        (
            "ephemeralStorage",
            &container.ephemeral_storage,
            "requestsEphemeralStorage",
            &container.requests_ephemeral_storage,
        ),
    ]);
    check_env(&at.field("env"), &container.env, limits::ENV, is_reserved_env);
    for (at, from) in at.field("envFrom").limited(limits::ENV_FROM, &container.env_from) {
        check_env_from(&at, from);
    }
    let (max, secrets) = (limits::PULL_SECRETS, &container.pull_secrets);
    for (at, secret) in at.field("pullSecrets").unique(max, secrets, "", |it| it) {
        at.object_name(secret);
    }
    at.field("serviceAccount").object_name(container.service_account.as_ref());
    let (max, volumes) = (limits::VOLUMES, &container.volumes);
    for (at, volume) in at.field("volumes").unique(max, volumes, "mountPath", |it| &it.mount_path) {
        check_volume(&at, volume);
    }
    for (field, texts) in [("command", &container.command), ("args", &container.args)] {
        for (at, text) in at.field(field).limited(limits::ARGUMENTS, texts) {
            at.max_length(&text.0, limits::ARGUMENT);
        }
    }
    let user = container.security.as_ref().and_then(|it| it.run_as_user);
    at.field("security").field("runAsUser").range(user, limits::USER_ID);
    if let Some(health) = &container.health_check {
        check_health_check(&at.field("healthCheck"), health);
    }
}

pub(super) fn check_image(at: &FieldCursor<'_>, image: Option<&String>) {
    at.length(image, limits::IMAGE);
    if let Some(image) = image.filter(|it| has_white_space(it)) {
        at.add(format!("{} must not contain white space", quote(image)));
    }
}

pub(super) fn check_env_name(at: &FieldCursor<'_>, name: &str, reserved: fn(&str) -> bool) {
    if !is_env_name(name) {
        let rule = "letters, digits, _, . and -, starting with a letter or _";
        at.add(format!("{} is not a valid environment variable name; use {rule}", quote(name)));
    } else if reserved(name) {
        at.add("is reserved: the platform sets this variable");
    }
}

pub(super) fn check_env_value(at: &FieldCursor<'_>, value: &str) {
    at.max_length(value, limits::ENV_VALUE);
    if value.contains('\0') {
        at.add("must not contain a null character");
    }
}

pub(super) fn check_env(
    at: &FieldCursor<'_>,
    env: &BTreeMap<String, EnvValue>,
    max: usize,
    reserved: fn(&str) -> bool,
) {
    at.count(env.len(), max);
    for (name, value) in env {
        let at = at.key(name);
        check_env_name(&at, name, reserved);
        match value {
            EnvValue::Plain(text) => check_env_value(&at, text),
            EnvValue::From(EnvSource { secret: Some(from), config_map: None }) => {
                check_key_ref(&at.field("secret"), from);
            }
            EnvValue::From(EnvSource { secret: None, config_map: Some(from) }) => {
                check_key_ref(&at.field("configMap"), from);
            }
            EnvValue::From(_) => at.add(SECRET_OR_CONFIG_MAP),
        }
    }
}

fn check_key_ref(at: &FieldCursor<'_>, from: &KeyRef) {
    at.field("name").object_name(&from.name);
    at.field("key").length(&from.key, limits::NAME);
}

fn check_env_from(at: &FieldCursor<'_>, from: &EnvFrom) {
    if from.secret.is_some() == from.config_map.is_some() {
        at.add(SECRET_OR_CONFIG_MAP);
    } else {
        at.field("secret").object_name(from.secret.as_ref());
        at.field("configMap").object_name(from.config_map.as_ref());
    }
    if let Some(prefix) = &from.prefix {
        at.field("prefix").max_length(prefix, limits::ENV_PREFIX);
    }
}

fn check_volume(at: &FieldCursor<'_>, volume: &Volume) {
    let mount = at.field("mountPath");
    mount.length(&volume.mount_path, limits::PATH);
    if !is_mount_path(&volume.mount_path) {
        let path = quote(&volume.mount_path);
        mount.add(format!("{path} must start with / and contain no colon"));
    }
    if let Some(path) = &volume.sub_path
        && (!(1..=limits::PATH).contains(&path.len())
            || path.starts_with('/')
            || path.split('/').any(|part| part == ".."))
    {
        at.field("subPath").add(format!(
            "{} must be a relative path of 1 to 1024 characters within the volume, without ..",
            quote(path)
        ));
    }
    let mut sources = usize::from(volume.empty_dir.is_some());
    for (field, source) in
        [("secret", &volume.secret), ("configMap", &volume.config_map), ("claim", &volume.claim)]
    {
        sources += usize::from(source.is_some());
        at.field(field).object_name(source.as_ref());
    }
    if sources != 1 {
        at.add("set exactly one of secret, configMap, claim and emptyDir");
    }
    let size = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref());
    at.field("emptyDir").field("sizeLimit").quantity(size);
}

fn check_health_check(at: &FieldCursor<'_>, health: &HealthCheck) {
    if let Some(path) = &health.path {
        let at = at.field("path");
        at.length(path, limits::PATH);
        if !path.starts_with('/') {
            at.add(format!("{} must start with /", quote(path)));
        }
        if health.grpc {
            at.add("cannot be combined with grpc");
        }
    }
    at.field("port").range(health.port, limits::PORT);
    at.field("startupSeconds").range(health.startup_seconds, limits::PROBE_SECONDS);
    at.field("periodSeconds").range(health.period_seconds, limits::PROBE_SECONDS);
    at.field("timeoutSeconds").range(health.timeout_seconds, limits::PROBE_SECONDS);
    at.field("failureThreshold").range(health.failure_threshold, limits::FAILURE_THRESHOLD);
}
