use k8s_openapi::api::core::v1::Event;
use kube::core::DynamicObject;
use serde_json::json;

use super::*;
use crate::{
    kinds::{SERVICE, STATEFUL_SET},
    observed::{RawClass, parse},
    reconcile::observe::unmade,
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
fn an_answer_that_comes_late_brings_nothing_back() {
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
fn what_came_while_a_list_was_read_stays() {
    let cache = Cache::default();
    let key = ("n".to_owned(), "s".to_owned());
    cache.put_child(service("first", "1"));
    let unseen = cache.known_children(&SERVICE);
    // While the list is read, the first one goes and another comes in its place.
    cache.remove_child(&SERVICE, &key, "first");
    cache.put_child(service("second", "2"));
    for (key, uid) in unseen {
        cache.remove_child(&SERVICE, &key, &uid);
    }
    assert_eq!(cache.named(&SERVICE, "n", "s").unwrap().uid, "second");
    // The news of it isn't lost either.
    cache.put_child(service("second", "3"));
    assert_eq!(cache.named(&SERVICE, "n", "s").unwrap().resource_version, "3");
}

/// The news of a write and its answer come in any order, and other news after both.
#[test]
fn what_a_write_was_answered_with_is_remembered() {
    let wanted = json!({"spec": 1});
    let answers = |cache: &Cache| cache.named(&SERVICE, "n", "s").unwrap().answers(&wanted);
    for news_first in [true, false] {
        let cache = Cache::default();
        if news_first {
            cache.put_child(service("one", "5"));
            assert!(!answers(&cache));
        }
        cache.put_child(service("one", "5").answering(&wanted));
        cache.put_child(service("one", "5"));
        assert!(answers(&cache));
        cache.put_child(service("one", "6"));
        assert!(answers(&cache), "what is ours is the same");
        cache.put_child(service("two", "7"));
        assert!(!answers(&cache), "it is another");
    }
}

/// What a workload is told for goes when it has its pods, whichever is heard of first.
#[test]
fn an_event_tells_of_a_workload_until_that_has_its_pods() {
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
    let told = unmade(&event).unwrap();
    for event_first in [true, false] {
        let cache = Cache::default();
        if event_first {
            cache.put_unmade("n", &told);
        }
        cache.put_child(set("1", 1));
        if !event_first {
            cache.put_unmade("n", &told);
        }
        assert_eq!(cache.unmade("set").as_ref(), Some(&told.why));
        cache.put_child(set("2", 2));
        assert_eq!(cache.unmade("set"), None);
        cache.put_unmade("n", &told);
        assert_eq!(cache.unmade("set"), None, "it is over");
    }
}

#[test]
fn changes_are_kept_without_what_nobody_is_told() {
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
    let class = parse(&object);
    cache.put_class(class.clone());
    let (Begin::Deltas(told), _) = cache.follow(Some(0)) else { panic!("no changes") };
    let told = &told[0].class;
    let (spec, whole) = (told.spec.as_ref().unwrap(), class.spec.as_ref().unwrap());
    assert_eq!(spec.deployment_unit, whole.deployment_unit);
    assert_eq!(spec.target_environment.as_deref(), Some("prod"));
    assert!(spec.function.is_none());
    let status = told.status.as_ref().unwrap();
    assert_eq!((status.ready.as_deref(), &status.last_available), (Some("1/1"), &None));
    let kept = cache.class(&("n".to_owned(), "c".to_owned())).unwrap();
    assert_eq!(*kept, class, "what is known is whole");
}

#[test]
fn an_older_version_changes_nothing() {
    let cache = Cache::default();
    cache.put_child(service("one", "5"));
    cache.put_child(service("one", "4"));
    assert_eq!(cache.named(&SERVICE, "n", "s").unwrap().resource_version, "5");
}
