//! What we own is healed at once, one object at a time; what others own is left alone.

use oprc_unit::{Platform, Profile};
use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};

use super::{
    super::{Action, observe::MANAGER},
    cases,
    cluster::{Cluster, Key},
    owned, specs,
};
use crate::{
    crd::Phase,
    kinds::{AUTOSCALER, DEPLOYMENT, JOB, SERVICE},
};

/// Everything a class can have but for Jobs.
fn rich() -> Value {
    json!({
        "selected_template": "unified",
        "functions": [
            {"key": "steady", "image": "img:1", "provision": {
                "min_scale": 3, "max_scale": 5,
                "env": [{"name": "A", "value": "1"}, {"name": "B", "secret": {"name": "s", "key": "k"}}],
                "volume_mounts": [{"mount_path": "/tmp", "empty_dir": {"size_limit": "1Gi"}}],
            }},
            {"key": "bursty", "image": "img:1", "provision": {"min_scale": 0, "max_scale": 8}},
        ],
        "addons": ["odgm"],
        "odgm_config": {"replicas": 3, "collections": ["things"]},
    })
}

/// A class that runs once.
fn run() -> Value {
    json!({
        "selected_template": "job",
        "functions": [{"key": "once", "image": "img:1", "config": {"timeout_ms": 5000}}],
    })
}

/// Paths of the leaves of a set of fields.
fn leaves(set: &Value, path: &[String], into: &mut Vec<Vec<String>>) {
    let entries: Vec<_> =
        set.as_object().into_iter().flatten().filter(|(key, _)| *key != ".").collect();
    if entries.is_empty() {
        into.push(path.to_vec());
    }
    for (key, below) in entries {
        leaves(below, &[path, std::slice::from_ref(key)].concat(), into);
    }
}

/// Every leaf that we own, of every object.
fn owned_leaves(cluster: &Cluster) -> Vec<(Key, Vec<String>)> {
    let mut all = Vec::new();
    for key in cluster.keys() {
        let object = cluster.object(&key).unwrap();
        let managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let Some(ours) = managers.iter().find(|it| it["manager"] == MANAGER) else { continue };
        let mut paths = Vec::new();
        leaves(&ours["fieldsV1"], &[], &mut paths);
        // Without its owner it is somebody else's; how many there are is the autoscaler's part.
        paths.retain(|path| {
            !path.contains(&"f:ownerReferences".to_owned())
                && (key.0 != DEPLOYMENT || path.last().unwrap() != "f:replicas")
        });
        all.extend(paths.into_iter().map(|path| (key.clone(), path)));
    }
    all
}

fn step<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    if let Some(name) = key.strip_prefix("f:") {
        return &mut value[name];
    }
    let names: Map<String, Value> = serde_json::from_str(key.strip_prefix("k:").unwrap()).unwrap();
    let fits = |it: &&mut Value| names.iter().all(|(name, value)| it[name] == *value);
    value.as_array_mut().unwrap().iter_mut().find(fits).unwrap()
}

/// Something else than what was there.
fn spoil(value: &mut Value) {
    *value = match &*value {
        Value::String(text) => json!(format!("{text}-spoiled")),
        Value::Number(number) => json!(number.as_i64().unwrap() + 1),
        Value::Bool(flag) => json!(!flag),
        Value::Array(_) => json!([]),
        Value::Object(_) | Value::Null => json!({"spoiled": "yes"}),
    };
}

/// One pass heals exactly that object, by one write.
fn heal(cluster: &mut Cluster, key: &Key, what: &str) {
    let decision = cluster.pass();
    let writes: Vec<_> = decision
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Apply(write) => Some((write.desired.kind.clone(), write.desired.name.clone())),
            Action::Delete(child) => panic!("{what}: deletes {}", child.name),
            _ => None,
        })
        .collect();
    assert_eq!(writes, std::slice::from_ref(key), "{what}");
}

#[test]
fn every_field_we_own_is_healed_by_one_write() {
    for (class, least) in [(rich(), 250), (run(), 10)] {
        let calm = Cluster::with(&class);
        let mut healed = 0;
        for (key, path) in owned_leaves(&calm) {
            let expected = owned(calm.object(&key).unwrap());
            let what = format!("{} {} {}", key.0, key.1, path.join(" "));
            let mut cluster = calm.clone();
            let spoiled = cluster.edit(&key, "kubectl-edit", |object| {
                spoil(path.iter().fold(object, |value, key| step(value, key)));
            });
            // Nobody can change what the API server keeps from being changed.
            if spoiled {
                assert_ne!(owned(cluster.object(&key).unwrap()), expected, "{what}");
                heal(&mut cluster, &key, &what);
                assert_eq!(owned(cluster.object(&key).unwrap()), expected, "{what}");
                healed += 1;
            }
        }
        assert!(healed > least, "{healed} fields");
    }
}

/// What CRM is told to give functions may change; a run has what it was begun with.
#[test]
fn the_pods_of_a_run_stay_as_they_are() {
    let mut cluster = Cluster::with(&run());
    let key = cluster.own_keys().into_iter().find(|key| key.0 == JOB).unwrap();
    let before = cluster.object(&key).unwrap().clone();
    let sizes = Platform::of(Profile::Dev).function_sizes;
    assert_ne!(cluster.environment.function_sizes, sizes);
    cluster.environment.function_sizes = sizes;
    assert_eq!(cluster.pass().actions, []);
    assert!(cluster.edit(&key, "kubectl-edit", |object| {
        object["metadata"]["labels"]["app"] = json!("spoiled");
    }));
    cluster.rest();
    assert_eq!(owned(cluster.object(&key).unwrap()), owned(&before));
    assert_eq!(cluster.phase().0, Phase::Available);

    // Where it isn't known what was said of them, nothing is.
    let mut object = cluster.object(&key).unwrap().clone();
    object["spec"]["backoffLimit"] = json!(7);
    object["metadata"]["managedFields"] = json!([]);
    cluster.put(&key, object);
    assert_eq!(cluster.pass().actions, []);
}

/// An object that says of its class only that it isn't controlled by it is as much ours as before.
#[test]
fn an_owner_that_is_told_not_to_control_is_put_back() {
    let calm = Cluster::with(&rich());
    for key in calm.own_keys() {
        let mut cluster = calm.clone();
        assert!(cluster.edit(&key, "kubectl-edit", |object| {
            object["metadata"]["ownerReferences"][0]["controller"] = json!(false);
        }));
        heal(&mut cluster, &key, &key.1);
        cluster.rest();
        assert_eq!(cluster.outcome(), calm.outcome());
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn a_field_taken_away_is_put_back(at in any::<Index>()) {
        let calm = Cluster::with(&rich());
        let leaves = owned_leaves(&calm);
        let (key, path) = at.get(&leaves);
        let (last, parents) = path.split_last().unwrap();
        let name = last.strip_prefix("f:").unwrap();
        let mut cluster = calm.clone();
        let taken = cluster.edit(key, "kubectl-edit", |object| {
            let parent = parents.iter().fold(object, |value, key| step(value, key));
            parent.as_object_mut().unwrap().remove(name);
        });
        prop_assume!(taken);
        cluster.settle();
        heal(&mut cluster, key, &path.join(" "));
        cluster.rest();
        prop_assert_eq!(cluster.outcome(), calm.outcome());
    }

    /// Any object of any class that is gone is made again, and nothing else is touched.
    #[test]
    fn an_object_that_is_gone_is_made_again(spec in specs::any(), at in any::<Index>()) {
        let calm = Cluster::with(&spec);
        let key = at.get(&calm.own_keys()).clone();
        let mut cluster = calm.clone();
        cluster.remove(&key);
        cluster.rest();
        if key.0 == JOB {
            // A run that has completed isn't made again.
            prop_assert_eq!(cluster.object(&key), None);
            prop_assert_eq!(cluster.phase().0, Phase::Available);
        } else {
            prop_assert_eq!(cluster.outcome(), calm.outcome());
        }
    }
}

#[test]
fn what_others_say_is_left_alone() {
    let mut cluster = Cluster::with(&rich());
    for key in cluster.keys() {
        cluster.edit(&key, "somebody", |object| {
            object["metadata"]["labels"]["theirs"] = json!("1");
            object["metadata"]["annotations"]["theirs"] = json!("1");
            object["spec"]["theirs"] = json!({"deep": [1, 2]});
            if let Some(pod) =
                object.pointer_mut("/spec/template/spec").filter(|_| key.1 != "shop--bursty-kn")
            {
                let injected = json!({"name": "injected", "image": "mesh"});
                pod["containers"].as_array_mut().unwrap().push(injected);
                pod["containers"][0]["stdin"] = json!(true);
                pod["nodeSelector"] = json!({"disk": "fast"});
            }
        });
    }
    cluster.settle();
    assert_eq!(cluster.pass().actions, []);
}

/// Ours is changed and theirs is kept in the same write.
#[test]
fn an_update_keeps_what_others_say() {
    let mut cluster = Cluster::with(&rich());
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    cluster.edit(&key, "somebody", |it| it["metadata"]["labels"]["theirs"] = json!("1"));
    let mut spec = rich();
    spec["functions"][0]["image"] = json!("img:2");
    cluster.ask(&spec);
    cluster.rest();
    let object = cluster.object(&key).unwrap();
    assert_eq!(object["metadata"]["labels"]["theirs"], "1");
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], "img:2");
}

/// What we said once and say no more goes, though nobody else said it.
#[test]
fn what_is_said_no_more_is_taken_away() {
    let mut cluster = Cluster::with(&rich());
    let mut spec = rich();
    spec["functions"][0]["provision"].as_object_mut().unwrap().remove("env");
    cluster.ask(&spec);
    cluster.rest();
    let object = cluster.object(&(DEPLOYMENT, "shop--steady".to_owned())).unwrap();
    let env = object.pointer("/spec/template/spec/containers/0/env").unwrap().as_array().unwrap();
    assert!(env.iter().all(|it| it["name"] != "A" && it["name"] != "B"), "{env:?}");
}

/// Replicas are ours until the autoscaler changes them, and its own from then on.
#[test]
fn an_autoscaler_is_not_fought() {
    let mut cluster = Cluster::with(&rich());
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    assert_eq!(owned(cluster.object(&key).unwrap())["spec"]["replicas"], 3);
    cluster.edit(&key, "kube-controller-manager", |it| it["spec"]["replicas"] = json!(5));
    cluster.rest();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 5);

    // Another change of the class must not bring them back either.
    let mut spec = rich();
    spec["functions"][0]["image"] = json!("img:2");
    cluster.ask(&spec);
    cluster.rest();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 5);
    assert_eq!(cluster.phase().0, Phase::Available);

    // A fixed number is ours again.
    spec["functions"][0]["provision"]["max_scale"] = json!(3);
    cluster.ask(&spec);
    cluster.rest();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 3);
    assert!(cluster.object(&(AUTOSCALER, key.1)).is_none());
}

/// A user's own autoscaler takes the place of ours, under whatever name.
#[test]
fn a_users_own_autoscaler_is_left_to_its_work() {
    for name in ["their-own", "shop--steady"] {
        let mut cluster = Cluster::new();
        cluster.ask(&rich());
        let theirs = (AUTOSCALER, name.to_owned());
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop--steady"});
        cluster.make_foreign(
            &theirs,
            &json!({"scaleTargetRef": target, "minReplicas": 7, "maxReplicas": 9}),
        );
        cluster.rest();
        let status = cluster.status();
        assert_eq!(status.phase, Phase::Available, "{name}: {:?}", status.message);
        assert!(status.is_true("ForeignAutoscaler"));
        let key = (DEPLOYMENT, "shop--steady".to_owned());
        assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 7, "{name}");
        assert!(cluster.child(&theirs).unwrap().owner.is_none());
        let scalers = cluster.keys().iter().filter(|(kind, _)| *kind == AUTOSCALER).count();
        assert_eq!(scalers, 1, "ours isn't made");

        cluster.remove(&theirs);
        cluster.rest();
        assert!(!cluster.status().is_true("ForeignAutoscaler"));
        assert!(cluster.child(&(AUTOSCALER, key.1)).unwrap().owner.is_some(), "ours is");
    }
}

/// A user's own autoscaler may keep less than the class asks for, and switch the function off.
#[test]
fn a_class_is_available_with_as_many_as_others_want() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop--steady"});
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    for replicas in [2, 1, 0] {
        let mut cluster = Cluster::with(&rich());
        let theirs = (AUTOSCALER, "their-own".to_owned());
        let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2});
        cluster.make_foreign(&theirs, &spec);
        cluster.rest();
        cluster
            .edit(&key, "kube-controller-manager", |it| it["spec"]["replicas"] = json!(replicas));
        cluster.rest();
        assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], replicas);
        assert_eq!(cluster.phase().0, Phase::Available, "{replicas}");

        // Not before it is rolled out, all the same.
        let mut spec = rich();
        spec["functions"][0]["image"] = json!("broken");
        cluster.ask(&spec);
        cluster.pass();
        cluster.settle();
        cluster.pass();
        assert_eq!(cluster.phase().0, Phase::Progressing, "{replicas}");
    }
}

/// Two autoscalers of one Deployment get in each other's way: Kubernetes then heeds neither.
#[test]
fn ours_goes_when_a_user_brings_an_autoscaler() {
    let mut cluster = Cluster::with(&rich());
    let theirs = (AUTOSCALER, "their-own".to_owned());
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop--steady"});
    cluster.make_foreign(
        &theirs,
        &json!({"scaleTargetRef": target, "minReplicas": 7, "maxReplicas": 9}),
    );
    cluster.rest();
    assert!(cluster.object(&(AUTOSCALER, "shop--steady".to_owned())).is_none());
    assert!(cluster.object(&theirs).is_some());
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn nothing_is_healed_while_paused() {
    let mut spec = specs::one("dev");
    let mut cluster = Cluster::with(&spec);
    spec["paused"] = json!(true);
    cluster.ask(&spec);
    cluster.rest();
    let key = (SERVICE, "shop--alpha".to_owned());
    cluster.remove(&key);
    cluster.rest();
    assert!(cluster.object(&key).is_none());
    assert_ne!(cluster.phase().0, Phase::Available);

    spec["paused"] = json!(false);
    cluster.ask(&spec);
    cluster.rest();
    assert!(cluster.object(&key).is_some());
    assert_eq!(cluster.phase().0, Phase::Available);
}

/// A function with everything that can be left out again.
fn full_function() -> Value {
    json!({
        "key": "alpha", "image": "img:1", "port": 9000,
        "provision": {
            "min_scale": 1, "max_scale": 1,
            "requests": {"cpu": "1", "memory": "1Gi"},
            "limits": {"cpu": "2", "memory": "2Gi", "ephemeral_storage": "1Gi"},
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "secret": {"name": "s", "key": "k", "optional": true}},
                {"name": "C", "config_map": {"name": "s", "key": "k", "optional": true}},
            ],
            "env_from": [{"secret": "s", "prefix": "P_", "optional": true}],
            "image_pull_policy": "Always",
            "image_pull_secrets": ["one", "two"],
            "service_account": "worker",
            "volume_mounts": [
                {"mount_path": "/a", "secret": "s", "read_only": true, "sub_path": "x"},
                {"mount_path": "/b", "empty_dir": {"size_limit": "1Gi", "in_memory": true}},
            ],
            "command": ["/bin/serve"],
            "args": ["--verbose"],
            "security": {"level": "restricted", "run_as_user": 1000},
        },
        "health_check": {"path": "/healthz", "port": 9090, "period_seconds": 7},
        "config": {"timeout_ms": 1500, "env": {"MODE": "fast"}},
        "constraints": {"max_concurrency": 10},
    })
}

/// Where something stands that can be left out.
fn optional(value: &Value, path: &str, into: &mut Vec<String>) {
    let needed = ["key", "image", "name", "mount_path", "secret", "config_map", "empty_dir"];
    match value {
        Value::Object(map) => {
            for (name, below) in map {
                let path = format!("{path}/{name}");
                // A source that goes takes its place with it.
                if !needed.contains(&name.as_str()) || path.contains("/env/") {
                    into.push(path.clone());
                }
                optional(below, &path, into);
            }
        }
        Value::Array(items) => {
            for (at, below) in items.iter().enumerate() {
                optional(below, &format!("{path}/{at}"), into);
            }
        }
        _ => {}
    }
}

/// Within what is owned as a whole, too: a default can't be told there from what was said once.
#[test]
fn whatever_a_class_leaves_out_goes() {
    let mut paths = Vec::new();
    optional(&full_function(), "", &mut paths);
    for template in ["knative", "k8s_deployment"] {
        let spec =
            |function: Value| json!({"selected_template": template, "functions": [function]});
        let calm = Cluster::with(&spec(full_function()));
        let mut tried = 0;
        for path in &paths {
            let mut function = full_function();
            let (parent, name) = path.rsplit_once('/').unwrap();
            let parent = function.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            parent.remove(name);
            // Some of it isn't a class without it.
            let fresh = Cluster::with(&spec(function.clone()));
            if fresh.phase().0 != Phase::Available {
                continue;
            }
            let mut cluster = calm.clone();
            cluster.ask(&spec(function));
            cluster.rest();
            assert_eq!(cluster.outcome(), fresh.outcome(), "{template}: {path}");
            tried += 1;
        }
        assert!(tried > 25, "{tried}");
    }
}

/// What can't be changed in place is at least seen to differ.
#[test]
fn a_storage_class_that_is_left_out_is_told() {
    let mut spec = rich();
    spec["odgm_config"]["storage"] = json!({"class": "fast"});
    let mut cluster = Cluster::with(&spec);
    spec["odgm_config"].as_object_mut().unwrap().remove("storage");
    cluster.ask(&spec);
    cluster.pass();
    assert_eq!(cluster.phase(), (Phase::Degraded, "Rejected".to_owned()));
}

/// An autoscaler leaves a Deployment alone that has been scaled to nothing, and so nobody would
/// bring it back.
#[test]
fn a_function_scaled_to_nothing_by_hand_comes_back() {
    let mut cluster = Cluster::with(&rich());
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    cluster.edit(&key, "kubectl", |it| it["spec"]["replicas"] = json!(0));
    cluster.rest();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 3);
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.pass().actions, []);
}

/// Somebody who admits objects takes images from elsewhere.
fn mirror(object: &mut Value) {
    let image = object.pointer_mut("/spec/template/spec/containers/0/image");
    if let Some(image) = image
        && let Some(name) = image.as_str().filter(|name| !name.starts_with("mirror/"))
    {
        *image = json!(format!("mirror/{name}"));
    }
}

/// What is changed as it is written isn't written again and again, and is no less Available.
#[test]
fn what_admission_changes_is_left_to_it() {
    let mut cluster = Cluster::new();
    cluster.admission = Some(mirror);
    cluster.ask(&rich());
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.pass().actions, []);
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    let image = |cluster: &Cluster| {
        let object = cluster.object(&key).unwrap();
        object.pointer("/spec/template/spec/containers/0/image").unwrap().clone()
    };
    assert_eq!(image(&cluster), "mirror/img:1");

    // What others change is healed all the same, and what the class changes is written.
    cluster.edit(&key, "kubectl-edit", |it| it["spec"]["revisionHistoryLimit"] = json!(9));
    cluster.rest();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["revisionHistoryLimit"], 2);
    cluster.edit(&key, "kubectl-edit", |it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] = json!("theirs");
    });
    cluster.rest();
    assert_eq!(image(&cluster), "mirror/img:1");
    let mut spec = rich();
    spec["functions"][0]["image"] = json!("img:2");
    cluster.ask(&spec);
    cluster.rest();
    assert_eq!(image(&cluster), "mirror/img:2");
    assert_eq!(cluster.phase().0, Phase::Available);
}
