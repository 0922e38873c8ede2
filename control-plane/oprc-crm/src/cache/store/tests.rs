use k8s_openapi::api::core::v1::Event;
use kube::core::DynamicObject;
use serde_json::json;

use super::*;
use crate::{
    decode::{RawClass, decode},
    kinds::{SERVICE, STATEFUL_SET},
    reconcile::observe::pod_creation_failure,
};

fn service(uid: &str, version: &str) -> Child {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "s", "namespace": "n", "uid": uid, "resourceVersion": version,
            "ownerReferences": [{
                "apiVersion": "oaas.io/v1alpha1", "kind": "ClassRuntime", "name": "c",
                "uid": "owner", "controller": true,
            }],
        },
    }))
    .unwrap();
    Child::of(&SERVICE, &object)
}

#[test]
fn late_response_does_not_resurrect_deleted_object() {
    let cache = Cache::default();
    let key = ("n".to_owned(), "s".to_owned());
    cache.put_child(service("first", "1"));
    cache.remove_child(&SERVICE, &key, "first");
    cache.put_child(service("first", "2"));
    assert!(cache.named(&SERVICE, "n", "s").is_none());
    cache.put_child(service("second", "3"));
    assert_eq!(cache.named(&SERVICE, "n", "s").unwrap().uid, "second");
    assert_eq!(cache.owned("n", "owner").len(), 1);
}

#[test]
fn object_created_during_a_list_is_kept() {
    let cache = Cache::default();
    let key = ("n".to_owned(), "s".to_owned());
    cache.put_child(service("first", "1"));
    let unseen = cache.known_children(&SERVICE);
    // While the list is read, the first one is deleted and replaced.
    cache.remove_child(&SERVICE, &key, "first");
    cache.put_child(service("second", "2"));
    for (key, uid) in unseen {
        cache.remove_child(&SERVICE, &key, &uid);
    }
    assert_eq!(cache.named(&SERVICE, "n", "s").unwrap().uid, "second");
    // Later events of the replacement are taken, too.
    cache.put_child(service("second", "3"));
    assert_eq!(cache.named(&SERVICE, "n", "s").unwrap().resource_version, "3");
}

/// The watch event of a write and its response arrive in any order, and other events follow.
#[test]
fn applied_manifest_hash_is_kept_across_watch_events() {
    let desired = json!({"spec": 1});
    let was_applied =
        |cache: &Cache| cache.named(&SERVICE, "n", "s").unwrap().was_applied_as(&desired);
    for event_first in [true, false] {
        let cache = Cache::default();
        if event_first {
            cache.put_child(service("one", "5"));
            assert!(!was_applied(&cache));
        }
        cache.put_child(service("one", "5").with_applied(&desired));
        cache.put_child(service("one", "5"));
        assert!(was_applied(&cache));
        cache.put_child(service("one", "6"));
        assert!(was_applied(&cache), "the owned fields are the same");
        cache.put_child(service("two", "7"));
        assert!(!was_applied(&cache), "it is another object");
    }
}

/// A creation failure is dropped once the workload has its pods, whichever event arrives first.
#[test]
fn pod_creation_failure_is_dropped_once_pods_exist() {
    let set = |version: &str, pods: i32| {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {
                "name": "s", "namespace": "n", "uid": "set", "resourceVersion": version,
                "ownerReferences": [{
                    "apiVersion": "oaas.io/v1alpha1", "kind": "ClassRuntime", "name": "c",
                    "uid": "owner", "controller": true,
                }],
            },
            "spec": {"replicas": 2}, "status": {"replicas": pods},
        }))
        .unwrap();
        Child::of(&STATEFUL_SET, &object)
    };
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": "e", "namespace": "n"},
        "involvedObject": {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "set",
        },
        "message": "create Pod s-0 in StatefulSet s failed: exceeded quota",
    }))
    .unwrap();
    let failure = pod_creation_failure(&event).unwrap();
    for event_first in [true, false] {
        let cache = Cache::default();
        if event_first {
            cache.put_pod_creation_failure("n", &failure);
        }
        cache.put_child(set("1", 1));
        if !event_first {
            cache.put_pod_creation_failure("n", &failure);
        }
        assert_eq!(cache.pod_creation_failure("set").as_ref(), Some(&failure.message));
        cache.put_child(set("2", 2));
        assert_eq!(cache.pod_creation_failure("set"), None);
        cache.put_pod_creation_failure("n", &failure);
        assert_eq!(cache.pod_creation_failure("set"), None, "it is over");
    }
}

#[test]
fn changes_are_kept_without_large_fields() {
    let object: RawClass = serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "deployment_unit": {"id": "unit", "package": "shop"},
            "target_environment": "prod",
            "function": {"image": "x".repeat(100_000)},
        },
        "status": {
            "phase": "Available", "ready": "1/1",
            "last_available": {"generation": 1, "spec": {"function": {"image": "img"}}},
        },
    }))
    .unwrap();
    let cache = Cache::default();
    let class = decode(&object);
    cache.put_class(class.clone());
    let (Start::Deltas(changes), _) = cache.watch(Some(0)) else { panic!("no changes") };
    let published = &changes[0].class;
    let (spec, whole) = (published.spec.as_ref().unwrap(), class.spec.as_ref().unwrap());
    assert_eq!(spec.deployment_unit, whole.deployment_unit);
    assert_eq!(spec.target_environment.as_deref(), Some("prod"));
    assert!(spec.function.is_none());
    let status = published.status.as_ref().unwrap();
    assert_eq!((status.ready.as_deref(), &status.last_available), (Some("1/1"), &None));
    let kept = cache.class(&("n".to_owned(), "c".to_owned())).unwrap();
    assert_eq!(*kept, class, "the cached class is complete");
}

#[test]
fn older_version_is_ignored() {
    let cache = Cache::default();
    cache.put_child(service("one", "5"));
    cache.put_child(service("one", "4"));
    assert_eq!(cache.named(&SERVICE, "n", "s").unwrap().resource_version, "5");
}

#[test]
fn pods_belong_to_the_function_with_their_label() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let pod = |name: &str, owner: &str, function: Option<&str>| {
        let mut labels = json!({"oaas.io/owner": owner});
        if let Some(function) = function {
            labels["oaas.io/function"] = names::label(function).into();
        }
        let pod = json!({"metadata": {
            "name": name, "namespace": "n", "uid": name, "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }});
        PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap()
    };
    let class: RawClass = serde_json::from_value(json!({
        "metadata": {"name": "shop", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"functions": [{"key": "Part ways", "image": "i"}]},
    }))
    .unwrap();
    let cache = Cache::default();
    cache.put_class(decode(&class));
    for pod in [
        pod("a", "shop", Some("Part ways")),
        pod("b", "shop", None),
        pod("c", "shop", Some("removed")),
        pod("d", "shop-2", Some("Part ways")),
    ] {
        cache.put_pod(pod, None, at(0));
    }
    let mut found = cache.pods(at(0));
    found.sort();
    let components: Vec<_> =
        found.iter().map(|pod| (pod.name.as_str(), pod.component.clone())).collect();
    let function = |key: &str| Component::Function(key.to_owned());
    let expected =
        [("a", function("Part ways")), ("b", Component::DataGrid), ("c", function("removed"))];
    assert_eq!(components, expected);
    assert!(found.iter().all(|pod| pod.class == ("n".to_owned(), "shop".to_owned())));
}

#[tokio::test]
async fn a_class_is_enqueued_when_a_pod_of_its_grid_changes() {
    let at = Timestamp::UNIX_EPOCH;
    let pod = |uid: &str, ready: &str| {
        let pod = json!({
            "metadata": {
                "name": "shop-odgm-0", "namespace": "n", "uid": uid,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"oaas.io/owner": "shop", "controller-revision-hash": "shop-odgm-1"},
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap()
    };
    let class: RawClass = serde_json::from_value(json!({
        "metadata": {"name": "shop", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"functions": [{"key": "greet", "image": "i"}]},
    }))
    .unwrap();
    let cache = Cache::default();
    cache.put_class(decode(&class));
    let queue = cache.workqueue();
    queue.drain().await;
    let own = ("n".to_owned(), "shop".to_owned());
    for (uid, ready) in [("one", "False"), ("one", "True"), ("one", "False"), ("two", "True")] {
        cache.put_pod(pod(uid, ready), None, at);
        assert!(queue.drain().await.contains(&own), "{uid} {ready}");
    }
    let revision = Some("shop-odgm-1".to_owned());
    let pod = GridPod { ready: true, revision, has_problem: false };
    assert_eq!(cache.grid_pod("n", "shop-odgm-0"), Some(pod));
    cache.remove_pod(&("n".to_owned(), "shop-odgm-0".to_owned()), "two", at);
    assert!(queue.drain().await.contains(&own));
    assert_eq!(cache.grid_pod("n", "shop-odgm-0"), None);
}
