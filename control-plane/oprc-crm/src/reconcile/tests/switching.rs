//! While the shape of a function changes, its reported address always serves.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{cases, cluster::Cluster, specs};
use crate::{
    crd::Phase,
    kinds::{DEPLOYMENT, KNATIVE_SERVICE, SERVICE},
};

const OLD: &str = "shop--alpha";
const NEW: &str = "shop--alpha-kn";

/// The object behind a URL.
fn host(url: &str) -> String {
    url.strip_prefix("http://").unwrap().split('.').next().unwrap().to_owned()
}

/// The object behind the first function's URL.
fn address(cluster: &Cluster) -> Option<String> {
    cluster.status().functions[0].url.as_deref().map(host)
}

fn is_there(cluster: &Cluster, kind: &crate::kinds::Kind, name: &str) -> bool {
    let child = cluster.child(&(kind.clone(), name.to_owned()));
    child.is_some_and(|child| !child.deleting)
}

/// Every URL in the status belongs to an existing object.
fn assert_addresses_exist(cluster: &Cluster) {
    if !cluster.has_status() {
        return;
    }
    for function in cluster.status().functions {
        let Some(url) = &function.url else { continue };
        let kind = match function.runs_as.as_deref() {
            Some("knative") => KNATIVE_SERVICE,
            Some("k8s_deployment") => SERVICE,
            other => panic!("{other:?} has no address, and yet {url}"),
        };
        assert!(is_there(cluster, &kind, &host(url)), "{url}: {:?}", cluster.names());
    }
}

#[test]
fn the_former_shape_serves_until_the_new_one_is_ready_and_known() {
    let mut cluster = Cluster::with(&specs::one("k8s_deployment"));
    assert_eq!(address(&cluster).as_deref(), Some(OLD));
    cluster.stopped.insert(KNATIVE_SERVICE);
    cluster.set_spec(&specs::one("knative"));
    for _ in 0..5 {
        cluster.reconcile();
        cluster.run_controllers();
        cluster.advance(Duration::from_secs(30));
    }
    assert_eq!(cluster.phase().0, Phase::Progressing);
    assert_eq!(address(&cluster).as_deref(), Some(OLD));
    assert_eq!(cluster.status().functions[0].runs_as.as_deref(), Some("k8s_deployment"));
    assert!(is_there(&cluster, &DEPLOYMENT, "shop--alpha"));

    cluster.stopped.clear();
    cluster.run_controllers();
    let decision = cluster.reconcile();
    assert_eq!(address(&cluster).as_deref(), Some(NEW));
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(10)));
    cluster.advance(Duration::from_secs(8));
    cluster.reconcile();
    assert!(is_there(&cluster, &DEPLOYMENT, "shop--alpha"), "clients may not know yet");

    cluster.advance(Duration::from_secs(1));
    cluster.reconcile();
    assert!(!is_there(&cluster, &DEPLOYMENT, "shop--alpha"));
    assert!(!is_there(&cluster, &SERVICE, "shop--alpha"));
    cluster.converge();
    assert_eq!(cluster.status().replaced, None);
    assert_eq!(cluster.names(), ["KnativeService shop--alpha-kn"]);
}

#[test]
fn a_class_sets_how_long_former_objects_drain() {
    let mut cluster = Cluster::with(&specs::one("k8s_deployment"));
    let mut spec = specs::one("knative");
    spec["rollout"] = json!({"drain_seconds": 0});
    cluster.set_spec(&spec);
    cluster.reconcile();
    cluster.run_controllers();
    cluster.reconcile();
    // Stored first, done in the next reconcile: the status write may fail.
    assert!(is_there(&cluster, &DEPLOYMENT, "shop--alpha"));
    cluster.reconcile();
    assert!(!is_there(&cluster, &DEPLOYMENT, "shop--alpha"));
}

/// One function after the other moves to Knative.
#[test]
fn another_change_does_not_shorten_draining() {
    let spec = |alpha: &Value, beta: &Value| {
        json!({"selected_template": "unified", "functions": [
            {"key": "alpha", "image": "img:1", "provision": alpha},
            {"key": "beta", "image": "img:1", "provision": beta},
        ]})
    };
    let (steady, bursty) = (json!({"min_scale": 1}), json!({"min_scale": 0, "max_scale": 8}));
    let mut cluster = Cluster::with(&spec(&steady, &steady));
    cluster.set_spec(&spec(&bursty, &steady));
    cluster.reconcile();
    cluster.run_controllers();
    cluster.reconcile();
    assert_eq!(address(&cluster).as_deref(), Some(NEW));

    cluster.stopped.insert(KNATIVE_SERVICE);
    cluster.set_spec(&spec(&bursty, &bursty));
    for _ in 0..5 {
        cluster.reconcile();
        cluster.run_controllers();
        cluster.advance(Duration::from_secs(10));
        assert_addresses_exist(&cluster);
        assert!(is_there(&cluster, &DEPLOYMENT, "shop--beta"));
    }

    cluster.stopped.clear();
    cluster.run_controllers();
    let decision = cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(10)), "it drains from here");
    assert!(is_there(&cluster, &DEPLOYMENT, "shop--beta"));
    cluster.converge();
    assert_eq!(cluster.names(), ["KnativeService shop--alpha-kn", "KnativeService shop--beta-kn"]);
}

/// A Job has no address: the former one is reported until the Job is complete.
#[test]
fn a_function_that_becomes_a_job_serves_until_the_job_is_complete() {
    let mut cluster = Cluster::with(&specs::one("k8s_deployment"));
    cluster.stopped.insert(crate::kinds::JOB);
    cluster.set_spec(&specs::one("job"));
    for _ in 0..5 {
        cluster.reconcile();
        cluster.run_controllers();
        cluster.advance(Duration::from_secs(30));
        assert_eq!(address(&cluster).as_deref(), Some(OLD));
        assert_addresses_exist(&cluster);
    }
    cluster.stopped.clear();
    cluster.run_controllers();
    cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(address(&cluster), None);
    assert_eq!(cluster.status().functions[0].runs_as.as_deref(), Some("job"));
    assert!(is_there(&cluster, &SERVICE, OLD), "clients may not know yet");
    cluster.converge();
    assert_eq!(cluster.names(), ["Job shop--alpha-g2"]);
}

#[test]
fn a_job_runs_once_for_each_generation() {
    let mut cluster = Cluster::with(&specs::one("job"));
    assert_eq!(cluster.names(), ["Job shop--alpha-g1"]);
    assert_eq!(cluster.status().functions[0].completed, Some(1));
    let mut spec = specs::one("job");
    spec["functions"][0]["image"] = json!("img:2");
    cluster.set_spec(&spec);
    cluster.converge();
    assert_eq!(cluster.names(), ["Job shop--alpha-g2"]);
    // Deleted by a user or by its time to live: it has completed.
    cluster.remove(&(crate::kinds::JOB, "shop--alpha-g2".to_owned()));
    cluster.converge();
    assert_eq!(cluster.names(), [""; 0]);
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn a_function_that_is_enabled_is_reported_with_its_shape() {
    let mut off = specs::one("k8s_deployment");
    off["disabled_functions"] = json!(["alpha"]);
    let mut cluster = Cluster::with(&off);
    assert_eq!(cluster.status().functions[0].reason.as_deref(), Some("Disabled"));
    cluster.set_spec(&specs::one("k8s_deployment"));
    cluster.reconcile();
    let function = cluster.status().functions[0].clone();
    assert_eq!((function.runs_as.as_deref(), function.url), (Some("k8s_deployment"), None));
    cluster.converge();
    assert_eq!(address(&cluster).as_deref(), Some(OLD));
}

fn templates() -> impl Strategy<Value = Vec<(Value, u64, bool)>> {
    let template = prop::sample::select(vec!["dev", "knative", "unified", "job", "full"]);
    let image = prop::sample::select(vec!["img:1", "img:2"]);
    let spec = (template, image).prop_map(|(template, image)| {
        let mut spec = specs::one(template);
        spec["functions"][0]["image"] = json!(image);
        spec["functions"][0]["provision"] = json!({"min_scale": 0, "max_scale": 8});
        spec
    });
    prop::collection::vec((spec, 0_u64..15, any::<bool>()), 1..12)
}

proptest! {
    #![proptest_config(cases(24))]

    /// Whenever the class changes, and whether controllers keep up or not.
    #[test]
    fn every_reported_address_belongs_to_an_object(steps in templates()) {
        let mut cluster = Cluster::new();
        for (spec, seconds, settle) in steps {
            cluster.set_spec(&spec);
            for _ in 0..3 {
                cluster.reconcile();
                assert_addresses_exist(&cluster);
                if settle {
                    cluster.run_controllers();
                }
                cluster.advance(Duration::from_secs(seconds));
            }
        }
        cluster.converge();
        assert_addresses_exist(&cluster);
    }
}
