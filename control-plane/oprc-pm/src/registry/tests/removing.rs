//! Deletion of versions, and what prevents it.

use oprc_cp_storage::Transaction;

use super::*;
use crate::state::schema::{deployment_key, encode, version_key};

fn deployment(registry: &Registry, key: &str, version: &str) -> Transaction {
    let at = "2026-11-16T00:00:00Z";
    let record = serde_json::json!({
        "deployment": {"key": key}, "revision": "r", "created_at": at, "updated_at": at,
        "correlation_id": "", "stage": {"stage": "succeeded"}, "stage_since": at,
        "plan": {"deployment": key, "package": "a", "version": version, "units": [], "reasons": []},
    });
    let transaction = Transaction::new().put(deployment_key(key), record.to_string());
    registry.reference(transaction, "a", version).unwrap()
}

#[tokio::test]
async fn version_that_a_package_depends_on_is_not_deleted() {
    let registry = registry().await;
    for version in ["1.0.0", "1.1.0"] {
        publish(&registry, &package("a", version, "")).await.unwrap();
    }
    publish(&registry, &depending("b", "1.0.0", &[("a", "^1")])).await.unwrap();
    for error in [
        registry.delete_version("a", "1.1.0", None).await.unwrap_err(),
        registry.delete_package("a", None).await.unwrap_err(),
    ] {
        assert_eq!(reason(&error), "IN_USE");
        let Error::Conflict { blockers, .. } = error else { panic!() };
        assert_eq!(blockers, ["package b 1.0.0 (uses 1.1.0)"]);
    }
    registry.delete_version("a", "1.0.0", None).await.unwrap();
    assert_eq!(
        reason(&registry.delete_version("a", "1.0.0", None).await.unwrap_err()),
        "NOT_FOUND"
    );
    registry.delete_package("b", None).await.unwrap();
    registry.delete_package("a", None).await.unwrap();
    assert_eq!(registry.count(), (0, 0));
    assert_eq!(registry.cache.store().list("").await.unwrap().entries, []);
}

#[tokio::test]
async fn version_is_deleted_only_after_its_deployment() {
    let registry = registry().await;
    let store = registry.cache.store().clone();
    for version in ["1.0.0", "1.1.0"] {
        publish(&registry, &package("a", version, "")).await.unwrap();
    }
    let revision = store.commit(deployment(&registry, "prod", "1.0.0")).await.unwrap();
    registry.cache.wait_for(revision).await.unwrap();
    let error = registry.delete_version("a", "1.0.0", None).await.unwrap_err();
    assert!(error.to_string().contains("deployment prod (uses 1.0.0)"), "{error}");
    registry.delete_version("a", "1.1.0", None).await.unwrap();
    store.commit(Transaction::new().delete("deployment/prod")).await.unwrap();
    // The cache may not show the deletion yet.
    registry.delete_version("a", "1.0.0", None).await.unwrap();
}

#[tokio::test]
async fn concurrent_use_and_deletion_conflict() {
    let registry = registry().await;
    let store = registry.cache.store().clone();
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    publish(&registry, &package("a", "1.1.0", "")).await.unwrap();
    // Both transactions are built from the same state.
    let late = deployment(&registry, "late", "1.0.0");
    registry.delete_version("a", "1.0.0", None).await.unwrap();
    let conflict = store.commit(late).await.unwrap_err();
    assert!(matches!(conflict, oprc_cp_storage::Error::Conflict { key, .. } if key == "package/a"));
    store.commit(deployment(&registry, "early", "1.1.0")).await.unwrap();
    // The cache may not show the deployment yet: the head has changed, so the deletion retries.
    let error = registry.delete_version("a", "1.1.0", None).await.unwrap_err();
    assert_eq!(reason(&error), "IN_USE");
}

#[tokio::test]
async fn deletes_only_with_a_matching_etag() {
    let registry = registry().await;
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    let (_, tag) = registry.package("a").unwrap();
    publish(&registry, &package("a", "1.1.0", "")).await.unwrap();
    let error = registry.delete_package("a", Some(&tag)).await.unwrap_err();
    assert_eq!(reason(&error), "CHANGED");
    let error = registry.delete_version("a", "1.1.0", Some("other")).await.unwrap_err();
    assert_eq!(reason(&error), "CHANGED");
    let digest = registry.version("a", "1.1.0").unwrap().digest.clone();
    registry.delete_version("a", "1.1.0", Some(&digest)).await.unwrap();
    let (_, now) = registry.package("a").unwrap();
    assert_eq!(now, tag);
    registry.delete_package("a", Some(&tag)).await.unwrap();
}

#[tokio::test]
async fn reports_a_change_during_deletion() {
    let registry = registry().await;
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    let (_, tag) = registry.package("a").unwrap();
    let mut changed = (*registry.version("a", "1.0.0").unwrap()).clone();
    changed.deprecated = Some("no".to_owned());
    let key = version_key("a", "1.0.0");
    let change = Transaction::new().put(key, encode(&changed).unwrap());
    // The cache may not show this yet: the first attempt then conflicts.
    registry.cache.store().commit(registry.reference(change, "a", "1.0.0").unwrap()).await.unwrap();
    let error = registry.delete_package("a", Some(&tag)).await.unwrap_err();
    assert_eq!(reason(&error), "CHANGED");
    registry.version("a", "1.0.0").unwrap();
}

#[tokio::test]
async fn deletes_a_package_of_many_versions_in_batches() {
    let registry = registry().await;
    for batch in 0..4 {
        let versions = (0..30).map(|at| package("a", &format!("1.{batch}.{at}"), ""));
        publish(&registry, &versions.collect::<Vec<_>>().join("---\n")).await.unwrap();
    }
    assert_eq!(registry.count(), (1, 120));
    registry.delete_package("a", None).await.unwrap();
    assert_eq!(registry.cache.store().list("").await.unwrap().entries, []);
}
