//! Available, Progressing and Degraded are separate facts.

use serde_json::json;

use super::{cluster::Cluster, specs};
use crate::{crd::Phase, kinds::DEPLOYMENT};

/// Makes the Deployment of `shop--alpha` have so many available pods, whatever their revision.
fn set_available(cluster: &mut Cluster, pods: i32) {
    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    let mut object = cluster.object(&key).unwrap().clone();
    object["status"]["availableReplicas"] = json!(pods);
    cluster.put(&key, object);
    cluster.reconcile();
}

fn conditions(cluster: &Cluster) -> [bool; 3] {
    ["Available", "Progressing", "Degraded"].map(|it| cluster.status().is_true(it))
}

#[test]
fn a_failing_update_stays_available_while_the_required_replicas_serve() {
    let spec = |image: &str| {
        let provision = json!({"min_scale": 2, "max_scale": 2});
        json!({"selected_template": "dev", "functions": [
            {"key": "alpha", "image": image, "provision": provision},
        ]})
    };
    let mut cluster = Cluster::with(&spec("img:1"));
    assert_eq!(conditions(&cluster), [true, false, false]);
    cluster.set_spec(&spec("broken"));
    cluster.reconcile();
    cluster.run_controllers();
    cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Progressing);
    assert_eq!(conditions(&cluster), [true, true, false]);
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(conditions(&cluster), [true, false, true]);

    cluster.stopped.insert(DEPLOYMENT);
    set_available(&mut cluster, 1);
    assert_eq!(conditions(&cluster), [false, false, true], "one of two isn't enough");
    set_available(&mut cluster, 2);
    assert_eq!(conditions(&cluster), [true, false, true]);
}

#[test]
fn a_write_that_fails_leaves_a_serving_class_available() {
    let mut cluster = Cluster::with(&specs::one("dev"));
    let mut spec = specs::one("dev");
    spec["functions"][0]["image"] = json!("img:2");
    cluster.rejected.insert("shop--alpha".to_owned());
    cluster.set_spec(&spec);
    cluster.reconcile();
    assert_eq!(cluster.phase(), (Phase::Degraded, "Rejected".to_owned()));
    assert_eq!(conditions(&cluster), [true, false, true]);
    cluster.rejected.clear();
    // Everything that exists is ready, but the update is not applied yet.
    cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Progressing);
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn a_failing_update_on_knative_or_to_it_stays_available() {
    for before in ["knative", "k8s_deployment"] {
        let mut cluster = Cluster::with(&specs::one(before));
        let mut spec = specs::one("knative");
        spec["functions"][0]["image"] = json!("broken");
        cluster.set_spec(&spec);
        cluster.converge();
        assert_eq!(cluster.phase().0, Phase::Degraded, "{before}");
        assert_eq!(conditions(&cluster), [true, false, true], "{before}");
    }
}

#[test]
fn a_class_that_never_served_is_not_available() {
    let mut spec = specs::one("dev");
    spec["functions"][0]["image"] = json!("broken");
    let mut cluster = Cluster::with(&spec);
    assert_eq!(conditions(&cluster), [false, false, true]);
    spec["selected_template"] = json!("nonsense");
    cluster.set_spec(&spec);
    cluster.converge();
    assert_eq!(conditions(&cluster), [false, false, true], "nor when it is rejected");
    let mut rejected = Cluster::new();
    rejected.set_spec(&spec);
    rejected.converge();
    assert_eq!(conditions(&rejected), [false, false, true]);
}
