//! The watches that fill the cache: one for each kind, and one for each optional API.

mod detect;
mod freeze;

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use backon::BackoffBuilder as _;
use futures::StreamExt as _;
use k8s_openapi::{
    api::core::v1::{Event as CoreEvent, Node, Pod},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{WatchEvent, WatchParams},
    core::{DynamicObject, NamespaceScope, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, ExponentialBackoff},
    },
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle};

use super::{
    ApiHealth, Cache, Detected, Key, Known, Nodes, PodRecord,
    optional_apis::{OPTIONAL_APIS, api_of, watch_name},
};
use crate::{
    decode::{RawClass, decode},
    kinds::{BUILT_IN, CLAIM, Kind, SECRET},
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
    running: Mutex<BTreeMap<String, JoinHandle<()>>>,
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
        reads_metrics: bool,
    ) -> Arc<Self> {
        let watches = Arc::new(Self {
            client,
            namespace,
            cache,
            api_health,
            nodes,
            detected: watch::Sender::default(),
            running: Mutex::default(),
        });
        watches.classes();
        for kind in BUILT_IN {
            watches.kind(&kind);
        }
        watches.kind(&CLAIM);
        watches.secrets();
        watches.pods();
        watches.events();
        if watches.namespace.is_none() {
            watches.nodes();
        }
        for api in OPTIONAL_APIS.iter().filter(|api| reads_metrics || !api.is_for_metrics()) {
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
        running.keys().filter(|what| !self.cache.is_synced(what)).cloned().collect()
    }

    fn spawn(&self, what: &str, task: impl Future<Output = ()> + Send + 'static) {
        self.running.lock().entry(what.to_owned()).or_insert_with(|| tokio::spawn(task));
    }

    /// All objects of a kind that CRM may read.
    fn api<K: Resource>(&self, resource: &K::DynamicType) -> Api<K>
    where
        K::Scope: NamespaceScope,
    {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        Api::all_with(self.client.clone(), resource).constrain(namespace)
    }

    fn classes(&self) {
        let (api, cache) = (self.api(&()), Arc::clone(&self.cache));
        let what = RawClass::plural(&());
        self.spawn(&what.clone(), async move {
            let handle = mirror(
                (&cache, &what),
                || cache.known_classes(),
                |class: &RawClass| cache.put_class(decode(class)),
                |key, uid| cache.remove_class(key, uid),
            );
            follow(api, watcher::Config::default(), &what, handle).await;
        });
    }

    /// Watches a kind unless it is watched already.
    fn kind(self: &Arc<Self>, kind: &Kind) {
        let api: Api<DynamicObject> = self.api(&kind.resource());
        let (cache, kind) = (Arc::clone(&self.cache), kind.clone());
        let what = watch_name(&kind);
        // A CRM that may not read definitions learns only from the watch itself that they are gone.
        let optional = api_of(&kind)
            .filter(|_| self.namespace.is_some())
            .map(|api| (api, self.client.clone(), Arc::downgrade(self)));
        // Objects of most kinds matter whoever owns them, because one may have the name that a class
        // needs.
        let label_selector = kind.is_watched_by_label().then(|| OWNER.to_owned());
        let config = watcher::Config { label_selector, ..watcher::Config::default() };
        self.spawn(&what.clone(), async move {
            let mut handle = mirror(
                (&cache, &what),
                || cache.known_children(&kind),
                |object: &DynamicObject| cache.put_child(Child::of(&kind, object)),
                |key, uid| cache.remove_child(&kind, key, uid),
            );
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

    /// Secrets of data grids, without their data.
    fn secrets(&self) {
        let api = self.api(&SECRET.resource());
        let (cache, what) = (Arc::clone(&self.cache), watch_name(&SECRET));
        self.spawn(&what.clone(), async move {
            let handle = mirror(
                (&cache, &what),
                || cache.known_children(&SECRET),
                |object: &PartialObjectMeta<DynamicObject>| {
                    let (types, metadata) = (object.types.clone(), object.metadata.clone());
                    let object = DynamicObject { types, metadata, data: Value::Null };
                    cache.put_child(Child::of(&SECRET, &object));
                },
                |key, uid| cache.remove_child(&SECRET, key, uid),
            );
            follow(api, watcher::Config::default().labels(OWNER), &what, handle).await;
        });
    }

    fn pods(&self) {
        let (api, cache) = (self.api(&()), Arc::clone(&self.cache));
        self.spawn("pods", async move {
            let handle = mirror(
                (&cache, "pods"),
                || cache.known_pods(),
                |pod: &Pod| {
                    let now = Timestamp::now();
                    if let Some(record) = PodRecord::of(pod) {
                        cache.put_pod(record, pod_problem(pod, now).as_ref(), now);
                    }
                },
                |key, uid| cache.remove_pod(key, uid, Timestamp::now()),
            );
            follow(api, watcher::Config::default().labels(OWNER), "pods", handle).await;
        });
    }

    /// Events that say why pods of a StatefulSet or Job can't be created. The watch starts at
    /// version 0 each time: the API server soon drops the history of Events, and listing them on
    /// each reopening would cost requests while nothing happens.
    fn events(&self) {
        let api: Api<CoreEvent> = self.api(&());
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
        let api = Api::all(self.client.clone());
        let (cache, nodes) = (Arc::clone(&self.cache), Arc::clone(&self.nodes));
        self.spawn("nodes", async move {
            let handle = mirror(
                (&cache, "nodes"),
                || nodes.known(),
                |node: &Node| nodes.put(node),
                |key, _| nodes.remove(&key.1),
            );
            follow(api, watcher::Config::default(), "nodes", handle).await;
        });
    }
}

/// A handler of the events of a watch that keeps its objects in a cache equal to what it reports.
/// `known` are the cached ones when a list starts: those that the list lacks are deleted.
fn mirror<K: Resource>(
    (cache, what): (&Cache, &str),
    known: impl Fn() -> Known,
    put: impl Fn(&K),
    remove: impl Fn(&Key, &str),
) -> impl FnMut(Event<K>) {
    let mut unseen = Known::new();
    move |event| match event {
        Event::Init => unseen = known(),
        Event::InitApply(object) => {
            let key = key(&object);
            if unseen.get(&key).is_some_and(|uid| uid.is_empty() || uid == self::uid(&object)) {
                unseen.remove(&key);
            }
            put(&object);
        }
        Event::Apply(object) => put(&object),
        Event::Delete(object) => remove(&key(&object), uid(&object)),
        Event::InitDone => {
            for (key, uid) in std::mem::take(&mut unseen) {
                remove(&key, &uid);
            }
            cache.set_synced(what);
        }
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
    has_code(error, 404)
}

fn has_code(error: &watcher::Error, code: u16) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    matches!(
        error,
        InitialListFailed(kube::Error::Api(status))
            | WatchStartFailed(kube::Error::Api(status))
            | WatchFailed(kube::Error::Api(status))
            if status.code == code
    )
}

fn uid(object: &impl Resource) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

fn key(object: &impl Resource) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn pod(name: &str, uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.uid = Some(uid.to_owned());
        pod
    }

    /// Lists pods and returns those that are removed because the list lacks them.
    fn removed_by_list(known: &[(&str, &str)], listed: &[(&str, &str)]) -> Vec<(String, String)> {
        let (cache, removed) = (Cache::default(), RefCell::new(Vec::new()));
        let known = || {
            let all = known.iter();
            all.map(|(name, uid)| ((String::new(), (*name).to_owned()), (*uid).to_owned()))
                .collect()
        };
        let put = RefCell::new(0);
        let mut handle = mirror(
            (&cache, "pods"),
            known,
            |_: &Pod| *put.borrow_mut() += 1,
            |key, uid| removed.borrow_mut().push((key.1.clone(), uid.to_owned())),
        );
        handle(Event::Init);
        for (name, uid) in listed {
            handle(Event::InitApply(pod(name, uid)));
        }
        assert!(removed.borrow().is_empty() && !cache.is_synced("pods"), "the list is incomplete");
        handle(Event::InitDone);
        drop(handle);
        assert!(cache.is_synced("pods"));
        assert_eq!(put.into_inner(), listed.len());
        let mut removed = removed.into_inner();
        removed.sort();
        removed
    }

    #[test]
    fn list_removes_what_it_lacks() {
        let own = |name: &str, uid: &str| (name.to_owned(), uid.to_owned());
        let known = [("kept", "1"), ("gone", "2"), ("replaced", "3")];
        let listed = [("kept", "1"), ("replaced", "4"), ("new", "5")];
        assert_eq!(removed_by_list(&known, &listed), [own("gone", "2"), own("replaced", "3")]);
        // Without uids only the name matters.
        let known = [("kept", ""), ("gone", "")];
        assert_eq!(removed_by_list(&known, &listed), [own("gone", "")]);
    }

    #[test]
    fn events_after_the_list_are_passed_on() {
        let (cache, names) = (Cache::default(), RefCell::new(Vec::new()));
        let mut handle = mirror(
            (&cache, "pods"),
            Known::new,
            |pod: &Pod| names.borrow_mut().push(format!("+{}", key(pod).1)),
            |key, uid| names.borrow_mut().push(format!("-{} {uid}", key.1)),
        );
        handle(Event::Apply(pod("a", "1")));
        handle(Event::Delete(pod("a", "1")));
        drop(handle);
        assert_eq!(names.into_inner(), ["+a", "-a 1"]);
    }
}
