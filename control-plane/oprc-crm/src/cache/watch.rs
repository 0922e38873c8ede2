//! The watches that fill the cache: one for each kind, and one for each optional API.

mod detect;

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use backon::BackoffBuilder as _;
use futures::StreamExt as _;
use k8s_openapi::{
    api::core::v1::{Event as CoreEvent, Node, Pod},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{WatchEvent, WatchParams},
    core::{DynamicObject, NamespaceResourceScope},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, ExponentialBackoff},
    },
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinHandle};

use super::{
    ApiHealth, Cache, Detected, Key, Known, Nodes,
    optional_apis::{OPTIONAL_APIS, api_of, watch_name},
};
use crate::{
    decode::{RawClass, decode},
    kinds::{BUILT_IN, CLAIM, Kind},
    reconcile::{
        observe::{Child, FAILED_CREATE_EVENTS, pod_creation_failure, pod_problem},
        render::OWNER,
    },
};

/// Pauses before a failed watch is reopened.
pub fn backoff() -> ExponentialBackoff {
    retry_policy().into()
}

fn retry_policy() -> backon::ExponentialBuilder {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times()
}

/// Pause before everything is listed again.
pub(crate) const RELIST_DELAY: Duration = Duration::from_secs(1);

/// All watches of a process; they end when this is dropped.
pub struct Watches {
    client: Client,
    /// The only namespace that CRM may read; none means all of them.
    namespace: Option<String>,
    cache: Arc<Cache>,
    api_health: ApiHealth,
    nodes: Arc<Nodes>,
    detected: watch::Sender<Detected>,
    running: Mutex<HashMap<String, JoinHandle<()>>>,
}

impl Drop for Watches {
    fn drop(&mut self) {
        for task in self.running.lock().values() {
            task.abort();
        }
    }
}

impl Watches {
    pub fn start(
        client: Client,
        namespace: Option<String>,
        cache: Arc<Cache>,
        api_health: ApiHealth,
        nodes: Arc<Nodes>,
    ) -> Arc<Self> {
        let watches = Arc::new(Self {
            client,
            namespace,
            cache,
            api_health,
            nodes,
            detected: watch::channel(Detected::default()).0,
            running: Mutex::default(),
        });
        watches.classes();
        for kind in BUILT_IN {
            watches.kind(&kind);
        }
        watches.kind(&CLAIM);
        watches.pods();
        watches.events();
        if watches.namespace.is_none() {
            watches.nodes();
        }
        for api in &OPTIONAL_APIS {
            watches.detect(api);
        }
        watches
    }

    /// Which optional APIs are served, now and whenever that changes.
    pub fn detected(&self) -> watch::Receiver<Detected> {
        self.detected.subscribe()
    }

    /// Watches that haven't completed their initial list.
    pub fn missing(&self) -> Vec<String> {
        let running = self.running.lock();
        let mut missing: Vec<String> =
            running.keys().filter(|what| !self.cache.is_synced(what)).cloned().collect();
        missing.sort();
        missing
    }

    fn dynamic(&self, kind: &Kind) -> Api<DynamicObject> {
        let resource = kind.resource();
        match &self.namespace {
            None => Api::all_with(self.client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    fn spawn(&self, what: &str, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        if !running.contains_key(what) {
            running.insert(what.to_owned(), tokio::spawn(task));
        }
    }

    /// All objects of a kind that CRM may read.
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &self.namespace {
            None => Api::all(self.client.clone()),
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
        }
    }

    fn classes(&self) {
        let api: Api<RawClass> = self.api();
        let cache = Arc::clone(&self.cache);
        let what = RawClass::plural(&()).into_owned();
        self.spawn(&what.clone(), async move {
            let mut unseen = Known::new();
            follow(api, watcher::Config::default(), &what.clone(), |event| match event {
                Event::Init => unseen = cache.known_classes(),
                Event::InitApply(object) => {
                    mark_seen(&mut unseen, &object);
                    cache.put_class(decode(&object));
                }
                Event::Apply(object) => cache.put_class(decode(&object)),
                Event::Delete(object) => cache.remove_class(&key(&object), uid(&object)),
                Event::InitDone => {
                    for (key, uid) in std::mem::take(&mut unseen) {
                        cache.remove_class(&key, &uid);
                    }
                    cache.set_synced(&what);
                }
            })
            .await;
        });
    }

    /// Watches a kind unless it is watched already.
    fn kind(self: &Arc<Self>, kind: &Kind) {
        let (api, cache, kind) = (self.dynamic(kind), Arc::clone(&self.cache), kind.clone());
        let what = watch_name(&kind);
        // A CRM that may not read definitions learns only from the watch itself that they are gone.
        let optional = api_of(&kind)
            .filter(|_| self.namespace.is_some())
            .map(|api| (api, self.client.clone(), Arc::downgrade(self)));
        // Claims are many, and those of others don't matter. Objects of the other kinds matter
        // whoever owns them, because one may have the name that a class needs.
        let config = if kind == CLAIM {
            watcher::Config::default().labels(OWNER)
        } else {
            watcher::Config::default()
        };
        self.spawn(&what.clone(), async move {
            let mut unseen = Known::new();
            let mut handle = |event: Event<DynamicObject>| match event {
                Event::Init => unseen = cache.known_children(&kind),
                Event::InitApply(object) => {
                    mark_seen(&mut unseen, &object);
                    cache.put_child(Child::of(&kind, &object));
                }
                Event::Apply(object) => cache.put_child(Child::of(&kind, &object)),
                Event::Delete(object) => cache.remove_child(&kind, &key(&object), uid(&object)),
                Event::InitDone => {
                    for (key, uid) in std::mem::take(&mut unseen) {
                        cache.remove_child(&kind, &key, &uid);
                    }
                    cache.set_synced(&what);
                }
            };
            let Some((api_entry, client, watches)) = optional else {
                return follow(api, config, &what, handle).await;
            };
            loop {
                follow_until(&api, &config, &what, &mut handle, is_missing).await;
                if !detect::discover(&client, api_entry).await {
                    break;
                }
                tokio::time::sleep(RELIST_DELAY).await;
            }
            if let Some(watches) = watches.upgrade() {
                watches.set_detected(api_entry, false);
            }
        });
    }

    fn pods(&self) {
        let api: Api<Pod> = self.api();
        let cache = Arc::clone(&self.cache);
        self.spawn("pods", async move {
            let mut listed = HashSet::new();
            let put = |pod: &Pod| {
                let (namespace, name) = key(pod);
                cache.put_pod(&namespace, &name, pod_problem(pod, Timestamp::now()));
            };
            follow(api, watcher::Config::default().labels(OWNER), "pods", |event| match event {
                Event::Init => listed.clear(),
                Event::InitApply(pod) => {
                    listed.insert(key(&pod));
                    put(&pod);
                }
                Event::Apply(pod) => put(&pod),
                Event::Delete(pod) => {
                    let (namespace, name) = key(&pod);
                    cache.put_pod(&namespace, &name, None);
                }
                Event::InitDone => {
                    cache.retain_pods(&listed);
                    cache.set_synced("pods");
                }
            })
            .await;
        });
    }

    /// Events that say why pods of a StatefulSet or Job can't be created. The watch starts at
    /// version 0 each time: the API server soon drops the history of Events, and listing them on
    /// each reopening would cost requests while nothing happens.
    fn events(&self) {
        let api: Api<CoreEvent> = self.api();
        let cache = Arc::clone(&self.cache);
        self.spawn("events", async move {
            let params = WatchParams::default().fields(FAILED_CREATE_EVENTS);
            let mut pauses = retry_policy().build();
            loop {
                let pause = match api.watch(&params, "0").await {
                    Ok(events) => {
                        cache.set_synced("events");
                        // Events deleted in between aren't reported.
                        cache.prune_pod_creation_failures();
                        handle_events(&cache, events).await;
                        pauses = retry_policy().build();
                        RELIST_DELAY
                    }
                    Err(error) => {
                        tracing::debug!(%error, "watch on Events failed, retrying");
                        pauses.next().unwrap_or(RELIST_DELAY)
                    }
                };
                tokio::time::sleep(pause).await;
            }
        });
    }

    fn nodes(&self) {
        let api: Api<Node> = Api::all(self.client.clone());
        let (cache, nodes) = (Arc::clone(&self.cache), Arc::clone(&self.nodes));
        self.spawn("nodes", async move {
            let mut listed = HashSet::new();
            follow(api, watcher::Config::default(), "nodes", |event| match event {
                Event::Init => listed.clear(),
                Event::InitApply(node) => {
                    listed.insert(key(&node).1);
                    nodes.put(&node);
                }
                Event::Apply(node) => nodes.put(&node),
                Event::Delete(node) => nodes.remove(&key(&node).1),
                Event::InitDone => {
                    nodes.retain(&listed);
                    cache.set_synced("nodes");
                }
            })
            .await;
        });
    }
}

async fn handle_events(
    cache: &Cache,
    events: impl futures::Stream<Item = kube::Result<WatchEvent<CoreEvent>>>,
) {
    let mut events = std::pin::pin!(events);
    while let Some(Ok(event)) = events.next().await {
        match event {
            WatchEvent::Added(it) | WatchEvent::Modified(it) => {
                if let Some(failure) = pod_creation_failure(&it) {
                    cache.put_pod_creation_failure(&key(&it).0, &failure);
                }
            }
            WatchEvent::Deleted(it) => {
                if let Some(failure) = pod_creation_failure(&it) {
                    cache.remove_pod_creation_failure(&failure.uid);
                }
            }
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
    }
}

/// Follows a watch for ever, over every failure.
async fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    what: &str,
    mut handle: impl FnMut(Event<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    follow_until(&api, &config, what, &mut handle, |_| false).await;
}

/// Follows a watch until a failure for which `ends` holds.
async fn follow_until<K>(
    api: &Api<K>,
    config: &watcher::Config,
    what: &str,
    handle: &mut impl FnMut(Event<K>),
    ends: impl Fn(&watcher::Error) -> bool,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    loop {
        let mut events = watcher::watcher(api.clone(), config.clone()).backoff(backoff()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => handle(event),
                Err(error) => {
                    tracing::debug!(what, %error, "watch failed, retrying");
                    if ends(&error) {
                        return;
                    }
                    // The watcher would retry with the same expired version for ever.
                    if is_expired(&error) {
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(RELIST_DELAY).await;
    }
}

/// Whether the API server no longer has the version that a watch would continue from.
pub(crate) fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// Whether the kind isn't served.
fn is_missing(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    matches!(
        error,
        InitialListFailed(kube::Error::Api(status))
            | WatchStartFailed(kube::Error::Api(status))
            | WatchFailed(kube::Error::Api(status))
            if status.code == 404
    )
}

/// Removes a listed object from those that may have been deleted.
fn mark_seen(unseen: &mut Known, object: &impl Resource) {
    let key = key(object);
    if unseen.get(&key).is_some_and(|known| known == uid(object)) {
        unseen.remove(&key);
    }
}

fn uid(object: &impl Resource) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

fn key(object: &impl Resource) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
