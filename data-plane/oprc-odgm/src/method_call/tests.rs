//! Calls whose first attempt reads an old state from the own member of a replicated store.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{Json, Router, http::StatusCode, response::IntoResponse as _, routing::post};
use oprc_cp_storage::{Backend, Entry, Lease, Page, Result as StoreResult, Revision, Store, Watch};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::{Expected, ObjectId, class::Access};

/// A store whose member may lag behind.
struct Lagging {
    store: Store,
    /// What the member has.
    member: Arc<Mutex<Option<Store>>>,
}

#[async_trait]
impl Backend for Lagging {
    async fn get(&self, key: &str) -> StoreResult<Option<Entry>> {
        self.store.get(key).await
    }
    async fn get_many(&self, keys: &[String]) -> StoreResult<Vec<Option<Entry>>> {
        self.store.get_many(keys).await
    }
    async fn get_many_stale(&self, keys: &[String]) -> StoreResult<Vec<Option<Entry>>> {
        let member = self.member.lock().clone();
        member.as_ref().unwrap_or(&self.store).get_many(keys).await
    }
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Page> {
        self.store.range(prefix, after, limit).await
    }
    async fn commit(&self, transaction: Transaction) -> StoreResult<Revision> {
        self.store.commit(transaction).await
    }
    async fn watch(&self, prefix: &str, after: Option<Revision>) -> StoreResult<Watch> {
        self.store.watch(prefix, after).await
    }
    async fn acquire_lease(&self, name: &str, identity: &str) -> StoreResult<Lease> {
        self.store.acquire_lease(name, identity).await
    }
    async fn close(&self) {}
}

/// A grid whose member lags behind from now on: it has only the object `a` with the count 0.
async fn lagging() -> Grid {
    let add = async |Json(call): Json<Value>| {
        let count = call["object"]["state"]["count"].as_i64().unwrap() + 1;
        Json(json!({"object": {"state": {"count": count}}, "result": count}))
    };
    let look = async |Json(call): Json<Value>| match call["object"]["state"]["count"].as_i64() {
        Some(0) => (StatusCode::CONFLICT, "nothing is left").into_response(),
        count => Json(json!({"result": count})).into_response(),
    };
    let router = Router::new().route("/add", post(add)).route("/look", post(look));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    let method = |name: &str| json!({"url": format!("{url}/{name}")});
    let class = json!({"name": "counter", "collections": ["Counter"],
        "methods": {"add": method("add"), "look": method("look")}});
    let class: Class = serde_json::from_value(class).unwrap();
    let (store, member) = (Store::memory(), Arc::new(Mutex::new(None)));
    let backend = Lagging { store: store.clone(), member: member.clone() };
    let grid = Grid::new(Store::new(backend), class);
    let id = ObjectId::parse("a").unwrap();
    let state = State::from_iter([("count".to_owned(), json!(0))]);
    grid.put(None, &id, state.clone(), Expected::Absent).await.unwrap();
    // Stores that begin alike have the same versions.
    let old = Store::memory();
    let key = Grid::key(&grid.class(), None, &id).unwrap();
    let entry = store.get(&key).await.unwrap().unwrap();
    assert_eq!(old.commit(Transaction::new().put(&key, entry.value)).await.unwrap(), entry.version);
    *member.lock() = Some(old);
    grid
}

async fn call(
    grid: &Grid,
    method: &str,
    key: Option<&str>,
    first: Source,
) -> Result<Outcome, Error> {
    let id = ObjectId::parse("a").unwrap();
    let mut call = Invocation::new(id, method, json!({}), Access::Internal);
    call.idempotency_key = key.map(str::to_owned);
    let class = grid.class();
    let method = &class.methods[method];
    let deadline = deadline(&call, method.timeout());
    let begun = MethodCall { class: &class, method, call: &call, id: new_id(), deadline };
    let key = Grid::key(&class, None, &call.id).unwrap();
    grid.call_from(&begun, &key, first).await.map(|it| it.0)
}

#[tokio::test]
async fn an_old_state_is_not_changed_and_leads_to_no_answer() {
    let grid = lagging().await;
    let refused = call(&grid, "look", None, Source::OwnMember).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { status: 409, .. }), "the state is the newest");
    for count in 1..3 {
        let added = call(&grid, "add", None, Source::OwnMember).await.unwrap();
        assert_eq!(added.result, json!(count));
        // Refused in the old state.
        let seen = call(&grid, "look", None, Source::OwnMember).await.unwrap();
        assert_eq!((seen.result, seen.version), (json!(count), added.version));
    }
    grid.delete(None, &ObjectId::parse("a").unwrap(), Expected::Exists).await.unwrap();
    for method in ["add", "look"] {
        let missing = call(&grid, method, None, Source::OwnMember).await.unwrap_err();
        assert_eq!(missing, Error::NotFound("a".to_owned()));
    }
}

#[tokio::test]
async fn a_result_that_the_own_member_misses_is_repeated() {
    let grid = lagging().await;
    let first = call(&grid, "add", Some("key"), Source::Store).await.unwrap();
    let again = call(&grid, "add", Some("key"), Source::OwnMember).await.unwrap();
    assert!(!first.repeated && again.repeated);
    assert_eq!(again.result, first.result);
    let seen = call(&grid, "look", None, Source::Store).await.unwrap();
    assert_eq!(seen.result, json!(1));
}
