//! A thousand classes on simulated nodes: how long until all are Available, beside the time that a
//! plain client needs for the same writes on the same cluster, and what CRM takes for it.

#![allow(
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use oprc_crm::{
    crd::{ClassRuntime, Phase},
    kinds::{DEPLOYMENT, Kind, SERVICE},
};
use oprc_tests::{
    Place,
    class::{deploy, hello, of},
    crm::{Options, Separate, install},
    http::get_ok,
    in_namespace_of, with_simulated,
};

const CLASSES: usize = 1000;
const AT_ONCE: usize = 16;

/// Resident memory of a process, in megabytes.
fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status"))).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

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
    let mut events =
        watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut ready = std::collections::HashSet::new();
    while let Some(event) = events.next().await {
        let Ok(class) = event else { continue };
        if class.status.as_ref().is_some_and(|status| status.phase == Phase::Available) {
            ready.insert(class.metadata.name.unwrap());
            if ready.len() == count {
                return;
            }
        }
    }
}

/// The same writes by a plain client: what CRM has written of one class, under other names.
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
    spec.metadata = kube::api::ObjectMeta::default();
    spec.spec.paused = true;
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
                if let Some(unit) = &mut spec.spec.deployment_unit {
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
            stream::iter(0..CLASSES)
                .for_each_concurrent(AT_ONCE, |number| {
                    let client = crm.client.clone();
                    async move {
                        let spec = of(&[hello("greet")]);
                        deploy(&client, &format!("class-{number}"), &spec).await.unwrap();
                    }
                })
                .await;
            let accepted = begun.elapsed();
            all_available(place, CLASSES).await;
            let available = begun.elapsed();
            let (memory, cpu, asked) = (resident(pid), processor(pid), requests(&crm.url).await);
            drop(crm);
            let plain = plain_writes(place).await;
            println!("{CLASSES} classes of one function on 10 simulated nodes:");
            println!("  accepted    {:.1} s, {:.0} a second", accepted.as_secs_f64(), CLASSES as f64 / accepted.as_secs_f64());
            println!("  Available   {:.1} s", available.as_secs_f64());
            println!(
                "  the same writes by a plain client: {:.1} s; ratio {:.2}",
                plain.as_secs_f64(),
                available.as_secs_f64() / plain.as_secs_f64()
            );
            println!("  requests    {asked}, {:.2} a class", asked as f64 / CLASSES as f64);
            println!("  CRM took    {cpu:.1} s of processor time and {memory:.0} MB of memory (limit 80 MB: ratio {:.2})", memory / 80.0);
            assert!(memory <= 80.0, "{memory} MB");
        })
        .await;
    })
    .await;
}
