//! What containers run with.

use std::collections::BTreeMap;

use super::{amount, length, many, object_name, range, unique};
use crate::{
    fault::{Faults, Path},
    injected::INJECTED,
    model::{Container, EnvFrom, EnvSource, EnvValue, HealthCheck, KeyRef, Volume},
    names::shown,
};

pub(super) fn container(faults: &mut Faults, path: &Path, container: &Container) {
    if let Some(image) = &container.image {
        self::image(faults, &path.field("image"), image);
    }
    range(faults, &path.field("port"), container.port, 1, 65_535);
    range(faults, &path.field("minScale"), container.min_scale, 0, 10_000);
    range(faults, &path.field("maxScale"), container.max_scale, 1, 10_000);
    if let (Some(least), Some(most)) = (container.min_scale, container.max_scale)
        && least > most
    {
        faults.add(&path.field("minScale"), format!("{least} is more than maxScale, {most}"));
    }
    for (limit_field, limit, request_field, request) in [
        ("cpu", &container.cpu, "requestsCpu", &container.requests_cpu),
        ("memory", &container.memory, "requestsMemory", &container.requests_memory),
        (
            "ephemeralStorage",
            &container.ephemeral_storage,
            "requestsEphemeralStorage",
            &container.requests_ephemeral_storage,
        ),
    ] {
        let most = amount(faults, &path.field(limit_field), limit.as_ref());
        let asked = amount(faults, &path.field(request_field), request.as_ref());
        if let (Some(most), Some(asked)) = (most, asked)
            && asked > most
        {
            faults
                .add(&path.field(request_field), format!("is more than the limit, {limit_field}"));
        }
    }
    environment(faults, &path.field("env"), &container.env);
    env_from(faults, &path.field("envFrom"), &container.env_from);
    let secrets = path.field("pullSecrets");
    many(faults, &secrets, &container.pull_secrets, 16);
    unique(faults, &secrets, "", container.pull_secrets.iter().map(String::as_str));
    for (at, secret) in container.pull_secrets.iter().enumerate() {
        object_name(faults, &secrets.index(at), secret);
    }
    if let Some(account) = &container.service_account {
        object_name(faults, &path.field("serviceAccount"), account);
    }
    volumes(faults, &path.field("volumes"), &container.volumes);
    for (field, texts) in [("command", &container.command), ("args", &container.args)] {
        let path = path.field(field);
        many(faults, &path, texts, 64);
        for (at, text) in texts.iter().enumerate().filter(|(_, text)| text.0.len() > 4096) {
            let message = format!("{} must have 4096 characters at most", shown(&text.0));
            faults.add(&path.index(at), message);
        }
    }
    if let Some(user) = container.security.as_ref().and_then(|it| it.run_as_user)
        && !(0..=i64::from(i32::MAX)).contains(&user)
    {
        let message = format!("{user} isn't between 0 and {}", i32::MAX);
        faults.add(&path.field("security").field("runAsUser"), message);
    }
    if let Some(health) = &container.health_check {
        health_check(faults, &path.field("healthCheck"), health);
    }
}

pub(super) fn image(faults: &mut Faults, path: &Path, image: &str) {
    length(faults, path, image, 1024);
    if image.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        faults.add(path, format!("{} may not contain white space", shown(image)));
    }
}

/// Names of variables, which the platform doesn't set itself.
pub(super) fn variables<'a>(
    faults: &mut Faults,
    path: &Path,
    names: impl ExactSizeIterator<Item = &'a String>,
) {
    if names.len() > 256 {
        faults.add(path, format!("there are {}, and 256 are allowed", names.len()));
    }
    for name in names {
        let path = path.key(name);
        let mut letters = name.bytes();
        let begins = letters.next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_');
        let goes_on = |it: u8| it.is_ascii_alphanumeric() || b"_.-".contains(&it);
        if !begins || name.len() > 253 || !letters.all(goes_on) {
            let allowed = "letters, digits, _ . and -";
            faults.add(&path, format!("{} is no name of a variable: {allowed}", shown(name)));
        } else if INJECTED.contains(&name.as_str()) {
            faults.add(&path, "is set by the platform");
        }
    }
}

pub(super) fn value(faults: &mut Faults, path: &Path, value: &str) {
    if value.len() > 32_768 {
        faults.add(path, "must have 32768 characters at most");
    }
    if value.contains('\0') {
        faults.add(path, "may not contain a null character");
    }
}

pub(super) fn environment(faults: &mut Faults, path: &Path, env: &BTreeMap<String, EnvValue>) {
    variables(faults, path, env.keys());
    for (name, set) in env {
        let path = path.key(name);
        match set {
            EnvValue::Plain(text) => value(faults, &path, text),
            EnvValue::From(EnvSource { secret: Some(from), config_map: None }) => {
                key_ref(faults, &path.field("secret"), from);
            }
            EnvValue::From(EnvSource { secret: None, config_map: Some(from) }) => {
                key_ref(faults, &path.field("configMap"), from);
            }
            EnvValue::From(_) => faults.add(&path, "give either secret or configMap"),
        }
    }
}

fn key_ref(faults: &mut Faults, path: &Path, from: &KeyRef) {
    object_name(faults, &path.field("name"), &from.name);
    length(faults, &path.field("key"), &from.key, 253);
}

fn env_from(faults: &mut Faults, path: &Path, all: &[EnvFrom]) {
    many(faults, path, all, 32);
    for (at, from) in all.iter().enumerate() {
        let path = path.index(at);
        match (&from.secret, &from.config_map) {
            (Some(name), None) => object_name(faults, &path.field("secret"), name),
            (None, Some(name)) => object_name(faults, &path.field("configMap"), name),
            _ => faults.add(&path, "give either secret or configMap"),
        }
        if from.prefix.as_ref().is_some_and(|prefix| prefix.len() > 63) {
            faults.add(&path.field("prefix"), "must have 63 characters at most");
        }
    }
}

fn volumes(faults: &mut Faults, path: &Path, volumes: &[Volume]) {
    many(faults, path, volumes, 32);
    unique(faults, path, "mountPath", volumes.iter().map(|it| it.mount_path.as_str()));
    for (at, volume) in volumes.iter().enumerate() {
        let path = path.index(at);
        let place = path.field("mountPath");
        length(faults, &place, &volume.mount_path, 1024);
        if !volume.mount_path.starts_with('/') || volume.mount_path.contains(':') {
            let message = format!("{} must begin with / and have no :", shown(&volume.mount_path));
            faults.add(&place, message);
        }
        if let Some(sub) = &volume.sub_path
            && (sub.is_empty()
                || sub.len() > 1024
                || sub.starts_with('/')
                || sub.split('/').any(|part| part == ".."))
        {
            let message = format!("{} must be a path within the source", shown(sub));
            faults.add(&path.field("subPath"), message);
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
                object_name(faults, &path.field(field), source);
            }
        }
        if sources != 1 {
            faults.add(&path, "give exactly one of secret, configMap, claim and emptyDir");
        }
        let size = volume.empty_dir.as_ref().and_then(|folder| folder.size_limit.as_ref());
        amount(faults, &path.field("emptyDir").field("sizeLimit"), size);
    }
}

fn health_check(faults: &mut Faults, path: &Path, health: &HealthCheck) {
    if let Some(asked) = &health.path {
        let place = path.field("path");
        length(faults, &place, asked, 1024);
        if !asked.starts_with('/') {
            faults.add(&place, format!("{} must begin with /", shown(asked)));
        }
        if health.grpc {
            faults.add(&place, "doesn't go together with grpc");
        }
    }
    range(faults, &path.field("port"), health.port, 1, 65_535);
    range(faults, &path.field("startupSeconds"), health.startup_seconds, 1, 3600);
    range(faults, &path.field("periodSeconds"), health.period_seconds, 1, 3600);
    range(faults, &path.field("timeoutSeconds"), health.timeout_seconds, 1, 3600);
    range(faults, &path.field("failureThreshold"), health.failure_threshold, 1, 100);
}
