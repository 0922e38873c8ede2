//! Detection of optional APIs.

use std::{fmt::Debug, sync::Arc, time::Duration};

use backon::Retryable as _;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client, Resource,
    core::ClusterResourceScope,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;

use super::{Watches, follow, retry_policy};
use crate::{
    cache::optional_apis::{Evidence, OptionalApi, watch_name},
    kinds::Kind,
};

/// Bound on one discovery request.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

impl Watches {
    pub(super) fn set_detected(self: &Arc<Self>, api: &OptionalApi, served: bool) {
        if let Some(kind) = api.children.as_ref().filter(|_| served) {
            self.kind(kind);
        }
        let changed = self.detected.send_if_modified(|detected| {
            let known = (api.detected)(detected);
            std::mem::replace(known, served) != served
        });
        if changed {
            tracing::info!(api = api.group_version(), served, "detected an optional API");
        }
        if let Some(kind) = api.children.as_ref().filter(|_| changed && !served) {
            self.stop_watching(kind);
        }
    }

    fn stop_watching(&self, kind: &Kind) {
        let what = watch_name(kind);
        if let Some(task) = self.running.lock().remove(&what) {
            task.abort();
        }
        self.cache.set_unsynced(&what);
        self.api_health.remove_watch(&what);
        for (key, uid) in self.cache.known_children(kind) {
            self.cache.remove_child(kind, &key, &uid);
        }
    }

    pub(super) fn detect(self: &Arc<Self>, api: &'static OptionalApi) {
        // An API without children only changes what is reported, so it doesn't delay readiness.
        if api.children.is_none() {
            self.cache.set_synced(&api.detection());
        }
        match api.evidence {
            _ if self.namespace.is_some() => self.detect_once(api),
            Evidence::CustomResourceDefinition => {
                self.detect_by::<CustomResourceDefinition>(api, move |it| is_established(it, api));
            }
            Evidence::ApiService => self.detect_by(api, is_available),
        }
    }

    /// Follows the object that says whether an API is served.
    fn detect_by<K>(
        self: &Arc<Self>,
        api: &'static OptionalApi,
        is_served: impl Fn(&K) -> bool + Send + Sync + 'static,
    ) where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        let objects: Api<K> = Api::all(self.client.clone());
        let name = api.evidence_name();
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let (watches, cache) = (Arc::downgrade(self), Arc::clone(&self.cache));
        let what = api.detection();
        self.spawn(&what.clone(), async move {
            let mut served = false;
            follow(objects, config, &what.clone(), |event| {
                let Some(watches) = watches.upgrade() else { return };
                match event {
                    Event::Init => served = false,
                    Event::InitApply(object) => served = is_served(&object),
                    Event::Apply(object) => watches.set_detected(api, is_served(&object)),
                    Event::Delete(_) => watches.set_detected(api, false),
                    Event::InitDone => {
                        watches.set_detected(api, served);
                        cache.set_synced(&what);
                    }
                }
            })
            .await;
        });
    }

    /// A CRM that may not read cluster-scoped objects asks the API server once.
    fn detect_once(self: &Arc<Self>, api: &'static OptionalApi) {
        let (watches, cache) = (Arc::downgrade(self), Arc::clone(&self.cache));
        let (client, what) = (self.client.clone(), api.detection());
        self.spawn(&what.clone(), async move {
            let served = discover(&client, api).await;
            let Some(watches) = watches.upgrade() else { return };
            watches.set_detected(api, served);
            cache.set_synced(&what);
        });
    }
}

/// Whether the objects of a definition are served: the definition exists before they are.
fn is_established(definition: &CustomResourceDefinition, api: &OptionalApi) -> bool {
    let conditions = definition.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let established =
        conditions.into_iter().any(|it| it.type_ == "Established" && it.status == "True");
    established && definition.spec.versions.iter().any(|it| it.served && it.name == api.version)
}

fn is_available(service: &APIService) -> bool {
    let conditions = service.status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "Available" && it.status == "True")
}

/// Whether an API is served, retried until the API server responds.
pub(super) async fn discover(client: &Client, api: &OptionalApi) -> bool {
    let ask = || async {
        let version = api.group_version();
        let resources = client.list_api_group_resources(&version);
        match tokio::time::timeout(DISCOVERY_TIMEOUT, resources).await {
            Ok(Ok(all)) => Ok(all.resources.iter().any(|it| it.name == api.resource)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(false),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no response in time".to_owned()),
        }
    };
    let served = ask.retry(retry_policy()).notify(|error: &String, _| {
        tracing::warn!(api = api.group_version(), error, "API discovery failed, retrying");
    });
    // Retried without limit, so it can't fail.
    served.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cache::optional_apis::OPTIONAL_APIS;

    #[test]
    fn definition_is_served_once_established_in_the_right_version() {
        let knative = &OPTIONAL_APIS[0];
        let definition = |version: &str, served: bool, established: &str| -> Value {
            json!({
                "metadata": {"name": knative.evidence_name()},
                "spec": {
                    "group": knative.group, "scope": "Namespaced",
                    "names": {"kind": "Service", "plural": "services"},
                    "versions": [{"name": version, "served": served, "storage": true}],
                },
                "status": {"conditions": [{"type": "Established", "status": established}]},
            })
        };
        for (object, served) in [
            (definition("v1", true, "True"), true),
            (definition("v1", true, "False"), false),
            (definition("v1", false, "True"), false),
            (definition("v1beta1", true, "True"), false),
        ] {
            let definition = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(is_established(&definition, knative), served, "{object}");
        }
    }

    #[test]
    fn extension_api_is_served_while_it_is_available() {
        for (conditions, served) in [
            (json!([{"type": "Available", "status": "True"}]), true),
            (json!([{"type": "Available", "status": "False"}]), false),
            (json!([]), false),
        ] {
            let service = json!({"metadata": {}, "status": {"conditions": conditions}});
            assert_eq!(is_available(&serde_json::from_value(service).unwrap()), served);
        }
    }
}
