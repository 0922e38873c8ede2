//! A thousand classes on simulated nodes: how soon they are accepted and Available, beside the time
//! that a plain client needs for the same writes on the same cluster, and what CRM takes for it.

#![allow(
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
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
    kinds::{DEPLOYMENT, Kind, SERVICE},
};
use oprc_sandbox::within;
use oprc_tests::{
    Place,
    class::{deploy, hello, of},
    crm::{Options, Separate, install},
    http::get_ok,
    in_namespace_of, most_resident, with_simulated,
};

const CLASSES: usize = 1000;
const AT_ONCE: usize = 16;
/// What CRM may take, in megabytes.
const MEMORY: f64 = 80.0;
/// How long all classes may take to be Available until it is given up.
const GIVEN_UP: Duration = Duration::from_mins(10);

/// Processor time of a process so far, in seconds.
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

/// Waits until so many classes are Available.
async fn all_available(place: &Place, count: usize) {
    let api: Api<ClassRuntime> = Api::namespaced(place.client.clone(), &place.namespace);
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
    let waited = within("all classes to be Available", GIVEN_UP, waiting).await;
    waited.unwrap_or_else(|error| panic!("{error}: {} of {count} are", ready.len()));
}

/// Deploys classes, so many at once, and gives how long it took until all were accepted.
async fn deploys(crm: &Separate, prefix: &str) -> Duration {
    let begun = Instant::now();
    stream::iter(0..CLASSES)
        .for_each_concurrent(AT_ONCE, |number| {
            let client = crm.client.clone();
            async move {
                let spec = of(&[hello("greet")]);
                deploy(&client, &format!("{prefix}-{number}"), &spec).await.unwrap();
            }
        })
        .await;
    begun.elapsed()
}

/// Deploys to a CRM that doesn't lead: it accepts, and nobody makes children meanwhile.
async fn deploys_only(place: &Place) -> Duration {
    let leases: Api<Lease> = Api::namespaced(place.client.clone(), &place.namespace);
    let held = Lease {
        metadata: ObjectMeta { name: Some("oprc-crm".to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some("nobody".to_owned()),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &held).await.unwrap();
    let crm = Separate::start(place, &Options::default()).await;
    // Who waits takes a lease that nobody renews in the end.
    let renewing = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let renewed = serde_json::json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
            let params = PatchParams::default();
            leases.patch("oprc-crm", &params, &Patch::Merge(&renewed)).await.unwrap();
        }
    };
    tokio::select! {
        took = deploys(&crm, "waiting") => took,
        () = renewing => unreachable!("it never ends"),
    }
}

/// The classes that were deployed, created by a plain client under other names.
async fn plain_creates(place: &Place) -> Duration {
    let api: Api<ClassRuntime> = Api::namespaced(place.client.clone(), &place.namespace);
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
    let begun = Instant::now();
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
    begun.elapsed()
}

/// The same writes by a plain client: what CRM has written of one class but its Events, under other
/// names.
async fn plain_writes(place: &Place) -> Duration {
    let api = |kind: &Kind| -> Api<DynamicObject> {
        let resource: ApiResource = kind.resource();
        Api::namespaced_with(place.client.clone(), &place.namespace, &resource)
    };
    let sample = |kind: Kind| {
        let from = api(&kind);
        async move {
            let mut object = from.get("class-0--greet").await.unwrap();
            object.metadata.owner_references = None;
            object.metadata.managed_fields = None;
            object.metadata.resource_version = None;
            object.metadata.uid = None;
            if let Some(spec) = object.data["spec"].as_object_mut() {
                spec.remove("clusterIP");
                spec.remove("clusterIPs");
                // Nothing is to run: only the writes are measured.
                if spec.contains_key("replicas") {
                    spec.insert("replicas".to_owned(), 0.into());
                }
            }
            object.data.as_object_mut().unwrap().remove("status");
            object
        }
    };
    let samples = [(DEPLOYMENT, sample(DEPLOYMENT).await), (SERVICE, sample(SERVICE).await)];
    let class: Api<ClassRuntime> = Api::namespaced(place.client.clone(), &place.namespace);
    let mut spec = class.get("class-0").await.unwrap();
    spec.metadata = ObjectMeta::default();
    spec.spec.0.paused = true;
    let status = spec.status.take();
    let begun = Instant::now();
    stream::iter(0..CLASSES)
        .for_each_concurrent(AT_ONCE, |number| {
            let (samples, class, mut spec, status) =
                (&samples, &class, spec.clone(), status.clone());
            let api = &api;
            async move {
                let apply = PatchParams::apply("plain").force();
                let name = format!("plain-{number}");
                spec.metadata.name = Some(name.clone());
                if let Some(unit) = &mut spec.spec.0.deployment_unit {
                    unit.id.clone_from(&name);
                }
                class.patch(&name, &apply, &Patch::Apply(&spec)).await.unwrap();
                for (kind, object) in samples {
                    let mut object = object.clone();
                    object.metadata.name = Some(name.clone());
                    api(kind).patch(&name, &apply, &Patch::Apply(&object)).await.unwrap();
                }
                let mut told = spec.clone();
                told.status = status;
                for phase in [Phase::Progressing, Phase::Available] {
                    told.status.as_mut().unwrap().phase = phase;
                    class.patch_status(&name, &apply, &Patch::Apply(&told)).await.unwrap();
                }
            }
        })
        .await;
    begun.elapsed()
}

#[tokio::main]
async fn main() {
    with_simulated("bench-crm", 10, async |cluster| {
        install(&cluster);
        in_namespace_of(cluster.clone(), async |place: &Place| {
            let options = Options::default().with("OPRC_CRM_FEATURES_LEADER_ELECTION", "false");
            let crm = Separate::start(place, &options).await;
            let pid = crm.child.id();
            let begun = Instant::now();
            let accepted = deploys(&crm, "class").await;
            all_available(place, CLASSES).await;
            let available = begun.elapsed();
            let (memory, cpu, asked) = (most_resident(pid), processor(pid), requests(&crm.url).await);
            drop(crm);
            let plain = plain_writes(place).await;
            let only = deploys_only(place).await;
            let created = plain_creates(place).await;
            let each = CLASSES as f64;
            let (accepted, available) = (accepted.as_secs_f64(), available.as_secs_f64());
            let (created, plain, only) =
                (created.as_secs_f64(), plain.as_secs_f64(), only.as_secs_f64());
            println!("{CLASSES} classes of one function on 10 simulated nodes, {AT_ONCE} calls at once:");
            println!(
                "  accepted    {accepted:.1} s, {:.0} a second, while their children are made; {only:.1} s, {:.0} a second, by one that doesn't lead",
                each / accepted,
                each / only
            );
            println!(
                "  the same objects created by a plain client: {created:.1} s, {:.0} a second; Deploy calls to one that doesn't lead: ratio {:.2}",
                each / created,
                created / only
            );
            println!("  Available   {available:.1} s");
            println!(
                "  the same writes by a plain client, which tells no Events and runs 0 replicas: {plain:.1} s; ratio {:.2}",
                available / plain
            );
            println!("  requests    {asked}, {:.2} a class", asked as f64 / each);
            println!(
                "  CRM took    {cpu:.1} s of processor time and at most {memory:.0} MB of memory (limit {MEMORY:.0} MB: ratio {:.2})",
                memory / MEMORY
            );
            assert!(memory <= MEMORY, "{memory} MB");
        })
        .await;
    })
    .await;
}
