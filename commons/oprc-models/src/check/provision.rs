//! Containers of functions.

use std::collections::BTreeMap;

use super::{
    check_count, check_length, check_max_length, check_object_name, check_quantity, check_range,
    check_resources, check_unique,
};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::{Container, EnvFrom, EnvSource, EnvValue, HealthCheck, KeyRef, Volume},
    names::quote,
    reserved_env::RESERVED_ENV,
};

pub(super) const RESERVED: &str = "is reserved: the platform sets this variable";
const SECRET_OR_CONFIG_MAP: &str = "set either secret or configMap";

pub(super) fn check_container(diagnostics: &mut Diagnostics, path: &Path, container: &Container) {
    if let Some(image) = &container.image {
        check_image(diagnostics, &path.field("image"), image);
    }
    check_range(diagnostics, &path.field("port"), container.port, 1, 65_535);
    check_range(diagnostics, &path.field("minScale"), container.min_scale, 0, 10_000);
    check_range(diagnostics, &path.field("maxScale"), container.max_scale, 1, 10_000);
    if let (Some(min), Some(max)) = (container.min_scale, container.max_scale)
        && min > max
    {
        let message = format!("{min} must not exceed maxScale ({max})");
        diagnostics.add(&path.field("minScale"), message);
    }
    let resources = [
        ("cpu", &container.cpu, "requestsCpu", &container.requests_cpu),
        ("memory", &container.memory, "requestsMemory", &container.requests_memory),
        (
            "ephemeralStorage",
            &container.ephemeral_storage,
            "requestsEphemeralStorage",
            &container.requests_ephemeral_storage,
        ),
    ];
    check_resources(diagnostics, path, resources);
    check_env(diagnostics, &path.field("env"), &container.env);
    check_env_from(diagnostics, &path.field("envFrom"), &container.env_from);
    let secrets = path.field("pullSecrets");
    check_count(diagnostics, &secrets, container.pull_secrets.len(), 16);
    check_unique(diagnostics, &secrets, "", container.pull_secrets.iter().map(String::as_str));
    for (index, secret) in container.pull_secrets.iter().enumerate() {
        check_object_name(diagnostics, &secrets.index(index), secret);
    }
    if let Some(account) = &container.service_account {
        check_object_name(diagnostics, &path.field("serviceAccount"), account);
    }
    check_volumes(diagnostics, &path.field("volumes"), &container.volumes);
    for (field, texts) in [("command", &container.command), ("args", &container.args)] {
        let path = path.field(field);
        check_count(diagnostics, &path, texts.len(), 64);
        for (index, text) in texts.iter().enumerate() {
            check_max_length(diagnostics, &path.index(index), &text.0, 4096);
        }
    }
    let user = container.security.as_ref().and_then(|it| it.run_as_user);
    check_range(diagnostics, &path.field("security").field("runAsUser"), user, 0, i32::MAX);
    if let Some(health) = &container.health_check {
        check_health_check(diagnostics, &path.field("healthCheck"), health);
    }
}

pub(super) fn check_image(diagnostics: &mut Diagnostics, path: &Path, image: &str) {
    check_length(diagnostics, path, image, 1024);
    if image.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        diagnostics.add(path, format!("{} must not contain white space", quote(image)));
    }
}

/// Checks the names of environment variables, including their number.
pub(super) fn check_env_names<'a>(
    diagnostics: &mut Diagnostics,
    path: &Path,
    names: impl ExactSizeIterator<Item = &'a String>,
) {
    check_count(diagnostics, path, names.len(), 256);
    for name in names {
        let path = path.key(name);
        let mut bytes = name.bytes();
        let valid_start = bytes.next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_');
        let allowed = |it: u8| it.is_ascii_alphanumeric() || b"_.-".contains(&it);
        if !valid_start || name.len() > 253 || !bytes.all(allowed) {
            let rule = "letters, digits, _, . and -, starting with a letter or _";
            let name = quote(name);
            let message = format!("{name} is not a valid environment variable name; use {rule}");
            diagnostics.add(&path, message);
        } else if RESERVED_ENV.contains(&name.as_str()) {
            diagnostics.add(&path, RESERVED);
        }
    }
}

pub(super) fn check_env_value(diagnostics: &mut Diagnostics, path: &Path, value: &str) {
    check_max_length(diagnostics, path, value, 32_768);
    if value.contains('\0') {
        diagnostics.add(path, "must not contain a null character");
    }
}

pub(super) fn check_env(
    diagnostics: &mut Diagnostics,
    path: &Path,
    env: &BTreeMap<String, EnvValue>,
) {
    check_env_names(diagnostics, path, env.keys());
    for (name, value) in env {
        let path = path.key(name);
        match value {
            EnvValue::Plain(text) => check_env_value(diagnostics, &path, text),
            EnvValue::From(EnvSource { secret: Some(from), config_map: None }) => {
                check_key_ref(diagnostics, &path.field("secret"), from);
            }
            EnvValue::From(EnvSource { secret: None, config_map: Some(from) }) => {
                check_key_ref(diagnostics, &path.field("configMap"), from);
            }
            EnvValue::From(_) => diagnostics.add(&path, SECRET_OR_CONFIG_MAP),
        }
    }
}

fn check_key_ref(diagnostics: &mut Diagnostics, path: &Path, from: &KeyRef) {
    check_object_name(diagnostics, &path.field("name"), &from.name);
    check_length(diagnostics, &path.field("key"), &from.key, 253);
}

fn check_env_from(diagnostics: &mut Diagnostics, path: &Path, sources: &[EnvFrom]) {
    check_count(diagnostics, path, sources.len(), 32);
    for (index, from) in sources.iter().enumerate() {
        let path = path.index(index);
        match (&from.secret, &from.config_map) {
            (Some(name), None) => check_object_name(diagnostics, &path.field("secret"), name),
            (None, Some(name)) => check_object_name(diagnostics, &path.field("configMap"), name),
            _ => diagnostics.add(&path, SECRET_OR_CONFIG_MAP),
        }
        if let Some(prefix) = &from.prefix {
            check_max_length(diagnostics, &path.field("prefix"), prefix, 63);
        }
    }
}

fn check_volumes(diagnostics: &mut Diagnostics, path: &Path, volumes: &[Volume]) {
    check_count(diagnostics, path, volumes.len(), 32);
    check_unique(diagnostics, path, "mountPath", volumes.iter().map(|it| it.mount_path.as_str()));
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let mount = path.field("mountPath");
        check_length(diagnostics, &mount, &volume.mount_path, 1024);
        if !volume.mount_path.starts_with('/') || volume.mount_path.contains(':') {
            let given = quote(&volume.mount_path);
            diagnostics.add(&mount, format!("{given} must start with / and contain no colon"));
        }
        if let Some(sub) = &volume.sub_path
            && (sub.is_empty()
                || sub.len() > 1024
                || sub.starts_with('/')
                || sub.split('/').any(|part| part == ".."))
        {
            let message = format!(
                "{} must be a relative path of 1 to 1024 characters within the volume, without ..",
                quote(sub)
            );
            diagnostics.add(&path.field("subPath"), message);
        }
        let named = [
            ("secret", &volume.secret),
            ("configMap", &volume.config_map),
            ("claim", &volume.claim),
        ];
        let mut sources = usize::from(volume.empty_dir.is_some());
        for (field, source) in named {
            if let Some(source) = source {
                sources += 1;
                check_object_name(diagnostics, &path.field(field), source);
            }
        }
        if sources != 1 {
            diagnostics.add(&path, "set exactly one of secret, configMap, claim and emptyDir");
        }
        let size = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref());
        check_quantity(diagnostics, &path.field("emptyDir").field("sizeLimit"), size);
    }
}

fn check_health_check(diagnostics: &mut Diagnostics, path: &Path, health: &HealthCheck) {
    if let Some(http_path) = &health.path {
        let path = path.field("path");
        check_length(diagnostics, &path, http_path, 1024);
        if !http_path.starts_with('/') {
            diagnostics.add(&path, format!("{} must start with /", quote(http_path)));
        }
        if health.grpc {
            diagnostics.add(&path, "cannot be combined with grpc");
        }
    }
    check_range(diagnostics, &path.field("port"), health.port, 1, 65_535);
    check_range(diagnostics, &path.field("startupSeconds"), health.startup_seconds, 1, 3600);
    check_range(diagnostics, &path.field("periodSeconds"), health.period_seconds, 1, 3600);
    check_range(diagnostics, &path.field("timeoutSeconds"), health.timeout_seconds, 1, 3600);
    check_range(diagnostics, &path.field("failureThreshold"), health.failure_threshold, 1, 100);
}
