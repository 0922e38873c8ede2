//! Parses a specification into a class that can be rendered, or reports all violations.

use std::collections::{BTreeMap, BTreeSet};

use oprc_condition::check_condition;
use oprc_models::{
    FieldPath, parse_quantity,
    rules::{has_white_space, is_availability, is_mount_path, is_reserved_env},
};

use super::{
    ADDONS, Addon, FunctionRequirements, Identity, Passive, PassiveReason, Rejection, ValidClass,
    ValidFunction, grid, schema_limits,
    violations::{Violations, count},
};
use crate::{
    availability::floor,
    names,
    platform::{Platform, Profile},
    replication,
    spec::{
        Access, EnvVar, FunctionConfig, FunctionType, Provision, ProxyMode, Requirements,
        SingleFunction, UnitSpec, VolumeMount,
    },
};

const DEFAULT_PORT: i32 = 8080;
/// The port on which the proxy accepts calls.
pub const PROXY_PORT: i32 = 18080;
/// The port of the proxy's metrics, health check and drain hook.
pub const PROXY_ADMIN_PORT: i32 = 18081;

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
    violations.check_schema(&schema_limits::UNIT, &FieldPath::default(), spec);
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
                if has_white_space(image) {
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
    let provision = body.provision.clone().unwrap_or_default();
    check_provision(violations, &format!("{field}.provision"), &provision);
    check_requirements(violations, &format!("{field}.requirements"), body.requirements.as_ref());
    let config = body.config.clone().unwrap_or_default();
    for (at, binding) in body.bindings.iter().enumerate() {
        if let Some(condition) = &binding.condition {
            let at = format!("{field}.bindings[{at}].condition");
            violations.add_error(&at, check_condition(condition).map_err(|it| it.to_string()));
        }
    }
    let env = environment(violations, field, &provision, &config);
    let health = body.health_check.clone().unwrap_or_default();
    if health.grpc && health.path.is_some() {
        violations.add(format!("{field}.health_check.path"), "can't be combined with grpc");
    }
    let requirements = FunctionRequirements::of(spec, body);
    let FunctionRequirements { throughput, latency, availability, hard_latency, max_concurrency } =
        requirements;
    let default_access = body.access.unwrap_or(Access::Internal);
    let widest = body.bindings.iter().map(|it| it.access.unwrap_or(default_access)).max();
    let standby = spec.standby_functions.iter().any(|standby| standby == key);
    let port = body.port.unwrap_or(DEFAULT_PORT);
    let proxy = match spec.proxy.unwrap_or_default() {
        ProxyMode::Auto => !requirements.is_empty(),
        ProxyMode::Always => true,
        ProxyMode::Never => false,
    };
    if !proxy && max_concurrency.is_some() {
        let message = format!(
            "never can't be combined with max_concurrency of {key:?}, which the proxy enforces; use auto or always"
        );
        violations.add("proxy", message);
    }
    for (name, port) in [("port", Some(port)), ("health_check.port", health.port)] {
        let of_proxy = port.filter(|it| [PROXY_PORT, PROXY_ADMIN_PORT].contains(it));
        if let Some(port) = of_proxy.filter(|_| proxy) {
            let message =
                format!("{port} is a port of the proxy in front of the function; use another one");
            violations.add(format!("{field}.{name}"), message);
        }
    }
    let mut limits = body.constraints.iter().chain(&spec.constraints);
    let circuit_breaker = limits.find_map(|it| it.circuit_breaker).unwrap_or_default();
    if circuit_breaker && hard_latency.is_none() {
        violations.add(format!("{field}.constraints.circuit_breaker"), "requires hard_latency_ms");
    }
    ValidFunction {
        key: key.to_owned(),
        name_key: name_key.map(str::to_owned),
        task: body.kind.unwrap_or_default() == FunctionType::Task,
        image: image.to_owned(),
        port,
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
        retries: config.retries,
        throughput,
        latency,
        hard_latency,
        max_concurrency,
        circuit_breaker,
        proxy,
        access: widest.unwrap_or(default_access),
        required_instances: availability.filter(|_| !standby).map(floor),
        standby,
        odgm: body.odgm.clone().unwrap_or_default(),
    }
}

/// The variables of `provision`, and those of `config` that it doesn't set.
fn environment(
    violations: &mut Violations,
    field: &str,
    provision: &Provision,
    config: &FunctionConfig,
) -> Vec<EnvVar> {
    let mut env = provision.env.clone();
    violations.check_env(&format!("{field}.provision.env"), &env, is_reserved_env);
    let set: BTreeSet<&String> = provision.env.iter().map(|it| &it.name).collect();
    for (name, value) in &config.env {
        violations.check_env_name(&format!("{field}.config.env"), name, is_reserved_env);
        if !set.contains(name) {
            let (name, value) = (name.clone(), Some(value.clone()));
            env.push(EnvVar { name, value, ..EnvVar::default() });
        }
    }
    env
}

fn check_provision(violations: &mut Violations, field: &str, provision: &Provision) {
    if let (Some(min), Some(max)) = (provision.min_scale, provision.max_scale)
        && min > max
    {
        violations
            .add(format!("{field}.min_scale"), format!("{min} is larger than max_scale, {max}"));
    }
    violations.check_resources(field, provision.requests.as_ref(), provision.limits.as_ref());
    let mounts = &provision.volume_mounts;
    for (at, mount) in mounts.iter().enumerate() {
        check_mount(violations, &format!("{field}.volume_mounts[{at}]"), mount);
    }
    let paths = mounts.iter().map(|mount| &mount.mount_path);
    violations.duplicates(|at| format!("{field}.volume_mounts[{at}].mount_path"), paths);
    let secrets = provision.image_pull_secrets.iter();
    violations.duplicates(|at| format!("{field}.image_pull_secrets[{at}]"), secrets);
    for (at, source) in provision.env_from.iter().enumerate() {
        if source.secret.is_some() == source.config_map.is_some() {
            let message = "exactly one of secret and config_map must be set";
            violations.add(format!("{field}.env_from[{at}]"), message);
        }
    }
}

fn check_mount(violations: &mut Violations, field: &str, mount: &VolumeMount) {
    let VolumeMount { mount_path, secret, config_map, claim, empty_dir, .. } = mount;
    if !is_mount_path(mount_path) {
        violations.add(format!("{field}.mount_path"), "must begin with / and contain no colon");
    }
    if count([secret.is_some(), config_map.is_some(), claim.is_some(), empty_dir.is_some()]) != 1 {
        let message = "exactly one of secret, config_map, claim and empty_dir must be set";
        violations.add(field, message);
    }
    if let Some(size) = empty_dir.as_ref().and_then(|folder| folder.size_limit.as_ref()) {
        violations.add_error(&format!("{field}.empty_dir.size_limit"), parse_quantity(size));
    }
}

fn check_requirements(
    violations: &mut Violations,
    field: &str,
    requirements: Option<&Requirements>,
) {
    let Some(Requirements { availability, availability_pct, .. }) = requirements else { return };
    if let Some(availability) = availability.filter(|it| !is_availability(*it)) {
        let hint = "use availability_pct for percent";
        let message = format!("{availability} isn't a fraction between 0 and 1; {hint}");
        violations.add(format!("{field}.availability"), message);
    }
    if availability.is_some() && availability_pct.is_some() {
        violations.add(format!("{field}.availability_pct"), "can't be combined with availability");
    }
}
