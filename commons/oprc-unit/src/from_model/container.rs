//! Containers of functions.

use std::collections::BTreeMap;

use oprc_models::{self as model, Container, EnvValue, Quantity};

use crate::spec::{
    EmptyDir, EnvFrom, EnvVar, HealthCheck, KeyRef, Provision, Resources, Security, VolumeMount,
};

/// `None` if the container sets nothing.
pub(super) fn provision(container: &Container) -> Option<Provision> {
    let provision = Provision {
        min_scale: container.min_scale,
        max_scale: container.max_scale,
        requests: resources(
            container.requests_cpu.as_ref(),
            container.requests_memory.as_ref(),
            container.requests_ephemeral_storage.as_ref(),
        ),
        limits: resources(
            container.cpu.as_ref(),
            container.memory.as_ref(),
            container.ephemeral_storage.as_ref(),
        ),
        env: variables(&container.env),
        env_from: container
            .env_from
            .iter()
            .map(|it| EnvFrom {
                secret: it.secret.clone(),
                config_map: it.config_map.clone(),
                prefix: it.prefix.clone(),
                optional: it.optional,
            })
            .collect(),
        image_pull_policy: container.pull_policy.map(Into::into),
        image_pull_secrets: container.pull_secrets.clone(),
        service_account: container.service_account.clone(),
        volume_mounts: container.volumes.iter().map(volume).collect(),
        command: container.command.iter().map(|it| it.0.clone()).collect(),
        args: container.args.iter().map(|it| it.0.clone()).collect(),
        security: container.security.as_ref().map_or_else(Security::default, |it| Security {
            level: it.level.unwrap_or_default().into(),
            run_as_user: it.run_as_user,
        }),
    };
    (provision != Provision::default()).then_some(provision)
}

pub(super) fn resources(
    cpu: Option<&Quantity>,
    memory: Option<&Quantity>,
    ephemeral_storage: Option<&Quantity>,
) -> Option<Resources> {
    let text = |quantity: Option<&Quantity>| quantity.map(|it| it.0.clone());
    let resources = Resources {
        cpu: text(cpu),
        memory: text(memory),
        ephemeral_storage: text(ephemeral_storage),
    };
    (resources != Resources::default()).then_some(resources)
}

pub(super) fn variables(env: &BTreeMap<String, EnvValue>) -> Vec<EnvVar> {
    let variables = env.iter().map(|(name, value)| {
        let name = name.clone();
        match value {
            EnvValue::Plain(value) => {
                EnvVar { name, value: Some(value.clone()), ..EnvVar::default() }
            }
            EnvValue::From(source) => EnvVar {
                name,
                value: None,
                secret: source.secret.as_ref().map(key),
                config_map: source.config_map.as_ref().map(key),
            },
        }
    });
    variables.collect()
}

fn key(key: &model::KeyRef) -> KeyRef {
    KeyRef { name: key.name.clone(), key: key.key.clone(), optional: key.optional }
}

fn volume(volume: &model::Volume) -> VolumeMount {
    VolumeMount {
        mount_path: volume.mount_path.clone(),
        sub_path: volume.sub_path.clone(),
        read_only: volume.read_only,
        secret: volume.secret.clone(),
        config_map: volume.config_map.clone(),
        claim: volume.claim.clone(),
        empty_dir: volume.empty_dir.as_ref().map(|it| EmptyDir {
            size_limit: it.size_limit.as_ref().map(|it| it.0.clone()),
            in_memory: it.in_memory,
        }),
    }
}

pub(super) fn health_check(check: &model::HealthCheck) -> HealthCheck {
    HealthCheck {
        path: check.path.clone(),
        port: check.port,
        grpc: check.grpc,
        startup_seconds: check.startup_seconds,
        period_seconds: check.period_seconds,
        timeout_seconds: check.timeout_seconds,
        failure_threshold: check.failure_threshold,
    }
}
