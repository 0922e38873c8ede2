//! What may be deleted, and what stands in the way.

use oprc_cp_storage::Transaction;

use super::*;
use crate::records;

fn deployment(registry: &Registry, key: &str, version: &str) -> Transaction {
    let record = serde_json::json!({"plan": {"package": "a", "version": version}});
    let transaction = Transaction::new().put(records::deployment(key), record.to_string());
    registry.hold(transaction, "a", version).unwrap()
}

#[tokio::test]
async fn what_a_package_depends_on_stays() {
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
    assert_eq!(registry.inner.store.list("").await.unwrap().entries, []);
}

#[tokio::test]
async fn what_a_deployment_uses_stays_until_it_is_gone() {
    let registry = registry().await;
    let store = registry.inner.store.clone();
    for version in ["1.0.0", "1.1.0"] {
        publish(&registry, &package("a", version, "")).await.unwrap();
    }
    let revision = store.commit(deployment(&registry, "prod", "1.0.0")).await.unwrap();
    registry.inner.followed.wait(revision).await;
    let error = registry.delete_version("a", "1.0.0", None).await.unwrap_err();
    assert!(error.to_string().contains("deployment prod (uses 1.0.0)"), "{error}");
    registry.delete_version("a", "1.1.0", None).await.unwrap();
    // Not even the index has seen this yet.
    store.commit(Transaction::new().delete("deployment/prod")).await.unwrap();
    registry.delete_version("a", "1.0.0", None).await.unwrap();
}

#[tokio::test]
async fn of_a_user_and_a_deleter_one_is_told() {
    let registry = registry().await;
    let store = registry.inner.store.clone();
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    publish(&registry, &package("a", "1.1.0", "")).await.unwrap();
    // Used by what the index hasn't seen when the deletion begins: both are ready at once.
    let late = deployment(&registry, "late", "1.0.0");
    registry.delete_version("a", "1.0.0", None).await.unwrap();
    let refused = store.commit(late).await.unwrap_err();
    assert!(matches!(refused, oprc_cp_storage::Error::Conflict { key, .. } if key == "package/a"));
    store.commit(deployment(&registry, "early", "1.1.0")).await.unwrap();
    // Without a wait: the head has changed, so the deletion looks again.
    let error = registry.delete_version("a", "1.1.0", None).await.unwrap_err();
    assert_eq!(reason(&error), "IN_USE");
}

#[tokio::test]
async fn only_what_was_meant_is_deleted() {
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
async fn what_changes_while_it_is_deleted_is_told() {
    let registry = registry().await;
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    let (_, tag) = registry.package("a").unwrap();
    let mut changed = (*registry.version("a", "1.0.0").unwrap()).clone();
    changed.deprecated = Some("no".to_owned());
    let key = records::version("a", "1.0.0");
    let change = Transaction::new().put(key, records::write(&changed).unwrap());
    // Not even the index has seen this yet: the first attempt is refused by the store.
    registry.inner.store.commit(registry.hold(change, "a", "1.0.0").unwrap()).await.unwrap();
    let error = registry.delete_package("a", Some(&tag)).await.unwrap_err();
    assert_eq!(reason(&error), "CHANGED");
    registry.version("a", "1.0.0").unwrap();
}

#[tokio::test]
async fn a_package_of_many_versions_goes_in_parts() {
    let registry = registry().await;
    for batch in 0..4 {
        let versions = (0..30).map(|at| package("a", &format!("1.{batch}.{at}"), ""));
        publish(&registry, &versions.collect::<Vec<_>>().join("---\n")).await.unwrap();
    }
    assert_eq!(registry.count(), (1, 120));
    registry.delete_package("a", None).await.unwrap();
    assert_eq!(registry.inner.store.list("").await.unwrap().entries, []);
}
