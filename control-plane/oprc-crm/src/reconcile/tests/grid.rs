//! The data grid of a class, and functions that use it.

use serde_json::{Value, json};

use super::{
    super::{Action, observe::GridObservation},
    cluster::{Cluster, Key},
};
use crate::{
    crd::{DATA_GRID_STORAGE_PRESSURE, Phase},
    kinds::{CONFIG_MAP, DEPLOYMENT, SECRET, STATEFUL_SET},
    reason::Reason,
};

fn spec(replicas: i32) -> Value {
    json!({
        "functions": [{"key": "alpha", "image": "img:1", "provision": {"min_scale": 1}}],
        "addons": ["odgm"],
        "odgm_config": {"replicas": replicas, "collections": ["things"]},
        "data_retention": {"allow_data_loss": true},
    })
}

fn grid() -> Key {
    (STATEFUL_SET, "shop-odgm".to_owned())
}

fn function() -> Key {
    (DEPLOYMENT, "shop--alpha".to_owned())
}

/// Makes so many nodes available.
fn set_available(cluster: &mut Cluster, nodes: i32) {
    let mut object = cluster.object(&grid()).unwrap().clone();
    object["status"]["availableReplicas"] = json!(nodes);
    cluster.put(&grid(), object);
    cluster.reconcile();
}

/// The init containers of the function.
fn init_containers(cluster: &Cluster) -> Vec<Value> {
    let object = cluster.object(&function()).unwrap();
    let containers = &object["spec"]["template"]["spec"]["initContainers"];
    containers.as_array().cloned().unwrap_or_default()
}

#[test]
fn functions_wait_in_their_pods_until_a_node_is_available() {
    let mut seen = Vec::new();
    for replicas in [3, 5] {
        let mut cluster = Cluster::new();
        cluster.stopped.extend([STATEFUL_SET, DEPLOYMENT]);
        cluster.set_spec(&spec(replicas));
        cluster.reconcile();
        let containers = init_containers(&cluster);
        assert_eq!(containers[0]["args"], json!(["wait", "shop-odgm-svc:8081"]));
        seen.push(cluster.object(&function()).unwrap()["spec"]["template"].clone());
    }
    assert!(seen.iter().all(|it| *it == seen[0]), "the number of nodes doesn't replace pods");
}

#[test]
fn functions_on_knative_are_created_when_enough_nodes_are_available() {
    for (nodes, needed) in [(3, 2), (5, 3)] {
        let mut cluster = Cluster::new();
        cluster.stopped.insert(STATEFUL_SET);
        let mut spec = spec(nodes);
        spec["selected_template"] = json!("knative");
        cluster.set_spec(&spec);
        cluster.reconcile();
        let is_created = |cluster: &Cluster| {
            cluster.keys().iter().any(|(kind, _)| *kind == crate::kinds::KNATIVE_SERVICE)
        };
        for available in 0..=needed {
            assert!(!is_created(&cluster), "{nodes}: {available}");
            set_available(&mut cluster, available);
        }
        assert!(is_created(&cluster), "{nodes}");
    }
}

#[test]
fn existing_functions_are_updated_although_the_grid_is_not_ready() {
    let mut cluster = Cluster::with(&spec(3));
    cluster.stopped.insert(STATEFUL_SET);
    set_available(&mut cluster, 0);
    cluster.edit(&function(), "kubectl", |it| it["spec"]["replicas"] = json!(0));
    cluster.reconcile();
    assert_eq!(cluster.object(&function()).unwrap()["spec"]["replicas"], 1);

    let mut other = spec(3);
    other["functions"][0]["image"] = json!("img:2");
    cluster.set_spec(&other);
    cluster.reconcile();
    let object = cluster.object(&function()).unwrap();
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], "img:2");
}

/// A class gets a grid: new pods wait for it, and the old ones serve meanwhile.
#[test]
fn functions_that_start_to_use_a_grid_wait_for_it() {
    let mut alone = spec(3);
    alone["addons"] = json!([]);
    let mut cluster = Cluster::with(&alone);
    assert_eq!(init_containers(&cluster), Vec::<Value>::new());
    cluster.stopped.extend([STATEFUL_SET, DEPLOYMENT]);
    cluster.set_spec(&spec(3));
    cluster.reconcile();
    cluster.reconcile();
    assert_eq!(init_containers(&cluster).len(), 1);
    assert_eq!(cluster.phase(), (Phase::Progressing, "WaitingForDataGrid".to_owned()));
    cluster.stopped.clear();
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn a_removed_grid_outlasts_the_pods_that_use_it() {
    for image in ["img:1", "img:2"] {
        let mut cluster = Cluster::with(&spec(3));
        let mut alone = spec(3);
        alone["addons"] = json!([]);
        alone["functions"][0]["image"] = json!(image);
        cluster.stopped.insert(DEPLOYMENT);
        cluster.set_spec(&alone);
        for _ in 0..4 {
            cluster.reconcile();
            cluster.run_controllers();
            cluster.advance(std::time::Duration::from_secs(30));
        }
        assert!(!cluster.child(&function()).unwrap().mentions("ODGM_ENABLED"));
        assert!(cluster.child(&grid()).is_some_and(|it| !it.deleting), "pods aren't replaced yet");
        assert_eq!(cluster.phase().0, Phase::Progressing);

        cluster.stopped.clear();
        cluster.run_controllers();
        cluster.reconcile();
        assert_eq!(cluster.phase().0, Phase::Available);
        assert_eq!(cluster.status().replaced.unwrap().resource_refs.len(), 6);
        assert!(cluster.child(&grid()).is_some_and(|it| !it.deleting), "it drains");
        cluster.converge();
        assert_eq!(cluster.outcome(), Cluster::with(&alone).outcome());
    }
}

#[test]
fn a_grid_that_is_restored_while_it_drains_stays() {
    let mut cluster = Cluster::with(&spec(3));
    let uid = cluster.child(&grid()).unwrap().uid.clone();
    let mut alone = spec(3);
    alone["addons"] = json!([]);
    cluster.set_spec(&alone);
    cluster.reconcile();
    cluster.run_controllers();
    cluster.reconcile();
    cluster.set_spec(&spec(3));
    cluster.converge();
    assert_eq!(cluster.child(&grid()).unwrap().uid, uid);
    assert_eq!(cluster.status().replaced, None);
}

#[test]
fn certificates_are_renewed_in_time_without_a_restart() {
    let mut cluster = Cluster::with(&spec(3));
    let secret = (SECRET, "shop-odgm".to_owned());
    let issued = cluster.child(&secret).unwrap().renew_after.unwrap();
    let template = cluster.object(&grid()).unwrap()["spec"]["template"].clone();
    let waiting = cluster.reconcile();
    assert_eq!(waiting.actions, []);
    let left = waiting.requeue_after.unwrap();
    assert!(left > std::time::Duration::from_hours(59 * 24), "{left:?}");
    cluster.advance(left);
    let actions = cluster.reconcile().actions;
    assert!(matches!(actions.first(), Some(Action::IssueCertificate(_))), "{actions:?}");
    cluster.converge();
    assert!(cluster.child(&secret).unwrap().renew_after.unwrap() > issued);
    assert_eq!(cluster.object(&grid()).unwrap()["spec"]["template"], template);
    // A deleted Secret is made again.
    cluster.remove(&secret);
    cluster.converge();
    assert!(cluster.child(&secret).is_some());
}

/// Both kinds of workload have one name, and their selectors match the same pods.
#[test]
fn two_grids_never_exist_at_once() {
    let mut cluster = Cluster::with(&spec(1));
    for replicas in [3, 1] {
        cluster.set_spec(&spec(replicas));
        for _ in 0..12 {
            let kinds = cluster.keys().into_iter().filter(|(kind, name)| {
                name == "shop-odgm" && (*kind == DEPLOYMENT || *kind == STATEFUL_SET)
            });
            assert!(kinds.count() <= 1);
            cluster.reconcile();
            cluster.run_controllers();
        }
        cluster.converge();
        assert_eq!(cluster.outcome(), Cluster::with(&spec(replicas)).outcome());
    }
}

/// Each node is deleted after the grid has removed it, and no earlier.
#[test]
fn nodes_are_deleted_one_after_the_other_when_they_are_no_members() {
    let mut safe = spec(5);
    safe["data_retention"] = json!({});
    let mut cluster = Cluster::with(&safe);
    safe["odgm_config"]["replicas"] = json!(3);
    let report = |desired_members, needed_nodes| {
        Some(GridObservation { desired_members, needed_nodes, low_on_space: false })
    };
    cluster.grid = report(5, 5);
    cluster.set_spec(&safe);
    for (reported, nodes) in [
        (report(5, 5), 5),
        // It doesn't know yet that fewer are desired.
        (report(5, 3), 5),
        (report(3, 5), 5),
        (report(3, 4), 4),
        // A late report doesn't create a node again.
        (report(3, 5), 4),
    ] {
        cluster.grid = reported;
        cluster.reconcile();
        cluster.run_controllers();
        cluster.reconcile();
        let object = cluster.object(&grid()).unwrap();
        assert_eq!(object["spec"]["replicas"], nodes, "{reported:?}");
        assert_eq!(cluster.phase(), (Phase::Progressing, "WaitingForDataGrid".to_owned()));
        let config = cluster.object(&(CONFIG_MAP, "shop-odgm".to_owned())).unwrap();
        assert_eq!(config["data"]["members.json"], "{\"members\":3}");
    }
    cluster.grid = report(3, 3);
    cluster.converge();
    assert_eq!(cluster.object(&grid()).unwrap()["spec"]["replicas"], 3);
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn a_grid_that_runs_out_of_space_is_reported_until_it_has_space() {
    let mut cluster = Cluster::with(&spec(3));
    let report =
        |low_on_space| Some(GridObservation { desired_members: 3, needed_nodes: 3, low_on_space });
    cluster.grid = report(true);
    cluster.events.clear();
    cluster.converge();
    assert!(cluster.status().is_true(DATA_GRID_STORAGE_PRESSURE));
    assert_eq!(cluster.phase().0, Phase::Available);
    let events: Vec<_> = cluster.events.iter().map(|it| (it.reason, it.warning)).collect();
    assert_eq!(events, [(Reason::DataGridStorageLow, true)]);
    cluster.grid = report(false);
    cluster.converge();
    assert!(!cluster.status().is_true(DATA_GRID_STORAGE_PRESSURE));
}
