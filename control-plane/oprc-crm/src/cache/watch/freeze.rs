//! The ConfigMap that freezes enforcement. It is optional, and so is the permission to read it.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    runtime::watcher::{self, Event},
};
use tokio::sync::watch;

use super::{Watches, follow_until, has_code};
use crate::cache::Cache;

/// The key whose value freezes enforcement.
const KEY: &str = "frozen";
/// Pause before a ConfigMap that CRM may not read is tried again.
const FORBIDDEN_DELAY: Duration = Duration::from_mins(5);

impl Watches {
    /// Whether a ConfigMap freezes enforcement, now and whenever that changes. CRM isn't ready before
    /// this is known, so that a restart doesn't end a freeze.
    pub fn freeze_switch(&self, namespace: &str, name: &str) -> watch::Receiver<bool> {
        let (frozen, changes) = watch::channel(false);
        let api = Api::namespaced(self.client.clone(), namespace);
        let switch =
            Switch { cache: Arc::clone(&self.cache), what: format!("ConfigMap {name}"), frozen };
        self.spawn(&switch.what.clone(), switch.follow(api, name.to_owned()));
        changes
    }
}

struct Switch {
    cache: Arc<Cache>,
    /// What the watch is called in logs and readiness reports.
    what: String,
    frozen: watch::Sender<bool>,
}

impl Switch {
    async fn follow(self, api: Api<ConfigMap>, name: String) {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut handle = self.handler();
        let mut is_reported = false;
        loop {
            let is_forbidden = |error: &watcher::Error| has_code(error, 403);
            follow_until(&api, &config, &self.what, &mut handle, is_forbidden).await;
            if !std::mem::replace(&mut is_reported, true) {
                let namespace = api.namespace().unwrap_or_default();
                tracing::warn!(
                    namespace,
                    name,
                    "not allowed to read the freeze ConfigMap, retrying"
                );
            }
            self.cache.set_synced(&self.what);
            tokio::time::sleep(FORBIDDEN_DELAY).await;
        }
    }

    /// What was known before the watch failed stays.
    fn handler(&self) -> impl FnMut(Event<ConfigMap>) {
        let mut listed = false;
        move |event| match event {
            Event::Init => listed = false,
            Event::InitApply(found) => listed = is_frozen(&found),
            Event::InitDone => {
                self.set(listed);
                self.cache.set_synced(&self.what);
            }
            Event::Apply(found) => self.set(is_frozen(&found)),
            Event::Delete(_) => self.set(false),
        }
    }

    fn set(&self, frozen: bool) {
        let changed =
            self.frozen.send_if_modified(|before| std::mem::replace(before, frozen) != frozen);
        if changed {
            let what = &self.what;
            let text = if frozen { "enforcement frozen" } else { "enforcement no longer frozen" };
            tracing::info!(what, "{text}");
        }
    }
}

/// A value that is neither `true` nor `false` freezes enforcement, because that is the safe state.
fn is_frozen(found: &ConfigMap) -> bool {
    let value = found.data.as_ref().and_then(|data| data.get(KEY));
    match value.map(|value| value.trim()) {
        None | Some("false") => false,
        Some("true") => true,
        Some(value) => {
            let name = found.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(name, key = KEY, value, "expected true or false, freezing enforcement");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt as _;
    use hyper::{Request, Response, StatusCode};
    use kube::{Client, client::Body};
    use serde_json::json;

    use super::*;

    fn config_map(value: Option<&str>) -> ConfigMap {
        let data = value.map(|value| json!({KEY: value}));
        serde_json::from_value(json!({"metadata": {"name": "freeze"}, "data": data})).unwrap()
    }

    fn switch() -> (Switch, watch::Receiver<bool>) {
        let (frozen, changes) = watch::channel(false);
        let what = "ConfigMap freeze".to_owned();
        (Switch { cache: Arc::default(), what, frozen }, changes)
    }

    #[test]
    fn only_true_and_invalid_values_freeze() {
        for (value, frozen) in [
            (None, false),
            (Some("false"), false),
            (Some("false\n"), false),
            (Some("true"), true),
            (Some(" true\n"), true),
            (Some("yes"), true),
            (Some("False"), true),
            (Some(""), true),
        ] {
            assert_eq!(is_frozen(&config_map(value)), frozen, "{value:?}");
        }
        assert!(!is_frozen(&ConfigMap::default()), "no data at all");
    }

    #[test]
    fn follows_the_config_map() {
        let (switch, changes) = switch();
        let mut handle = switch.handler();
        let mut after = |events: Vec<Event<ConfigMap>>| {
            events.into_iter().for_each(&mut handle);
            *changes.borrow()
        };
        let (on, off) = (config_map(Some("true")), config_map(Some("false")));
        assert!(!after(vec![Event::Init]));
        assert!(!switch.cache.is_synced(&switch.what));
        assert!(after(vec![Event::InitApply(on.clone()), Event::InitDone]));
        assert!(switch.cache.is_synced(&switch.what));
        assert!(!after(vec![Event::Apply(off)]));
        assert!(after(vec![Event::Apply(on.clone())]));
        assert!(after(vec![Event::Init]), "a new list isn't complete");
        assert!(!after(vec![Event::InitDone]), "it is gone");
        assert!(!after(vec![Event::Apply(on.clone()), Event::Delete(on)]));
    }

    #[tokio::test]
    async fn missing_permission_neither_blocks_start_nor_freezes() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            assert!(query.contains("fieldSelector=metadata.name%3Dfreeze"), "{query}");
            let _ = request.into_body().collect().await;
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                "reason": "Forbidden", "message": "no",
            });
            let response = Response::builder().status(StatusCode::FORBIDDEN);
            let body = Body::from(serde_json::to_vec(&status).unwrap());
            Ok::<_, Infallible>(response.body(body).unwrap())
        });
        let (switch, changes) = switch();
        let (cache, what) = (Arc::clone(&switch.cache), switch.what.clone());
        let api = Api::namespaced(Client::new(service, "n"), "n");
        let following = tokio::spawn(switch.follow(api, "freeze".to_owned()));
        let mut synced = cache.sync_changes();
        while !cache.is_synced(&what) {
            synced.changed().await.unwrap();
        }
        assert!(!*changes.borrow());
        following.abort();
    }
}
