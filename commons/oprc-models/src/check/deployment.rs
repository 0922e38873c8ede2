//! Deployments: by themselves, within a package, and against what a package has come to be.

use std::collections::{BTreeMap, BTreeSet};

use super::{DAY_MS, amount, length, many, name, object_name, provision, range, unique};
use crate::{
    fault::{Faults, Path},
    model::{Assignment, Events, Grid, Member, OClassDeployment, OPackage, Options, StateType},
    names::{Name, nearest, shown},
    resolve::{ResolvedClass, ResolvedPackage},
};

/// Everything that is wrong with what a deployment says, as far as it can be seen without its
/// package.
pub fn check_deployment(deployment: &OClassDeployment) -> Result<(), Faults> {
    let mut faults = Faults::default();
    let root = Path::default();
    alone(&mut faults, &root, deployment);
    if deployment.package.is_none() {
        faults.add(&root.field("package"), "is missing");
    }
    faults.or(())
}

/// The same for one that is published with its package.
pub(super) fn within(
    faults: &mut Faults,
    path: &Path,
    deployment: &OClassDeployment,
    package: &OPackage,
) {
    alone(faults, path, deployment);
    if deployment.package.as_ref().is_some_and(|of| *of != package.name) {
        let message = format!("a deployment within {} deploys that package", package.name);
        faults.add(&path.field("package"), message);
    }
    if let Some(range) = deployment.version.as_ref().filter(|it| !it.matches(&package.version)) {
        let message = format!("{range} doesn't include the package's own, {}", package.version);
        faults.add(&path.field("version"), message);
    }
    let known = || package.classes.iter().map(|class| class.key.as_str());
    for (place, class) in class_places(path, deployment) {
        match package.classes.iter().find(|it| it.key == class) {
            None => no_class(faults, &place, class, known()),
            Some(found) if found.disabled => {
                faults.add(&place, format!("the class {} is disabled", shown(class)));
            }
            Some(_) => {}
        }
    }
}

fn no_class<'a>(
    faults: &mut Faults,
    place: &Path,
    class: &str,
    known: impl Iterator<Item = &'a str>,
) {
    let message = format!("there is no class {} in the package", shown(class));
    match nearest(class, known) {
        Some(meant) => faults.hint(place, message, format!("did you mean {meant}?")),
        None => faults.add(place, message),
    }
}

fn class_places<'a>(
    path: &Path,
    deployment: &'a OClassDeployment,
) -> impl Iterator<Item = (Path, &'a str)> {
    let one = deployment.class.iter().map({
        let path = path.field("class");
        move |class| (path.clone(), class.as_str())
    });
    let path = path.field("classes");
    let many = deployment.classes.iter().enumerate();
    one.chain(many.map(move |(at, class)| (path.index(at), class.as_str())))
}

fn alone(faults: &mut Faults, path: &Path, deployment: &OClassDeployment) {
    name(faults, &path.field("key"), Name::Deployment, &deployment.key);
    if let Some(package) = &deployment.package {
        name(faults, &path.field("package"), Name::Package, package);
    }
    if deployment.classes().next().is_none() {
        faults.add(&path.field("classes"), "say which classes, by class or classes");
    }
    let classes = path.field("classes");
    many(faults, &classes, &deployment.classes, 256);
    let mut seen = BTreeSet::new();
    for (place, class) in class_places(path, deployment) {
        name(faults, &place, Name::Word, class);
        if !seen.insert(class) {
            faults.add(&place, format!("{} is given twice", shown(class)));
        }
    }
    for (field, kind, names) in [
        ("targetEnvs", Name::Environment, &deployment.target_envs),
        ("targetClusters", Name::Cluster, &deployment.target_clusters),
    ] {
        let path = path.field(field);
        many(faults, &path, names, 256);
        unique(faults, &path, "", names.iter().map(String::as_str));
        for (at, text) in names.iter().enumerate() {
            name(faults, &path.index(at), kind, text);
        }
    }
    if let Some(namespace) = &deployment.namespace {
        name(faults, &path.field("namespace"), Name::Environment, namespace);
    }
    range(faults, &path.field("partitionCount"), deployment.partition_count, 1, 4096);
    range(faults, &path.field("replicaCount"), deployment.replica_count, 1, 99);
    members(faults, &path.field("members"), deployment);
    assignments(faults, &path.field("assignments"), deployment, &deployment.assignments);
    if let Some(template) = &deployment.template {
        length(faults, &path.field("template"), template, 63);
    }
    if let Some(enforcement) = &deployment.enforcement {
        let path = path.field("enforcement").field("dimensions");
        unique(faults, &path, "", enforcement.dimensions.iter().map(|it| it.as_str()));
    }
    if let Some(it) = &deployment.options {
        options(faults, &path.field("options"), it);
    }
    if let Some(it) = &deployment.odgm {
        grid(faults, &path.field("odgm"), it, deployment);
    }
}

fn members(faults: &mut Faults, path: &Path, deployment: &OClassDeployment) {
    let members = &deployment.members;
    many(faults, path, members, 256);
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (at, member) in members.iter().enumerate() {
        let path = path.index(at);
        let Member { id, env, cluster, .. } = member;
        if *id < 0 {
            faults.add(&path.field("id"), format!("{id} is less than 0"));
        }
        if !ids.insert(id) {
            faults.add(&path.field("id"), format!("{id} is given twice"));
        }
        let environments = &deployment.target_envs;
        let place = path.field("env");
        match env {
            Some(env) => {
                name(faults, &place, Name::Environment, env);
                if !environments.is_empty() && !environments.contains(env) {
                    faults.add(&place, format!("{} isn't among targetEnvs", shown(env)));
                }
            }
            None if environments.len() > 1 => faults.add(&place, "say which of targetEnvs"),
            None => {}
        }
        let clusters = &deployment.target_clusters;
        if let Some(cluster) = cluster {
            let place = path.field("cluster");
            name(faults, &place, Name::Cluster, cluster);
            if !clusters.is_empty() && !clusters.contains(cluster) {
                faults.add(&place, format!("{} isn't among targetClusters", shown(cluster)));
            }
            // Units are named after environment and cluster: two would be one.
            if !places.insert((env, cluster)) {
                faults.add(&path, "another member has the same environment and cluster");
            }
        }
        range(faults, &path.field("maxShards"), member.max_shards, -1, 4096);
        let both = member.standby_fn.iter().position(|it| member.disabled_fn.contains(it));
        if let Some(at) = both {
            faults.add(&path.field("standbyFn").index(at), "is in disabledFn too");
        }
        for (field, keys) in
            [("disabledFn", &member.disabled_fn), ("standbyFn", &member.standby_fn)]
        {
            let path = path.field(field);
            many(faults, &path, keys, 64);
            unique(faults, &path, "", keys.iter().map(String::as_str));
        }
        if let Some(template) = &member.force_template {
            length(faults, &path.field("forceTemplate"), template, 63);
        }
    }
}

fn assignments(
    faults: &mut Faults,
    path: &Path,
    deployment: &OClassDeployment,
    all: &[Assignment],
) {
    many(faults, path, all, 4096);
    let members: BTreeMap<i32, &Member> = deployment.members.iter().map(|it| (it.id, it)).collect();
    let mut assigned = BTreeSet::new();
    let mut load: BTreeMap<i32, usize> = BTreeMap::new();
    for (at, assignment) in all.iter().enumerate() {
        let path = path.index(at);
        let owners = path.field("owners");
        let primary = assignment.primary.map(|id| (path.field("primary"), id));
        let named = assignment.owners.iter().enumerate().map(|(at, id)| (owners.index(at), *id));
        for (place, id) in primary.into_iter().chain(named) {
            if !members.contains_key(&id) {
                faults.add(&place, format!("there is no member {id}"));
            }
        }
        if assignment.owners.is_empty() {
            faults.add(&owners, "say which members have them");
        } else if let Some(primary) = assignment.primary
            && !assignment.owners.contains(&primary)
        {
            faults.add(&owners, format!("the primary, {primary}, isn't among them"));
        }
        let distinct: BTreeSet<_> = assignment.owners.iter().collect();
        if distinct.len() < assignment.owners.len() {
            faults.add(&owners, "the same member is given twice");
        }
        if let Some(copies) = deployment.replica_count
            && usize::try_from(copies).is_ok_and(|copies| distinct.len() > copies)
        {
            faults.add(&owners, format!("there are more than replicaCount, {copies}"));
        }
        let shards = path.field("shardIds");
        if assignment.shard_ids.is_empty() {
            faults.add(&shards, "say which shards");
        }
        for (at, shard) in assignment.shard_ids.iter().enumerate() {
            let most = deployment.partition_count.unwrap_or(4096);
            if !(0..most).contains(shard) {
                let message = format!("{shard} isn't between 0 and {}", most.saturating_sub(1));
                faults.hint(&shards.index(at), message, "there are partitionCount of them");
            }
            if !assigned.insert(shard) {
                faults.add(&shards.index(at), format!("{shard} is assigned twice"));
            }
        }
        for id in distinct {
            *load.entry(*id).or_default() += assignment.shard_ids.len();
        }
    }
    for (id, load) in load {
        let most = members.get(&id).and_then(|it| it.max_shards).filter(|most| *most >= 0);
        if let Some(most) = most.and_then(|most| usize::try_from(most).ok())
            && load > most
        {
            faults.add(path, format!("member {id} gets {load} shards, and has maxShards {most}"));
        }
    }
}

fn options(faults: &mut Faults, path: &Path, options: &Options) {
    let deadline = options.progress_deadline_seconds;
    range(faults, &path.field("progressDeadlineSeconds"), deadline, 1, 86_400);
    range(faults, &path.field("drainSeconds"), options.drain_seconds, 0, 3600);
    if let Some(at) = &options.metrics_path
        && (!at.starts_with('/') || at.len() > 256)
    {
        let message = format!("{} must begin with / and have 256 characters at most", shown(at));
        faults.add(&path.field("metricsPath"), message);
    }
    if let Some(to) = &options.otlp_endpoint {
        url(faults, &path.field("otlpEndpoint"), to, &["http://", "https://"], 1024);
    }
}

fn url(faults: &mut Faults, path: &Path, text: &str, schemes: &[&str], most: usize) {
    let spaced = text.chars().any(|it| it.is_whitespace() || it.is_control());
    if text.len() > most || spaced || !schemes.iter().any(|scheme| text.starts_with(scheme)) {
        let schemes = schemes.join(", ");
        faults.add(path, format!("{} is no address that begins with {schemes}", shown(text)));
    }
}

pub(super) fn collection_name(faults: &mut Faults, path: &Path, name: &str) {
    // Names travel in a list with commas between.
    let bad = |it: char| matches!(it, ',' | '"' | '\\') || it.is_whitespace() || it.is_control();
    if name.is_empty() || name.len() > 253 || name.contains(bad) {
        let allowed = "1 to 253 characters without commas, quotes and white space";
        faults.add(path, format!("{} is no name: {allowed}", shown(name)));
    }
}

fn grid(faults: &mut Faults, path: &Path, grid: &Grid, deployment: &OClassDeployment) {
    let collections = path.field("collections");
    many(faults, &collections, &grid.collections, 64);
    unique(faults, &collections, "name", grid.collections.iter().map(|it| it.0.name.as_str()));
    for (at, collection) in grid.collections.iter().enumerate() {
        let path = collections.index(at);
        let spec = &collection.0;
        collection_name(faults, &path.field("name"), &spec.name);
        range(faults, &path.field("partitionCount"), spec.partition_count, 1, 4096);
        range(faults, &path.field("replicaCount"), spec.replica_count, 1, 99);
        let patterns = path.field("accessPatterns");
        many(faults, &patterns, &spec.access_patterns, 8);
        unique(faults, &patterns, "", spec.access_patterns.iter().map(|it| it.as_str()));
        let own = OClassDeployment {
            members: deployment.members.clone(),
            partition_count: spec.partition_count.or(deployment.partition_count),
            replica_count: spec.replica_count.or(deployment.replica_count),
            ..OClassDeployment::default()
        };
        assignments(faults, &path.field("assignments"), &own, &spec.assignments);
    }
    if let Some(image) = &grid.image {
        provision::image(faults, &path.field("image"), image);
    }
    range(faults, &path.field("replicas"), grid.replicas, 1, 99);
    for (field, text, most) in
        [("clusterId", &grid.cluster_id, 253), ("nodeIdPrefix", &grid.node_id_prefix, 200)]
    {
        if let Some(text) = text {
            length(faults, &path.field(field), text, most);
        }
    }
    if let Some(it) = &grid.events {
        events(faults, &path.field("events"), it);
    }
    let routes = path.field("routes");
    if grid.routes.len() > 256 {
        faults.add(&routes, format!("there are {}, and 256 are allowed", grid.routes.len()));
    }
    for (key, route) in &grid.routes {
        let path = routes.key(key);
        length(faults, &path, key, 253);
        let schemes = ["http://", "https://", "grpc://"];
        url(faults, &path.field("url"), &route.url, &schemes, 2048);
    }
    if let Some(storage) = &grid.storage {
        let path = path.field("storage");
        if let Some(class) = &storage.class {
            object_name(faults, &path.field("class"), class);
        }
        amount(faults, &path.field("size"), storage.size.as_ref());
    }
    for (limit_field, limit, request_field, request) in [
        ("cpu", &grid.cpu, "requestsCpu", &grid.requests_cpu),
        ("memory", &grid.memory, "requestsMemory", &grid.requests_memory),
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
    let env = path.field("env");
    provision::environment(faults, &env, &grid.env);
    for name in grid.env.keys().filter(|it| it.starts_with("ODGM_") || *it == "OPRC_ZENOH_PORT") {
        faults.add(&env.key(name), "is set by the platform");
    }
}

fn events(faults: &mut Faults, path: &Path, events: &Events) {
    range(faults, &path.field("maxTriggerDepth"), events.max_trigger_depth, 1, 100);
    range(faults, &path.field("triggerTimeout"), events.trigger_timeout, 1, DAY_MS);
    let triggers = path.field("triggers");
    many(faults, &triggers, &events.triggers, 256);
    for (at, trigger) in events.triggers.iter().enumerate() {
        let path = triggers.index(at);
        length(faults, &path.field("function"), &trigger.function, 253);
        let filters = path.field("collections");
        many(faults, &filters, &trigger.collections, 64);
        for (at, filter) in trigger.collections.iter().enumerate() {
            collection_name(faults, &filters.index(at), filter);
        }
    }
    let off = Events { enabled: Some(false), ..Events::default() };
    if events.enabled == off.enabled && *events != off {
        faults.hint(path, "nothing would heed it", "leave out enabled: false");
    }
    if let Some(batch) = &events.batch {
        let path = path.field("batch");
        range(faults, &path.field("size"), batch.size, 1, 100_000);
        range(faults, &path.field("timeout"), batch.timeout, 1, 600_000);
        if batch.enabled == Some(false) && (batch.size.is_some() || batch.timeout.is_some()) {
            faults.hint(&path, "nothing would heed it", "leave out enabled: false");
        }
    }
}

/// Whether a deployment fits what its package has come to be: its classes are there and may be
/// deployed, functions that it names are theirs, and what it says of state has state to be about.
pub fn check_against(
    deployment: &OClassDeployment,
    package: &ResolvedPackage,
) -> Result<(), Faults> {
    let mut faults = Faults::default();
    inline(&mut faults, &Path::default(), deployment, package);
    faults.or(())
}

/// The same for a deployment at some place within its package.
pub(crate) fn inline(
    faults: &mut Faults,
    path: &Path,
    deployment: &OClassDeployment,
    package: &ResolvedPackage,
) {
    let mut classes: Vec<&ResolvedClass> = Vec::new();
    for (place, key) in class_places(path, deployment) {
        match package.class(key) {
            None => no_class(faults, &place, key, package.classes.iter().map(|it| it.key.as_str())),
            Some(class) if class.disabled => {
                faults.add(&place, format!("the class {} is disabled", shown(key)));
            }
            Some(class) => classes.push(class),
        }
    }
    if classes.is_empty() {
        return;
    }
    let functions: BTreeSet<&str> =
        classes.iter().flat_map(|it| &it.functions).map(|it| it.key.as_str()).collect();
    let known = |faults: &mut Faults, place: &Path, key: &str| {
        if !functions.contains(key) {
            let message = format!("{} is no function of the classes", shown(key));
            match nearest(key, functions.iter().copied()) {
                Some(meant) => faults.hint(place, message, format!("did you mean {meant}?")),
                None => faults.add(place, message),
            }
        }
    };
    for (at, member) in deployment.members.iter().enumerate() {
        let path = path.field("members").index(at);
        for (field, keys) in
            [("disabledFn", &member.disabled_fn), ("standbyFn", &member.standby_fn)]
        {
            for (at, key) in keys.iter().enumerate() {
                known(faults, &path.field(field).index(at), key);
            }
        }
    }
    let events = deployment.odgm.as_ref().and_then(|grid| grid.events.as_ref());
    for (at, trigger) in events.iter().flat_map(|events| &events.triggers).enumerate() {
        let place = path.field("odgm").field("events").field("triggers").index(at);
        let place = place.field("function");
        known(faults, &place, &trigger.function);
        let found: Vec<_> = classes
            .iter()
            .filter_map(|class| Some((class.has_grid(), class.function(&trigger.function)?)))
            .collect();
        if found.iter().any(|(_, it)| !it.function.runs()) {
            faults.add(&place, "changes of state can only call what runs in a container");
        } else if !found.is_empty() && found.iter().all(|(stateful, _)| !stateful) {
            faults.add(&place, "nothing would heed it: no class that has state has the function");
        }
    }
    state(faults, path, deployment, &classes);
}

/// What a deployment says of state must have state to be about.
fn state(
    faults: &mut Faults,
    path: &Path,
    deployment: &OClassDeployment,
    classes: &[&ResolvedClass],
) {
    if classes.iter().all(|class| !class.has_grid()) {
        let mut unheeded = |place: &Path| {
            faults.hint(
                place,
                "nothing would heed it: no class of the deployment has state",
                "give the class a stateSpec",
            );
        };
        for (field, given) in [
            ("odgm", deployment.odgm.is_some()),
            ("partitionCount", deployment.partition_count.is_some()),
            ("shardType", deployment.shard_type.is_some()),
            ("assignments", !deployment.assignments.is_empty()),
        ] {
            if given {
                unheeded(&path.field(field));
            }
        }
        for (at, member) in deployment.members.iter().enumerate() {
            let path = path.field("members").index(at);
            if member.max_shards.is_some() {
                unheeded(&path.field("maxShards"));
            }
            if member.all_partitions {
                unheeded(&path.field("allPartitions"));
            }
        }
    }
    let singleton = classes.iter().find(|class| class.state_type == StateType::Singleton);
    if let Some(class) = singleton
        && deployment.partition_count.is_some_and(|count| count > 1)
    {
        let message = format!("the class {} has one object, and so one part", shown(&class.key));
        faults.add(&path.field("partitionCount"), message);
    }
}
