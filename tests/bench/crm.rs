//! A thousand classes on simulated nodes: the time until they are accepted and Available, compared
//! with a plain client that does the same work on the same cluster, and the resources that CRM uses.

#![allow(
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::{Lease, LeaseSpec},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use oprc_crm::{
    crd::{ClassRuntime, Phase},
    kinds::BUILT_IN,
};
use oprc_sandbox::within;
use oprc_tests::{
    TestNamespace,
    class::{classes, deploy, hello, objects, spec_of},
    crm::{CrmProcess, Options, install},
    http::get_ok,
    in_namespace_of, peak_memory, with_simulated,
};
use serde::Serialize;
use serde_json::{Value, json};

const CLASSES: usize = 1000;
const AT_ONCE: usize = 16;
/// Bound on CRM's memory in megabytes.
const MEMORY: f64 = 80.0;
const AVAILABLE_TIMEOUT: Duration = Duration::from_mins(10);

/// CPU time of a process in seconds.
fn processor(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat"))).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

async fn requests(url: &str) -> u64 {
    let text = get_ok(&format!("{url}/metrics")).await.unwrap();
    let lines = text.lines().filter(|line| line.starts_with("crm_api_requests_total"));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Waits until `count` classes are Available.
async fn all_available(ns: &TestNamespace, count: usize) {
    let api: Api<ClassRuntime> = Api::namespaced(ns.client.clone(), &ns.name);
    let mut ready = HashSet::new();
    let waiting = async {
        let mut events =
            watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
        while let Some(event) = events.next().await {
            let Ok(class) = event else { continue };
            if class.status.as_ref().is_some_and(|status| status.phase == Phase::Available) {
                ready.insert(class.metadata.name.unwrap());
            }
            if ready.len() == count {
                return Ok(());
            }
        }
        Err("the watch has ended")
    };
    let waited = within("all classes to be Available", AVAILABLE_TIMEOUT, waiting).await;
    waited.unwrap_or_else(|error| panic!("{error}: {} of {count} are", ready.len()));
}

/// Deploys classes concurrently, and returns the time until all were accepted.
async fn deploys(crm: &CrmProcess, prefix: &str) -> Duration {
    let started = Instant::now();
    stream::iter(0..CLASSES)
        .for_each_concurrent(AT_ONCE, |number| {
            let client = crm.client.clone();
            async move {
                let spec = spec_of(&[hello("greet")]);
                deploy(&client, &format!("{prefix}-{number}"), &spec).await.unwrap();
            }
        })
        .await;
    started.elapsed()
}

/// Deploys to a CRM that isn't the leader: it accepts calls and doesn't reconcile.
async fn deploys_only(ns: &TestNamespace) -> Duration {
    let leases: Api<Lease> = Api::namespaced(ns.client.clone(), &ns.name);
    let held = Lease {
        metadata: ObjectMeta { name: Some("oprc-crm".to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some("nobody".to_owned()),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &held).await.unwrap();
    let crm = CrmProcess::start(ns, &Options::default()).await;
    // It would acquire a lease that isn't renewed.
    let renewing = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let renewed = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
            let params = PatchParams::default();
            leases.patch("oprc-crm", &params, &Patch::Merge(&renewed)).await.unwrap();
        }
    };
    tokio::select! {
        took = deploys(&crm, "waiting") => took,
        () = renewing => unreachable!("it never ends"),
    }
}

/// Creates the same ClassRuntimes with a plain client under other names.
async fn plain_creates(ns: &TestNamespace) -> Duration {
    let api: Api<ClassRuntime> = Api::namespaced(ns.client.clone(), &ns.name);
    let deployed = api.get("class-0").await.unwrap();
    let sample = ClassRuntime {
        metadata: ObjectMeta {
            labels: deployed.metadata.labels,
            annotations: deployed.metadata.annotations,
            finalizers: deployed.metadata.finalizers,
            ..ObjectMeta::default()
        },
        spec: deployed.spec,
        status: None,
    };
    let started = Instant::now();
    stream::iter(0..CLASSES)
        .for_each_concurrent(AT_ONCE, |number| {
            let (api, mut class) = (&api, sample.clone());
            async move {
                let name = format!("created-{number}");
                if let Some(unit) = &mut class.spec.0.deployment_unit {
                    unit.id.clone_from(&name);
                }
                class.metadata.name = Some(name);
                api.create(&PostParams::default(), &class).await.unwrap();
            }
        })
        .await;
    started.elapsed()
}

/// An object of the class `class-0` as text, from which copies for other classes are made.
fn template(object: &impl Serialize) -> String {
    let mut object = serde_json::to_value(object).unwrap();
    for (part, fields) in [
        ("", &["status"] as &[&str]),
        (
            "/metadata",
            &["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"],
        ),
        ("/spec", &["clusterIP", "clusterIPs"]),
    ] {
        let part = object.pointer_mut(part).and_then(Value::as_object_mut).unwrap();
        part.retain(|field, _| !fields.contains(&field.as_str()));
    }
    object.to_string()
}

/// What CRM wrote for one class.
struct Sample {
    class: String,
    uid: String,
    status: Value,
    children: Vec<(Api<DynamicObject>, String)>,
}

impl Sample {
    async fn read(ns: &TestNamespace) -> Self {
        let class = classes(ns).get("class-0").await.unwrap();
        let mut children = Vec::new();
        for it in &class.status.as_ref().unwrap().resource_refs {
            let kind = BUILT_IN.into_iter().find(|kind| kind.kind == it.kind).unwrap();
            let api = objects(ns, &kind);
            let text = template(&api.get(&it.name).await.unwrap());
            children.push((api, text));
        }
        let status = serde_json::to_value(class.status.as_ref()).unwrap();
        Self { uid: class.metadata.uid.clone().unwrap(), class: template(&class), status, children }
    }

    /// Writes the class, its children and the status of its rollout.
    async fn write(&self, ns: &TestNamespace, name: &str) {
        let copy = |text: &str| -> DynamicObject {
            serde_json::from_str(&text.replace("class-0", name)).unwrap()
        };
        let (api, apply) = (raw_classes(ns), PatchParams::apply("plain").force());
        let class = api.patch(name, &apply, &Patch::Apply(&copy(&self.class))).await.unwrap();
        let uid = class.metadata.uid.unwrap();
        for (api, text) in &self.children {
            let child = copy(&text.replace(&self.uid, &uid));
            let own = child.metadata.name.clone().unwrap();
            api.patch(&own, &apply, &Patch::Apply(&child)).await.unwrap();
        }
        self.write_status(ns, name, "Progressing").await;
    }

    async fn write_status(&self, ns: &TestNamespace, name: &str, phase: &str) {
        let mut status = self.status.clone();
        status["phase"] = phase.into();
        let object = json!({
            "apiVersion": "oaas.io/v1alpha1", "kind": "ClassRuntime",
            "metadata": {"name": name}, "status": status,
        });
        let apply = PatchParams::apply("plain").force();
        raw_classes(ns).patch_status(name, &apply, &Patch::Apply(&object)).await.unwrap();
    }
}

fn raw_classes(ns: &TestNamespace) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<ClassRuntime>(&());
    Api::namespaced_with(ns.client.clone(), &ns.name, &kind)
}

fn is_available(deployment: &Deployment) -> bool {
    let replicas = deployment.spec.as_ref().and_then(|it| it.replicas);
    deployment.status.as_ref().is_some_and(|it| it.available_replicas == replicas)
}

/// A client that does CRM's work without its logic: it writes the same classes, children and
/// statuses under other names, and waits until all Deployments are available.
async fn plain_client(ns: &TestNamespace) -> Duration {
    let sample = &Sample::read(ns).await;
    let deployments: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
    let started = Instant::now();
    let write = stream::iter(0..CLASSES).for_each_concurrent(AT_ONCE, |number| async move {
        sample.write(ns, &format!("plain-{number}")).await;
    });
    let mut seen = HashSet::new();
    let available = watcher(deployments, watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .filter_map(|event| {
            let deployment = event.ok().filter(is_available);
            let name = deployment.and_then(|it| it.metadata.name);
            let class = name.and_then(|it| Some(it.split_once("--")?.0.to_owned()));
            let new = class.filter(|it| it.starts_with("plain-") && seen.insert(it.clone()));
            std::future::ready(new)
        });
    let finish = available.take(CLASSES).for_each_concurrent(AT_ONCE, |name| async move {
        sample.write_status(ns, &name, "Available").await;
    });
    let work = async {
        futures::join!(write, finish);
        Ok::<_, String>(())
    };
    within("all plain Deployments to be available", AVAILABLE_TIMEOUT, work).await.unwrap();
    started.elapsed()
}

#[tokio::main]
async fn main() {
    with_simulated("bench-crm", 10, async |cluster| {
        install(&cluster);
        in_namespace_of(cluster.clone(), async |ns: &TestNamespace| {
            let options = Options::default().with("OPRC_CRM_FEATURES_LEADER_ELECTION", "false");
            let crm = CrmProcess::start(ns, &options).await;
            let pid = crm.child.id();
            let started = Instant::now();
            let accepted = deploys(&crm, "class").await;
            all_available(ns, CLASSES).await;
            let available = started.elapsed();
            let (memory, cpu, request_total) = (peak_memory(pid), processor(pid), requests(&crm.url).await);
            drop(crm);
            let plain = plain_client(ns).await;
            let only = deploys_only(ns).await;
            let created = plain_creates(ns).await;
            let each = CLASSES as f64;
            let (accepted, available) = (accepted.as_secs_f64(), available.as_secs_f64());
            let (created, plain, only) =
                (created.as_secs_f64(), plain.as_secs_f64(), only.as_secs_f64());
            println!("{CLASSES} classes of one function on 10 simulated nodes, {AT_ONCE} calls at once:");
            println!(
                "  accepted    {accepted:.1} s, {:.0} per second by the leader; {only:.1} s, {:.0} per second by a replica that isn't",
                each / accepted,
                each / only
            );
            println!(
                "  the same ClassRuntimes created by a plain client: {created:.1} s, {:.0} per second; ratio to Deploy calls {:.2}",
                each / created,
                created / only
            );
            println!("  Available   {available:.1} s");
            println!(
                "  a plain client, with the same children, replicas and statuses and without Events: {plain:.1} s; ratio {:.2}",
                available / plain
            );
            println!("  requests    {request_total}, {:.2} per class", request_total as f64 / each);
            println!(
                "  CRM used    {cpu:.1} s of CPU time and at most {memory:.0} MB of memory (limit {MEMORY:.0} MB: ratio {:.2})",
                memory / MEMORY
            );
            assert!(memory <= MEMORY, "{memory} MB");
        })
        .await;
    })
    .await;
}
