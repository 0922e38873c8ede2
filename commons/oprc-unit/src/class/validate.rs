//! Parses a specification into a class that can be rendered, or reports all violations.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ADDONS, Addon, Identity, Passive, PassiveReason, Rejection, ValidClass, ValidFunction, grid,
    violations::{Violations, check_resources, check_variable},
};
use crate::{
    availability::floor,
    names,
    platform::{Platform, Profile},
    quantity, replication,
    spec::{
        Access, Constraints, EnvVar, FunctionConfig, FunctionType, MAX_SCALE, Provision,
        Requirements, SingleFunction, UnitSpec,
    },
};

const DEFAULT_PORT: i32 = 8080;

/// Validates a specification. `profile` applies if it requests none.
pub fn validate(
    profile: Profile,
    identity: Identity,
    spec: &UnitSpec,
    platform: &Platform,
) -> Result<ValidClass, Rejection> {
    let template = spec.selected_template.clone().or_else(|| spec.template_hint.clone());
    let profile = template.as_deref().and_then(Profile::parse).unwrap_or(profile);
    let mut violations = Violations::default();
    for addon in &spec.addons {
        if Addon::parse(addon).is_none() {
            let names = ADDONS.map(|addon| addon.name).join(", ");
            violations.add("addons", format!("unknown addon {addon:?}; available: {names}"));
        }
    }
    violations.duplicates(|at| format!("addons[{at}]"), spec.addons.iter());
    if let (Some(one), Some(other)) = (&spec.selected_template, &spec.template_hint)
        && one != other
    {
        violations.add("template_hint", "differs from selected_template: set only one of them");
    }
    check_requirements(&mut violations, "nfr_requirements", spec.nfr_requirements.as_ref());
    check_constraints(&mut violations, "constraints", spec.constraints.as_ref());
    if let Some(rollout) = &spec.rollout {
        let deadline = rollout.progress_deadline_seconds;
        violations.range("rollout.progress_deadline_seconds", deadline, 1, 86_400);
        violations.range("rollout.drain_seconds", rollout.drain_seconds, 0, 3600);
    }
    let factor = spec.resource_allocation.as_ref().and_then(|it| it.replication_factor);
    violations.range("resource_allocation.replication_factor", factor, 1, 99);

    let (functions, passive) = functions(&mut violations, &identity, spec);
    let keys: BTreeSet<&str> = functions
        .iter()
        .map(|it| it.key.as_str())
        .chain(passive.iter().map(|it| it.key.as_str()))
        .collect();
    for (field, named) in [
        ("disabled_functions", &spec.disabled_functions),
        ("standby_functions", &spec.standby_functions),
    ] {
        violations.duplicates(|at| format!("{field}[{at}]"), named.iter());
        for key in named.iter().filter(|key| !keys.contains(key.as_str())) {
            violations.add(field, format!("the class has no function {key:?}"));
        }
    }
    let has_grid = replication::has_grid(spec);
    let odgm = has_grid.then(|| grid::plan(&mut violations, &identity, spec, &functions, profile));
    if !violations.0.is_empty() {
        return Err(Rejection::invalid(violations.0));
    }
    let addons = spec.addons.iter().filter_map(|name| Addon::parse(name));
    if let Some(addon) = addons.into_iter().find(|it| !it.is_enabled(&platform.features)) {
        let (name, setting) = (addon.name, addon.setting);
        let message = format!("the addon {name} is disabled in this cluster's CRM ({setting})");
        return Err(Rejection::precondition(addon.if_disabled, "addons", message));
    }
    Ok(ValidClass {
        identity,
        functions,
        passive,
        odgm,
        template,
        profile,
        partition: spec.deployment_unit.as_ref().and_then(|unit| unit.partition_info.clone()),
        telemetry: spec.telemetry.clone().unwrap_or_default(),
    })
}

fn functions(
    violations: &mut Violations,
    identity: &Identity,
    spec: &UnitSpec,
) -> (Vec<ValidFunction>, Vec<Passive>) {
    let mut running = Vec::new();
    let mut passive = Vec::new();
    let mut seen = BTreeMap::new();
    let keys = spec.function.iter().map(|_| None);
    let keys = keys.chain(spec.functions.iter().map(|it| Some(it.key.as_str())));
    if spec.function.is_some() && !spec.functions.is_empty() {
        violations.add("function", "function and functions are mutually exclusive");
    }
    for ((field, body), name_key) in spec.bodies().zip(keys) {
        let key = name_key.unwrap_or(&identity.name);
        violations.length(&format!("{field}.key"), key, 253);
        // Object names are lower-cased, so keys that differ only in case collide.
        match seen.insert(names::function(&identity.base, name_key), key) {
            Some(other) if other == key => {
                violations.add(format!("{field}.key"), format!("{key:?} is given twice"));
            }
            Some(other) => violations.add(
                format!("{field}.key"),
                format!("{key:?} differs from {other:?} only in case; rename one of them"),
            ),
            None => {}
        }
        let kind = body.kind.unwrap_or_default();
        if spec.disabled_functions.iter().any(|disabled| disabled == key) {
            passive.push(Passive { key: key.to_owned(), reason: PassiveReason::Disabled });
            continue;
        }
        match &body.image {
            Some(image) => {
                violations.length(&format!("{field}.image"), image, 1024);
                if image.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
                    violations.add(format!("{field}.image"), "must not contain whitespace");
                }
                running.push(function(violations, &field, key, name_key, image, body, spec));
            }
            None if matches!(kind, FunctionType::Task | FunctionType::Custom) => {
                violations.add(
                    format!("{field}.image"),
                    "is required for functions that run in containers",
                );
            }
            None => {
                passive.push(Passive { key: key.to_owned(), reason: PassiveReason::NoContainer });
            }
        }
    }
    (running, passive)
}

fn function(
    violations: &mut Violations,
    field: &str,
    key: &str,
    name_key: Option<&str>,
    image: &str,
    body: &SingleFunction,
    spec: &UnitSpec,
) -> ValidFunction {
    violations.range(&format!("{field}.port"), body.port, 1, 65_535);
    let provision = body.provision.clone().unwrap_or_default();
    check_provision(violations, &format!("{field}.provision"), &provision);
    check_requirements(violations, &format!("{field}.requirements"), body.requirements.as_ref());
    check_constraints(violations, &format!("{field}.constraints"), body.constraints.as_ref());
    let config = body.config.clone().unwrap_or_default();
    violations.range(&format!("{field}.config.timeout_ms"), config.timeout_ms, 1, 86_400_000);
    let env = environment(violations, field, &provision, &config);
    let health = body.health_check.clone().unwrap_or_default();
    violations.range(&format!("{field}.health_check.port"), health.port, 1, 65_535);
    if health.grpc && health.path.is_some() {
        violations.add(format!("{field}.health_check.path"), "can't be combined with grpc");
    }
    let class = spec.nfr_requirements.clone().unwrap_or_default();
    let own = body.requirements.clone().unwrap_or_default();
    let class_limits = spec.constraints.clone().unwrap_or_default();
    let own_limits = body.constraints.clone().unwrap_or_default();
    let default_access = body.access.unwrap_or(Access::Internal);
    let widest = body.bindings.iter().map(|it| it.access.unwrap_or(default_access)).max();
    let standby = spec.standby_functions.iter().any(|standby| standby == key);
    let availability = own.availability().or_else(|| class.availability());
    ValidFunction {
        key: key.to_owned(),
        name_key: name_key.map(str::to_owned),
        task: body.kind.unwrap_or_default() == FunctionType::Task,
        image: image.to_owned(),
        port: body.port.unwrap_or(DEFAULT_PORT),
        min_scale: provision.min_scale,
        max_scale: provision.max_scale,
        requests: provision.requests.unwrap_or_default(),
        limits: provision.limits.unwrap_or_default(),
        env,
        env_from: provision.env_from,
        pull_policy: provision.image_pull_policy,
        pull_secrets: provision.image_pull_secrets,
        service_account: provision.service_account,
        mounts: provision.volume_mounts,
        command: provision.command,
        args: provision.args,
        security: provision.security,
        health,
        timeout_ms: config.timeout_ms,
        throughput: own.min_throughput_rps.or(class.min_throughput_rps),
        latency: own.max_latency_ms.or(class.max_latency_ms),
        hard_latency: tighter(own_limits.hard_latency_ms, class_limits.hard_latency_ms),
        max_concurrency: tighter(own_limits.max_concurrency, class_limits.max_concurrency),
        access: widest.unwrap_or(default_access),
        required_instances: availability.filter(|_| !standby).map(floor),
        standby,
        odgm: body.odgm.clone().unwrap_or_default(),
    }
}

/// A constraint of the class applies to each function; the function's own may be tighter.
fn tighter(own: Option<i32>, class: Option<i32>) -> Option<i32> {
    match (own, class) {
        (Some(own), Some(class)) => Some(own.min(class)),
        (own, class) => own.or(class),
    }
}

fn environment(
    violations: &mut Violations,
    field: &str,
    provision: &Provision,
    config: &FunctionConfig,
) -> Vec<EnvVar> {
    let mut env = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, variable) in provision.env.iter().enumerate() {
        let place = format!("{field}.provision.env[{at}].name");
        check_variable(violations, &place, &variable.name);
        if !seen.insert(variable.name.clone()) {
            violations.add(place, format!("{:?} is given twice", variable.name));
        }
        let sources =
            [variable.value.is_some(), variable.secret.is_some(), variable.config_map.is_some()];
        if sources.into_iter().filter(|&given| given).count() > 1 {
            violations.add(
                format!("{field}.provision.env[{at}]"),
                "at most one of value, secret and config_map may be set",
            );
        }
        env.push(variable.clone());
    }
    for (name, value) in &config.env {
        check_variable(violations, &format!("{field}.config.env"), name);
        if seen.insert(name.clone()) {
            env.push(EnvVar {
                name: name.clone(),
                value: Some(value.clone()),
                ..EnvVar::default()
            });
        }
    }
    env
}

fn check_provision(violations: &mut Violations, field: &str, provision: &Provision) {
    violations.range(&format!("{field}.min_scale"), provision.min_scale, 0, MAX_SCALE);
    violations.range(&format!("{field}.max_scale"), provision.max_scale, 1, MAX_SCALE);
    if let (Some(min), Some(max)) = (provision.min_scale, provision.max_scale)
        && min > max
    {
        violations
            .add(format!("{field}.min_scale"), format!("{min} is larger than max_scale, {max}"));
    }
    check_resources(violations, field, provision.requests.as_ref(), provision.limits.as_ref());
    for (at, mount) in provision.volume_mounts.iter().enumerate() {
        let place = format!("{field}.volume_mounts[{at}]");
        if !mount.mount_path.starts_with('/') {
            violations.add(format!("{place}.mount_path"), "must begin with /");
        }
        let sources = [
            mount.secret.is_some(),
            mount.config_map.is_some(),
            mount.claim.is_some(),
            mount.empty_dir.is_some(),
        ];
        if sources.into_iter().filter(|&given| given).count() != 1 {
            violations.add(
                place.as_str(),
                "exactly one of secret, config_map, claim and empty_dir must be set",
            );
        }
        if let Some(size) = mount.empty_dir.as_ref().and_then(|folder| folder.size_limit.as_ref())
            && let Some(reason) = quantity::error(size)
        {
            violations.add(format!("{place}.empty_dir.size_limit"), reason);
        }
    }
    let paths = provision.volume_mounts.iter().map(|mount| &mount.mount_path);
    violations.duplicates(|at| format!("{field}.volume_mounts[{at}].mount_path"), paths);
    let secrets = provision.image_pull_secrets.iter();
    violations.duplicates(|at| format!("{field}.image_pull_secrets[{at}]"), secrets);
    for (at, source) in provision.env_from.iter().enumerate() {
        if source.secret.is_some() == source.config_map.is_some() {
            violations.add(
                format!("{field}.env_from[{at}]"),
                "exactly one of secret and config_map must be set",
            );
        }
    }
}

fn check_requirements(
    violations: &mut Violations,
    field: &str,
    requirements: Option<&Requirements>,
) {
    let Some(requirements) = requirements else { return };
    let throughput = requirements.min_throughput_rps;
    violations.range(&format!("{field}.min_throughput_rps"), throughput, 0, 1_000_000_000);
    violations.range(
        &format!("{field}.max_latency_ms"),
        requirements.max_latency_ms,
        1,
        86_400_000,
    );
    if let Some(availability) = requirements.availability
        && !(0.0..=1.0).contains(&availability)
    {
        let hint = format!(
            "{availability} isn't a fraction between 0 and 1; use availability_pct for percent"
        );
        violations.add(format!("{field}.availability"), hint);
    }
    if let Some(percent) = requirements.availability_pct
        && !(0.0..=100.0).contains(&percent)
    {
        violations
            .add(format!("{field}.availability_pct"), format!("{percent} isn't between 0 and 100"));
    }
    if requirements.availability.is_some() && requirements.availability_pct.is_some() {
        violations.add(format!("{field}.availability_pct"), "can't be combined with availability");
    }
}

fn check_constraints(violations: &mut Violations, field: &str, constraints: Option<&Constraints>) {
    let Some(constraints) = constraints else { return };
    violations.range(
        &format!("{field}.hard_latency_ms"),
        constraints.hard_latency_ms,
        1,
        86_400_000,
    );
    violations.range(&format!("{field}.max_concurrency"), constraints.max_concurrency, 1, 1000);
}
