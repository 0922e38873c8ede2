//! Watches: one for each kind, begun at the start or whenever a kind appears.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use backon::{BackoffBuilder as _, Retryable as _};
use futures::StreamExt as _;
use k8s_openapi::{
    api::core::v1::{Event as CoreEvent, Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
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

use super::{Cache, Contact, Key, Known, Nodes};
use crate::{
    kinds::{BUILT_IN, CLAIM, KNATIVE_SERVICE, Kind},
    observed::{RawClass, parse},
    reconcile::{
        observe::{Child, EVENTS, pod_trouble, unmade},
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
    contact: Contact,
    nodes: Arc<Nodes>,
    /// Whether Knative Serving is there.
    knative: watch::Sender<bool>,
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
    /// Begins to watch everything that every cluster has.
    pub fn begin(
        client: Client,
        namespace: Option<String>,
        cache: Arc<Cache>,
        contact: Contact,
        nodes: Arc<Nodes>,
    ) -> Arc<Self> {
        let (knative, _) = watch::channel(false);
        let running = Mutex::default();
        let watches = Arc::new(Self { client, namespace, cache, contact, nodes, knative, running });
        watches.classes();
        for kind in BUILT_IN {
            watches.kind(&kind);
        }
        watches.kind(&CLAIM);
        watches.pods();
        watches.events();
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
        let mut running = self.running.lock();
        if let Some(task) = running.remove(KNATIVE) {
            task.abort();
        }
        drop(running);
        self.cache.set_unfilled(KNATIVE);
        self.contact.forget(KNATIVE);
        for (key, uid) in self.cache.known_children(&KNATIVE_SERVICE) {
            self.cache.remove_child(&KNATIVE_SERVICE, &key, &uid);
        }
    }

    /// What hasn't been told in full yet.
    pub fn missing(&self) -> Vec<String> {
        let running = self.running.lock();
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
        let mut running = self.running.lock();
        if !running.contains_key(what) {
            running.insert(what.to_owned(), tokio::spawn(task));
        }
    }

    /// All of a kind that we may see.
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
    pub fn kind(self: &Arc<Self>, kind: &Kind) {
        let (api, cache, kind) = (self.dynamic(kind), Arc::clone(&self.cache), kind.clone());
        let what =
            if kind == KNATIVE_SERVICE { KNATIVE.to_owned() } else { kind.plural.to_string() };
        // Who may not see definitions isn't told that Knative goes but by the watch itself.
        let may_go = (kind == KNATIVE_SERVICE && self.namespace.is_some())
            .then(|| (self.client.clone(), Arc::downgrade(self)));
        // Claims are many and belong to everybody; the others matter whoever they belong to, as
        // they may have a name that a class needs.
        let config = if kind == CLAIM {
            watcher::Config::default().labels(OWNER)
        } else {
            watcher::Config::default()
        };
        self.spawn(&what.clone(), async move {
            let mut unseen = Known::new();
            let heed = |event: Event<DynamicObject>| match event {
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
            };
            let Some((client, watches)) = may_go else {
                return follow(api, config, &what, heed).await;
            };
            let mut heed = heed;
            loop {
                follow_until(&api, &config, &what, &mut heed, is_missing).await;
                if !has_knative(&client).await {
                    break;
                }
                tokio::time::sleep(ANEW).await;
            }
            if let Some(watches) = watches.upgrade() {
                watches.lost_knative();
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
                cache.put_pod(&namespace, &name, pod_trouble(pod, Timestamp::now()));
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

    /// Why pods can't be made that no Deployment asks for. All that there is to be told is told
    /// whenever the watch is opened: the API server soon forgets where one on Events was, and to
    /// list them each time would be to ask while nothing happens.
    fn events(&self) {
        let api: Api<CoreEvent> = self.api();
        let cache = Arc::clone(&self.cache);
        self.spawn("events", async move {
            let params = WatchParams::default().fields(EVENTS);
            let mut pauses = patience().build();
            loop {
                let pause = match api.watch(&params, "0").await {
                    Ok(events) => {
                        cache.set_filled("events");
                        // Those that went while nobody watched aren't told of.
                        cache.forget_unmade();
                        heed_events(&cache, events).await;
                        pauses = patience().build();
                        ANEW
                    }
                    Err(error) => {
                        tracing::debug!(%error, "Events can't be watched yet");
                        pauses.next().unwrap_or(ANEW)
                    }
                };
                tokio::time::sleep(pause).await;
            }
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
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
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
                    Event::InitApply(definition) | Event::Apply(definition) => {
                        there = is_served(&definition);
                        if there {
                            watches.found_knative();
                        } else {
                            watches.lost_knative();
                        }
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

    /// Who may not see definitions asks once whether there is Knative, until there is an answer.
    fn groups(self: &Arc<Self>) {
        let (watches, cache) = (Arc::downgrade(self), Arc::clone(&self.cache));
        let client = self.client.clone();
        self.spawn("groups", async move {
            let there = has_knative(&client).await;
            let Some(watches) = watches.upgrade() else { return };
            if there {
                watches.found_knative();
            }
            cache.set_filled("groups");
        });
    }
}

/// Heeds Events for as long as they are told.
async fn heed_events(
    cache: &Cache,
    events: impl futures::Stream<Item = kube::Result<WatchEvent<CoreEvent>>>,
) {
    let mut events = std::pin::pin!(events);
    while let Some(Ok(event)) = events.next().await {
        match event {
            WatchEvent::Added(it) | WatchEvent::Modified(it) => {
                if let Some(unmade) = unmade(&it) {
                    cache.put_unmade(&key(&it).0, &unmade);
                }
            }
            WatchEvent::Deleted(it) => {
                if let Some(unmade) = unmade(&it) {
                    cache.remove_unmade(&unmade.uid);
                }
            }
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
    }
}

/// Whether objects of Knative's can be asked for: a definition is there before what it defines is.
fn is_served(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let established =
        conditions.into_iter().any(|it| it.type_ == "Established" && it.status == "True");
    let version = &*KNATIVE_SERVICE.version;
    established && definition.spec.versions.iter().any(|it| it.served && it.name == version)
}

/// Whether there is Knative, asked until there is an answer.
async fn has_knative(client: &Client) -> bool {
    let ask = || async {
        let version = KNATIVE_SERVICE.api_version();
        let asked = client.list_api_group_resources(&version);
        match tokio::time::timeout(Duration::from_secs(10), asked).await {
            Ok(Ok(all)) => Ok(all.resources.iter().any(|it| it.name == *KNATIVE_SERVICE.plural)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(false),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer".to_owned()),
        }
    };
    let there = ask.retry(patience()).notify(|error: &String, _| {
        tracing::warn!(error, "whether there is Knative isn't known yet");
    });
    // Retried for ever: it can't fail.
    there.await.unwrap_or_default()
}

/// Follows a watch for ever, over every break.
async fn follow<K>(api: Api<K>, config: watcher::Config, what: &str, mut heed: impl FnMut(Event<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    follow_until(&api, &config, what, &mut heed, |_| false).await;
}

/// The same, but for a break that is the end.
async fn follow_until<K>(
    api: &Api<K>,
    config: &watcher::Config,
    what: &str,
    heed: &mut impl FnMut(Event<K>),
    ends: impl Fn(&watcher::Error) -> bool,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    loop {
        let mut events = watcher::watcher(api.clone(), config.clone()).backoff(backoff()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => heed(event),
                Err(error) => {
                    tracing::debug!(what, %error, "a watch broke; it is opened again");
                    if ends(&error) {
                        return;
                    }
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

/// Whether there is no such kind.
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
