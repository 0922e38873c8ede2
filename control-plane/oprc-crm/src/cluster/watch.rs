//! Watches: one for each kind, begun at the start or whenever a kind appears.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::Retryable as _;
use futures::StreamExt as _;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    core::{DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, ExponentialBackoff},
    },
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinHandle};

use super::{Cache, Key, Known, Nodes};
use crate::{
    kinds::{BUILT_IN, CLAIM, KNATIVE_SERVICE, Kind},
    observed::{RawClass, parse},
    reconcile::{
        observe::{Child, pod_trouble},
        render::OWNER,
    },
};

/// How long is waited before a watch that broke is opened again.
pub fn backoff() -> ExponentialBackoff {
    patience().into()
}

fn patience() -> backon::ExponentialBuilder {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times()
}

/// How long is waited before everything is listed anew.
pub(crate) const ANEW: Duration = Duration::from_secs(1);
/// What the watch on Knative Services is called: Services are something else.
const KNATIVE: &str = "knative services";

/// All watches of a process; they end when this is dropped.
pub struct Watches {
    client: Client,
    /// The only namespace that we may see, where there is one.
    namespace: Option<String>,
    cache: Arc<Cache>,
    nodes: Arc<Nodes>,
    /// Whether Knative Serving is there.
    knative: watch::Sender<bool>,
    running: Mutex<HashMap<String, JoinHandle<()>>>,
}

impl Drop for Watches {
    fn drop(&mut self) {
        for task in self.running.lock().unwrap_or_else(PoisonError::into_inner).values() {
            task.abort();
        }
    }
}

impl Watches {
    /// Begins to watch everything that every cluster has.
    pub fn begin(
        client: Client,
        namespace: Option<String>,
        cache: Arc<Cache>,
        nodes: Arc<Nodes>,
    ) -> Arc<Self> {
        let (knative, _) = watch::channel(false);
        let running = Mutex::default();
        let watches = Arc::new(Self { client, namespace, cache, nodes, knative, running });
        watches.classes();
        for kind in BUILT_IN {
            watches.kind(&kind);
        }
        watches.kind(&CLAIM);
        watches.pods();
        if watches.namespace.is_none() {
            watches.node_facts();
            watches.definitions();
        } else {
            watches.groups();
        }
        watches
    }

    /// Whether Knative Serving is there, now and whenever that changes.
    pub fn knative(&self) -> watch::Receiver<bool> {
        self.knative.subscribe()
    }

    fn found_knative(self: &Arc<Self>) {
        self.kind(&KNATIVE_SERVICE);
        self.knative.send_if_modified(|known| !std::mem::replace(known, true));
    }

    fn lost_knative(&self) {
        if !self.knative.send_if_modified(|known| std::mem::replace(known, false)) {
            return;
        }
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = running.remove(KNATIVE) {
            task.abort();
        }
        drop(running);
        self.cache.set_unfilled(KNATIVE);
        for (key, uid) in self.cache.known_children(&KNATIVE_SERVICE) {
            self.cache.remove_child(&KNATIVE_SERVICE, &key, &uid);
        }
    }

    /// What hasn't been told in full yet.
    pub fn missing(&self) -> Vec<String> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: Vec<String> =
            running.keys().filter(|what| !self.cache.is_filled(what)).cloned().collect();
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
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if !running.contains_key(what) {
            running.insert(what.to_owned(), tokio::spawn(task));
        }
    }

    fn classes(&self) {
        let api: Api<RawClass> = match &self.namespace {
            None => Api::all(self.client.clone()),
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
        };
        let cache = Arc::clone(&self.cache);
        let what = RawClass::plural(&()).into_owned();
        self.spawn(&what.clone(), async move {
            let mut unseen = Known::new();
            follow(api, watcher::Config::default(), &what.clone(), |event| match event {
                Event::Init => unseen = cache.known_classes(),
                Event::InitApply(object) => {
                    see(&mut unseen, &object);
                    cache.put_class(parse(&object));
                }
                Event::Apply(object) => cache.put_class(parse(&object)),
                Event::Delete(object) => cache.remove_class(&key(&object), uid(&object)),
                Event::InitDone => {
                    for (key, uid) in std::mem::take(&mut unseen) {
                        cache.remove_class(&key, &uid);
                    }
                    cache.set_filled(&what);
                }
            })
            .await;
        });
    }

    /// Begins to watch a kind, unless it is watched already.
    pub fn kind(&self, kind: &Kind) {
        let (api, cache, kind) = (self.dynamic(kind), Arc::clone(&self.cache), kind.clone());
        let what =
            if kind == KNATIVE_SERVICE { KNATIVE.to_owned() } else { kind.plural.to_string() };
        // Claims are many and belong to everybody; the others matter whoever they belong to, as
        // they may have a name that a class needs.
        let config = if kind == CLAIM {
            watcher::Config::default().labels(OWNER)
        } else {
            watcher::Config::default()
        };
        self.spawn(&what.clone(), async move {
            let mut unseen = Known::new();
            follow(api, config, &what.clone(), |event| match event {
                Event::Init => unseen = cache.known_children(&kind),
                Event::InitApply(object) => {
                    see(&mut unseen, &object);
                    cache.put_child(Child::of(&kind, &object));
                }
                Event::Apply(object) => cache.put_child(Child::of(&kind, &object)),
                Event::Delete(object) => cache.remove_child(&kind, &key(&object), uid(&object)),
                Event::InitDone => {
                    for (key, uid) in std::mem::take(&mut unseen) {
                        cache.remove_child(&kind, &key, &uid);
                    }
                    cache.set_filled(&what);
                }
            })
            .await;
        });
    }

    fn pods(&self) {
        let api: Api<Pod> = match &self.namespace {
            None => Api::all(self.client.clone()),
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
        };
        let cache = Arc::clone(&self.cache);
        self.spawn("pods", async move {
            let mut listed = HashSet::new();
            let put = |pod: &Pod| {
                let (namespace, name) = key(pod);
                cache.put_pod(&namespace, &name, pod_trouble(pod));
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
                    cache.set_filled("pods");
                }
            })
            .await;
        });
    }

    fn node_facts(&self) {
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
                    cache.set_filled("nodes");
                }
            })
            .await;
        });
    }

    /// Knative may come, and go, while we run.
    fn definitions(self: &Arc<Self>) {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(self.client.clone());
        let name = format!("{}.{}", KNATIVE_SERVICE.plural, KNATIVE_SERVICE.group);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let watches = Arc::downgrade(self);
        let cache = Arc::clone(&self.cache);
        self.spawn("definitions", async move {
            let mut there = false;
            follow(api, config, "definitions", |event| {
                let Some(watches) = watches.upgrade() else { return };
                match event {
                    Event::Init => there = false,
                    Event::InitApply(_) | Event::Apply(_) => {
                        there = true;
                        watches.found_knative();
                    }
                    Event::Delete(_) => watches.lost_knative(),
                    Event::InitDone => {
                        if !there {
                            watches.lost_knative();
                        }
                        cache.set_filled("definitions");
                    }
                }
            })
            .await;
        });
    }

    /// Who may not see definitions asks once which groups there are, until there is an answer.
    fn groups(self: &Arc<Self>) {
        let (watches, cache) = (Arc::downgrade(self), Arc::clone(&self.cache));
        let client = self.client.clone();
        self.spawn("groups", async move {
            let ask = || async {
                tokio::time::timeout(Duration::from_secs(10), client.list_api_groups())
                    .await
                    .map_err(|_| "no answer".to_owned())?
                    .map_err(|error| error.to_string())
            };
            let groups = ask.retry(patience()).notify(|error: &String, _| {
                tracing::warn!(error, "whether there is Knative isn't known yet");
            });
            // Retried for ever: it can't fail.
            let Ok(groups) = groups.await else { return };
            let Some(watches) = watches.upgrade() else { return };
            if groups.groups.iter().any(|group| group.name == *KNATIVE_SERVICE.group) {
                watches.found_knative();
            }
            cache.set_filled("groups");
        });
    }
}

/// Follows a watch for ever, over every break.
async fn follow<K>(api: Api<K>, config: watcher::Config, what: &str, mut heed: impl FnMut(Event<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    loop {
        let mut events = watcher::watcher(api.clone(), config.clone()).backoff(backoff()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => heed(event),
                Err(error) => {
                    tracing::debug!(what, %error, "a watch broke; it is opened again");
                    // The watcher would ask for the same version for ever.
                    if is_expired(&error) {
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(ANEW).await;
    }
}

/// Whether a server refuses to open a watch where it was, as it has forgotten what came since.
pub(crate) fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// A list has told of an object.
fn see(unseen: &mut Known, object: &impl Resource) {
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
