//! Drift of owned fields is corrected by one write; fields of others are kept.

use oprc_unit::{Platform, Profile};
use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};

use super::{
    super::{Action, observe::MANAGER, render::RENEW_AFTER},
    cases,
    cluster::{Cluster, Key},
    owned, specs,
};
use crate::{
    crd::Phase,
    kinds::{AUTOSCALER, DEPLOYMENT, JOB, SERVICE},
};

/// All kinds of children except Jobs.
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

/// A class that runs as a Job.
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

/// Every owned leaf of every object.
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
            let renewal = format!("f:{RENEW_AFTER}");
            !path.contains(&"f:ownerReferences".to_owned())
                && !path.contains(&renewal)
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

/// Replaces a value by another one.
fn spoil(value: &mut Value) {
    *value = match &*value {
        Value::String(text) => json!(format!("{text}-spoiled")),
        // Another port must not become the same.
        Value::Number(number) => json!(number.as_i64().unwrap() + 5),
        Value::Bool(flag) => json!(!flag),
        Value::Array(_) => json!([]),
        Value::Object(_) | Value::Null => json!({"spoiled": "yes"}),
    };
}

/// One reconcile corrects exactly that object, by one write.
fn heal(cluster: &mut Cluster, key: &Key, what: &str) {
    let decision = cluster.reconcile();
    let writes: Vec<_> = decision
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Apply(write) | Action::IssueCertificate(write) => {
                Some((write.desired.kind.clone(), write.desired.name.clone()))
            }
            Action::Delete(child) => panic!("{what}: deletes {}", child.name),
            _ => None,
        })
        .collect();
    assert_eq!(writes, std::slice::from_ref(key), "{what}");
}

#[test]
fn every_owned_field_is_corrected_by_one_write() {
    for (class, least) in [(rich(), 250), (run(), 10)] {
        let converged = Cluster::with(&class);
        let mut healed = 0;
        for (key, path) in owned_leaves(&converged) {
            let expected = owned(converged.object(&key).unwrap());
            let what = format!("{} {} {}", key.0, key.1, path.join(" "));
            let mut cluster = converged.clone();
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

/// CRM's default sizes may change; a Job keeps those that it started with.
#[test]
fn the_pod_template_of_a_job_is_never_changed() {
    let mut cluster = Cluster::with(&run());
    let key = cluster.own_keys().into_iter().find(|key| key.0 == JOB).unwrap();
    let before = cluster.object(&key).unwrap().clone();
    let sizes = Platform::of(Profile::Dev).function_sizes;
    assert_ne!(cluster.environment.function_sizes, sizes);
    cluster.environment.function_sizes = sizes;
    assert_eq!(cluster.reconcile().actions, []);
    assert!(cluster.edit(&key, "kubectl-edit", |object| {
        object["metadata"]["labels"]["app"] = json!("spoiled");
    }));
    cluster.converge();
    assert_eq!(owned(cluster.object(&key).unwrap()), owned(&before));
    assert_eq!(cluster.phase().0, Phase::Available);

    // Without owned fields there is nothing to compare.
    let mut object = cluster.object(&key).unwrap().clone();
    object["spec"]["backoffLimit"] = json!(7);
    object["metadata"]["managedFields"] = json!([]);
    cluster.put(&key, object);
    assert_eq!(cluster.reconcile().actions, []);
}

/// An object whose owner reference lost its controller flag still belongs to the class.
#[test]
fn the_controller_flag_of_the_owner_reference_is_restored() {
    let converged = Cluster::with(&rich());
    for key in converged.own_keys() {
        let mut cluster = converged.clone();
        assert!(cluster.edit(&key, "kubectl-edit", |object| {
            object["metadata"]["ownerReferences"][0]["controller"] = json!(false);
        }));
        heal(&mut cluster, &key, &key.1);
        cluster.converge();
        assert_eq!(cluster.outcome(), converged.outcome());
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn a_removed_field_is_restored(at in any::<Index>()) {
        let converged = Cluster::with(&rich());
        let leaves = owned_leaves(&converged);
        let (key, path) = at.get(&leaves);
        let (last, parents) = path.split_last().unwrap();
        let name = last.strip_prefix("f:").unwrap();
        let mut cluster = converged.clone();
        let taken = cluster.edit(key, "kubectl-edit", |object| {
            let parent = parents.iter().fold(object, |value, key| step(value, key));
            parent.as_object_mut().unwrap().remove(name);
        });
        prop_assume!(taken);
        cluster.run_controllers();
        heal(&mut cluster, key, &path.join(" "));
        cluster.converge();
        prop_assert_eq!(cluster.outcome(), converged.outcome());
    }

    /// Nothing else is changed.
    #[test]
    fn a_deleted_object_is_recreated(spec in specs::any(), at in any::<Index>()) {
        let converged = Cluster::with(&spec);
        let key = at.get(&converged.own_keys()).clone();
        let mut cluster = converged.clone();
        cluster.remove(&key);
        cluster.converge();
        if key.0 == JOB {
            // A run that has completed isn't made again.
            prop_assert_eq!(cluster.object(&key), None);
            prop_assert_eq!(cluster.phase().0, Phase::Available);
        } else {
            prop_assert_eq!(cluster.outcome(), converged.outcome());
        }
    }
}

#[test]
fn fields_of_other_managers_are_kept() {
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
    cluster.run_controllers();
    assert_eq!(cluster.reconcile().actions, []);
}

#[test]
fn an_update_keeps_fields_of_other_managers() {
    let mut cluster = Cluster::with(&rich());
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    cluster.edit(&key, "somebody", |it| it["metadata"]["labels"]["theirs"] = json!("1"));
    let mut spec = rich();
    spec["functions"][0]["image"] = json!("img:2");
    cluster.set_spec(&spec);
    cluster.converge();
    let object = cluster.object(&key).unwrap();
    assert_eq!(object["metadata"]["labels"]["theirs"], "1");
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], "img:2");
}

#[test]
fn a_field_that_is_no_longer_desired_is_removed() {
    let mut cluster = Cluster::with(&rich());
    let mut spec = rich();
    spec["functions"][0]["provision"].as_object_mut().unwrap().remove("env");
    cluster.set_spec(&spec);
    cluster.converge();
    let object = cluster.object(&(DEPLOYMENT, "shop--steady".to_owned())).unwrap();
    let env = object.pointer("/spec/template/spec/containers/0/env").unwrap().as_array().unwrap();
    assert!(env.iter().all(|it| it["name"] != "A" && it["name"] != "B"), "{env:?}");
}

/// CRM owns replicas until the autoscaler changes them.
#[test]
fn replicas_are_left_to_the_autoscaler() {
    let mut cluster = Cluster::with(&rich());
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    assert_eq!(owned(cluster.object(&key).unwrap())["spec"]["replicas"], 3);
    cluster.edit(&key, "kube-controller-manager", |it| it["spec"]["replicas"] = json!(5));
    cluster.converge();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 5);

    // Another change of the class must not bring them back either.
    let mut spec = rich();
    spec["functions"][0]["image"] = json!("img:2");
    cluster.set_spec(&spec);
    cluster.converge();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 5);
    assert_eq!(cluster.phase().0, Phase::Available);

    // A fixed number is ours again.
    spec["functions"][0]["provision"]["max_scale"] = json!(3);
    cluster.set_spec(&spec);
    cluster.converge();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 3);
    assert!(cluster.object(&(AUTOSCALER, key.1)).is_none());
}

#[test]
fn an_autoscaler_of_another_owner_replaces_crms() {
    for name in ["their-own", "shop--steady"] {
        let mut cluster = Cluster::new();
        cluster.set_spec(&rich());
        let theirs = (AUTOSCALER, name.to_owned());
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop--steady"});
        cluster.create_foreign(
            &theirs,
            &json!({"scaleTargetRef": target, "minReplicas": 7, "maxReplicas": 9}),
        );
        cluster.converge();
        let status = cluster.status();
        assert_eq!(status.phase, Phase::Available, "{name}: {:?}", status.message);
        assert!(status.is_true("ForeignAutoscaler"));
        let key = (DEPLOYMENT, "shop--steady".to_owned());
        assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 7, "{name}");
        assert!(cluster.child(&theirs).unwrap().owner.is_none());
        let scalers = cluster.keys().iter().filter(|(kind, _)| *kind == AUTOSCALER).count();
        assert_eq!(scalers, 1, "ours isn't made");

        cluster.remove(&theirs);
        cluster.converge();
        assert!(!cluster.status().is_true("ForeignAutoscaler"));
        assert!(cluster.child(&(AUTOSCALER, key.1)).unwrap().owner.is_some(), "ours is");
    }
}

/// It may scale below the minimum of the class, and to zero.
#[test]
fn a_class_is_available_with_the_replicas_of_another_owners_autoscaler() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop--steady"});
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    for replicas in [2, 1, 0] {
        let mut cluster = Cluster::with(&rich());
        let theirs = (AUTOSCALER, "their-own".to_owned());
        let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2});
        cluster.create_foreign(&theirs, &spec);
        cluster.converge();
        cluster
            .edit(&key, "kube-controller-manager", |it| it["spec"]["replicas"] = json!(replicas));
        cluster.converge();
        assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], replicas);
        assert_eq!(cluster.phase().0, Phase::Available, "{replicas}");

        // Not before it is rolled out, all the same.
        let mut spec = rich();
        spec["functions"][0]["image"] = json!("broken");
        cluster.set_spec(&spec);
        cluster.reconcile();
        cluster.run_controllers();
        cluster.reconcile();
        assert_eq!(cluster.phase().0, Phase::Progressing, "{replicas}");
    }
}

/// Kubernetes ignores both of two autoscalers of one Deployment.
#[test]
fn crms_autoscaler_is_deleted_when_another_owner_creates_one() {
    let mut cluster = Cluster::with(&rich());
    let theirs = (AUTOSCALER, "their-own".to_owned());
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop--steady"});
    cluster.create_foreign(
        &theirs,
        &json!({"scaleTargetRef": target, "minReplicas": 7, "maxReplicas": 9}),
    );
    cluster.converge();
    assert!(cluster.object(&(AUTOSCALER, "shop--steady".to_owned())).is_none());
    assert!(cluster.object(&theirs).is_some());
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn drift_is_not_corrected_while_paused() {
    let mut spec = specs::one("dev");
    let mut cluster = Cluster::with(&spec);
    spec["paused"] = json!(true);
    cluster.set_spec(&spec);
    cluster.converge();
    let key = (SERVICE, "shop--alpha".to_owned());
    cluster.remove(&key);
    cluster.converge();
    assert!(cluster.object(&key).is_none());
    assert_ne!(cluster.phase().0, Phase::Available);

    spec["paused"] = json!(false);
    cluster.set_spec(&spec);
    cluster.converge();
    assert!(cluster.object(&key).is_some());
    assert_eq!(cluster.phase().0, Phase::Available);
}

/// A function with every optional field.
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

/// Paths of optional fields.
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

/// Also within values that are owned as a whole, where defaults look like values that were set.
#[test]
fn optional_fields_that_are_left_out_are_removed() {
    let mut paths = Vec::new();
    optional(&full_function(), "", &mut paths);
    for template in ["knative", "k8s_deployment"] {
        let spec =
            |function: Value| json!({"selected_template": template, "functions": [function]});
        let converged = Cluster::with(&spec(full_function()));
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
            let mut cluster = converged.clone();
            cluster.set_spec(&spec(function));
            cluster.converge();
            assert_eq!(cluster.outcome(), fresh.outcome(), "{template}: {path}");
            tried += 1;
        }
        assert!(tried > 25, "{tried}");
    }
}

/// A field that can't be updated is at least detected as a difference.
#[test]
fn a_storage_class_that_is_left_out_is_reported() {
    let mut spec = rich();
    spec["odgm_config"]["storage"] = json!({"class": "fast"});
    let mut cluster = Cluster::with(&spec);
    spec["odgm_config"].as_object_mut().unwrap().remove("storage");
    cluster.set_spec(&spec);
    cluster.reconcile();
    assert_eq!(cluster.phase(), (Phase::Degraded, "Rejected".to_owned()));
}

/// An autoscaler ignores a Deployment that is scaled to zero.
#[test]
fn a_function_that_is_scaled_to_zero_by_hand_is_restored() {
    let mut cluster = Cluster::with(&rich());
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    cluster.edit(&key, "kubectl", |it| it["spec"]["replicas"] = json!(0));
    cluster.converge();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 3);
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.reconcile().actions, []);
}

/// An admission webhook that rewrites images.
fn mirror(object: &mut Value) {
    let image = object.pointer_mut("/spec/template/spec/containers/0/image");
    if let Some(image) = image
        && let Some(name) = image.as_str().filter(|name| !name.starts_with("mirror/"))
    {
        *image = json!(format!("mirror/{name}"));
    }
}

#[test]
fn changes_of_an_admission_webhook_are_accepted() {
    let mut cluster = Cluster::new();
    cluster.admission = Some(mirror);
    cluster.set_spec(&rich());
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.reconcile().actions, []);
    let key = (DEPLOYMENT, "shop--steady".to_owned());
    let image = |cluster: &Cluster| {
        let object = cluster.object(&key).unwrap();
        object.pointer("/spec/template/spec/containers/0/image").unwrap().clone()
    };
    assert_eq!(image(&cluster), "mirror/img:1");

    // What others change is healed all the same, and what the class changes is written.
    cluster.edit(&key, "kubectl-edit", |it| it["spec"]["revisionHistoryLimit"] = json!(9));
    cluster.converge();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["revisionHistoryLimit"], 2);
    cluster.edit(&key, "kubectl-edit", |it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] = json!("theirs");
    });
    cluster.converge();
    assert_eq!(image(&cluster), "mirror/img:1");
    let mut spec = rich();
    spec["functions"][0]["image"] = json!("img:2");
    cluster.set_spec(&spec);
    cluster.converge();
    assert_eq!(image(&cluster), "mirror/img:2");
    assert_eq!(cluster.phase().0, Phase::Available);
}
