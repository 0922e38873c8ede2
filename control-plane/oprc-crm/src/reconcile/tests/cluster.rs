//! A cluster in memory: an API server with preconditions and field ownership, and controllers that
//! run on demand.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use oprc_unit::{Platform, Profile};
use serde_json::{Value, json};

use super::{
    super::{
        Action, Decision, EventRecord, FINALIZER, Input, ObservedClass,
        diff::{Apply, with_renewal},
        observe::{Child, GridObservation, GridPod, MANAGER},
        plan_actions,
        report::Failure,
        revision_scale::RevisionScale,
    },
    api_server::{immutable, with_defaults},
    managed,
    view::View,
};
use crate::{
    crd::{ClassRuntimeStatus, GROUP, OWNED_CONDITIONS, Phase},
    decode::decode,
    kinds::{AUTOSCALER, CLAIM, CONFIG_MAP, DEPLOYMENT, Kind},
    reason::Reason,
};

pub(super) const NAMESPACE: &str = "ns";
pub(super) const CLASS: &str = "shop";
/// More reconciles than convergence may take.
const PASSES: usize = 60;

pub(super) type Key = (Kind, String);

/// All features and APIs.
pub(super) fn environment() -> Platform {
    let mut environment = Platform::of(Profile::Full);
    environment.knative = true;
    environment.autoscaling = true;
    environment
}

/// Why the API server rejects a request.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The view is stale.
    Conflict,
    /// A retry is of no use.
    Invalid(Failure),
}

/// An object and its projection.
#[derive(Clone)]
struct Entry {
    object: Value,
    child: Arc<Child>,
}

/// The cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) environment: Platform,
    pub(super) now: Timestamp,
    /// Kinds whose controllers don't run.
    pub(super) stopped: BTreeSet<Kind>,
    pub(super) events: Vec<EventRecord>,
    /// Changes of revisions.
    pub(super) revision_scales: Vec<RevisionScale>,
    /// A mutating admission webhook.
    pub(super) admission: Option<fn(&mut Value)>,
    /// Names of objects whose writes are rejected.
    pub(super) rejected: BTreeSet<String>,
    /// Kinds of which a quota allows no more objects.
    pub(super) over_quota: BTreeSet<Kind>,
    /// Why pods can't be created, by the uid of their workload.
    pub(super) pod_creation_failure: BTreeMap<String, String>,
    /// What the data grid reports. None if it does at once what its ConfigMap asks for.
    pub(super) grid: Option<GridObservation>,
    /// Pods of the data grid by name.
    pub(super) grid_pods: BTreeMap<String, GridPod>,
    class: Option<Value>,
    objects: BTreeMap<Key, Entry>,
    version: u64,
    uids: u64,
}

impl Cluster {
    pub(super) fn new() -> Self {
        Self {
            environment: environment(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            stopped: BTreeSet::new(),
            events: Vec::new(),
            revision_scales: Vec::new(),
            admission: None,
            rejected: BTreeSet::new(),
            over_quota: BTreeSet::new(),
            pod_creation_failure: BTreeMap::new(),
            grid: None,
            grid_pods: BTreeMap::new(),
            class: None,
            objects: BTreeMap::new(),
            version: 0,
            uids: 0,
        }
    }

    /// A cluster with one class, converged.
    pub(super) fn with(spec: &Value) -> Self {
        let mut cluster = Self::new();
        cluster.set_spec(spec);
        cluster.converge();
        cluster
    }

    /// The same, and the view before any of its objects existed.
    pub(super) fn with_early_view(spec: &Value) -> (Self, View) {
        let mut cluster = Self::new();
        cluster.set_spec(spec);
        cluster.reconcile_on(&cluster.view(), 1);
        let view = cluster.view();
        cluster.converge();
        (cluster, view)
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    // The class.

    /// A user creates the class or changes its specification.
    pub(super) fn set_spec(&mut self, spec: &Value) {
        let version = self.next_version();
        if let Some(class) = &mut self.class {
            if class["spec"] != *spec {
                class["spec"] = spec.clone();
                let generation = class["metadata"]["generation"].as_i64().unwrap();
                class["metadata"]["generation"] = json!(generation + 1);
                class["metadata"]["resourceVersion"] = json!(version);
            }
            return;
        }
        let uid = self.next_uid();
        self.class = Some(json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "ClassRuntime",
            "metadata": {
                "name": CLASS, "namespace": NAMESPACE, "uid": uid,
                "resourceVersion": version, "generation": 1,
            },
            "spec": spec,
        }));
    }

    /// A user deletes the class.
    pub(super) fn delete_class(&mut self) {
        let (version, now) = (self.next_version(), self.now.to_string());
        let Some(class) = &mut self.class else { return };
        class["metadata"]["deletionTimestamp"] = json!(now);
        class["metadata"]["resourceVersion"] = json!(version);
        self.drop_class_when_free();
    }

    fn drop_class_when_free(&mut self) {
        let free = self.class.as_ref().is_some_and(|class| {
            let meta = &class["metadata"];
            meta["deletionTimestamp"].is_string()
                && meta["finalizers"].as_array().is_none_or(Vec::is_empty)
        });
        if free {
            self.class = None;
        }
    }

    pub(super) fn has_class(&self) -> bool {
        self.class.is_some()
    }

    pub(super) fn class_uid(&self) -> Option<&str> {
        self.class.as_ref()?["metadata"]["uid"].as_str()
    }

    pub(super) fn has_status(&self) -> bool {
        self.class.as_ref().is_some_and(|class| class["status"].is_object())
    }

    pub(super) fn status(&self) -> ClassRuntimeStatus {
        let class = self.class.as_ref().expect("the class is there");
        serde_json::from_value(class["status"].clone()).expect("it has a status")
    }

    /// Phase and reason.
    pub(super) fn phase(&self) -> (Phase, String) {
        let status = self.status();
        (status.phase, status.reason.unwrap_or_default())
    }

    /// Another field manager changes the status.
    pub(super) fn edit_status(&mut self, change: impl FnOnce(&mut Value)) {
        let version = self.next_version();
        let class = self.class.as_mut().expect("the class is there");
        change(&mut class["status"]);
        class["metadata"]["resourceVersion"] = json!(version);
    }

    // Objects.

    pub(super) fn keys(&self) -> Vec<Key> {
        self.objects.keys().cloned().collect()
    }

    /// Objects that belong to a class.
    pub(super) fn own_keys(&self) -> Vec<Key> {
        let own = self.objects.iter().filter(|(_, entry)| entry.child.owner.is_some());
        own.map(|(key, _)| key.clone()).collect()
    }

    /// Kind and name of each object, apart from claims.
    pub(super) fn names(&self) -> Vec<String> {
        let all = self.objects.keys().filter(|(kind, _)| *kind != CLAIM);
        all.map(|(kind, name)| {
            let knative = if kind.group.contains("knative") { "Knative" } else { "" };
            format!("{knative}{kind} {name}")
        })
        .collect()
    }

    pub(super) fn object(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key).map(|entry| &entry.object)
    }

    pub(super) fn child(&self, key: &Key) -> Option<Arc<Child>> {
        self.objects.get(key).map(|entry| Arc::clone(&entry.child))
    }

    /// Writes an object as it is; whether anything changed.
    pub(super) fn put(&mut self, key: &Key, mut object: Value) -> bool {
        let before = self.objects.get(key).map(|entry| entry.object.clone());
        if before.as_ref() == Some(&object) {
            return false;
        }
        let meta = |name: &str| before.as_ref().map(|it| it["metadata"][name].clone());
        let generation = match &before {
            Some(old) if old["spec"] == object["spec"] => old["metadata"]["generation"].clone(),
            Some(old) => json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1),
            None => json!(1),
        };
        let uid = meta("uid").unwrap_or_else(|| json!(self.next_uid()));
        let created = meta("creationTimestamp").unwrap_or_else(|| json!(self.now.to_string()));
        object["metadata"]["uid"] = uid;
        object["metadata"]["creationTimestamp"] = created;
        object["metadata"]["generation"] = generation;
        object["metadata"]["resourceVersion"] = json!(self.next_version());
        let dynamic: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let mut child = Child::of(&key.0, &dynamic);
        if let Some(known) = self.objects.get(key) {
            child = child.after(&known.child);
        }
        self.objects.insert(key.clone(), Entry { object, child: Arc::new(child) });
        true
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
    }

    /// Another client changes an object; returns whether the API server accepts that.
    pub(super) fn edit(
        &mut self,
        key: &Key,
        manager: &str,
        change: impl FnOnce(&mut Value),
    ) -> bool {
        let before = self.objects[key].object.clone();
        let mut after = before.clone();
        change(&mut after);
        let mut after = with_defaults(&key.0, after);
        if immutable(&key.0, &before, &after).is_some() {
            return false;
        }
        managed::update(&before, &mut after, manager);
        self.put(key, after)
    }

    /// Another client creates an object.
    pub(super) fn create_foreign(&mut self, key: &Key, spec: &Value) {
        let mut object = json!({
            "apiVersion": key.0.api_version(), "kind": key.0.kind,
            "metadata": {"name": key.1, "namespace": NAMESPACE},
            "spec": spec,
        });
        let empty = json!({"apiVersion": key.0.api_version(), "metadata": {}});
        managed::update(&empty, &mut object, "somebody");
        self.put(key, object);
    }

    // CRM's part.

    /// The present view.
    pub(super) fn view(&self) -> View {
        let class = self
            .class
            .as_ref()
            .map(|class| decode(&serde_json::from_str(&class.to_string()).unwrap()));
        let children =
            self.objects.iter().map(|(key, entry)| (key.clone(), Arc::clone(&entry.child)));
        View {
            class,
            children: children.collect(),
            pod_creation_failure: self.pod_creation_failure.clone(),
            grid: self.grid.or_else(|| self.obedient_grid()),
            grid_pods: self.grid_pods.clone(),
        }
    }

    fn obedient_grid(&self) -> Option<GridObservation> {
        let config = self.object(&(CONFIG_MAP, format!("{CLASS}-odgm")))?;
        // What others have changed may not be readable.
        let document: Value =
            serde_json::from_str(config["data"]["members.json"].as_str()?).ok()?;
        let members = i32::try_from(document["members"].as_i64()?).unwrap();
        let (desired_members, needed_nodes) = (members, members);
        Some(GridObservation { desired_members, needed_nodes, low_on_space: false })
    }

    pub(super) fn plan_actions(&self, view: &View, failures: &[Failure]) -> Decision {
        let Some(class) = &view.class else { return Decision::default() };
        plan_actions(&Input { class, platform: &self.environment, view, now: self.now, failures })
    }

    /// One reconcile on the present view.
    pub(super) fn reconcile(&mut self) -> Decision {
        self.reconcile_on(&self.view(), usize::MAX)
    }

    /// One reconcile on a view that may be stale, by a process that crashes after some actions.
    pub(super) fn reconcile_on(&mut self, view: &View, most: usize) -> Decision {
        self.now += SignedDuration::from_secs(1);
        let decision = self.plan_actions(view, &[]);
        let Some(class) = &view.class else { return decision };
        let mut version = class.resource_version.clone();
        let mut failures = Vec::new();
        for action in decision.actions.iter().take(most) {
            if !failures.is_empty() && !action.is_independent() {
                continue;
            }
            match self.perform(class, &mut version, action) {
                Ok(()) => {}
                Err(RequestError::Conflict) => break,
                Err(RequestError::Invalid(failure)) => failures.push(failure),
            }
        }
        // As the controller does it: failures are reported after all other writes, whose responses
        // are in its cache.
        if !failures.is_empty() {
            let view = View { class: view.class.clone(), ..self.view() };
            for action in self.plan_actions(&view, &failures).actions {
                if matches!(action, Action::Status(_) | Action::Event(_))
                    && self.perform(class, &mut version, &action).is_err()
                {
                    break;
                }
            }
        }
        decision
    }

    /// Performs one action, as far as preconditions allow.
    fn perform(
        &mut self,
        seen: &ObservedClass,
        version: &mut String,
        action: &Action,
    ) -> Result<(), RequestError> {
        match action {
            Action::AddFinalizer => {
                let all = seen
                    .finalizers
                    .iter()
                    .map(String::as_str)
                    .chain([FINALIZER])
                    .collect::<Vec<_>>();
                self.finalizers(seen, version, &all)
            }
            Action::RemoveFinalizer => {
                let all = seen.finalizers.iter().map(String::as_str);
                let rest: Vec<&str> = all.filter(|it| *it != FINALIZER).collect();
                self.finalizers(seen, version, &rest)
            }
            Action::Apply(write) => self.apply(write),
            Action::IssueCertificate(write) => {
                let mut write = (**write).clone();
                let at = self.now + SignedDuration::from_hours(60 * 24);
                write.desired.object = with_renewal(&write.desired.object, at);
                self.apply(&write)
            }
            Action::Delete(child) => self.delete(child),
            Action::ScaleRevision(scale) => {
                self.revision_scales.push(scale.clone());
                Ok(())
            }
            Action::Status(status) => {
                let new = self.next_version();
                let class = self.current(seen, version)?;
                class["status"] = apply_status(&class["status"], status);
                class["metadata"]["resourceVersion"] = json!(new);
                *version = new;
                Ok(())
            }
            Action::Event(record) => {
                self.events.push(record.clone());
                Ok(())
            }
        }
    }

    /// The class, if it still has the observed uid and version.
    fn current(&mut self, seen: &ObservedClass, version: &str) -> Result<&mut Value, RequestError> {
        let class = self.class.as_mut().ok_or(RequestError::Conflict)?;
        let meta = &class["metadata"];
        let same = meta["uid"] == *seen.uid && meta["resourceVersion"] == *version;
        if same { Ok(class) } else { Err(RequestError::Conflict) }
    }

    fn finalizers(
        &mut self,
        seen: &ObservedClass,
        version: &mut String,
        finalizers: &[&str],
    ) -> Result<(), RequestError> {
        if self.class.is_none() {
            return Ok(());
        }
        let new = self.next_version();
        let class = self.current(seen, version)?;
        class["metadata"]["finalizers"] = json!(finalizers);
        class["metadata"]["resourceVersion"] = json!(new);
        *version = new;
        self.drop_class_when_free();
        Ok(())
    }

    fn apply(&mut self, write: &Apply) -> Result<(), RequestError> {
        let desired = &write.desired;
        if self.rejected.contains(&desired.name) {
            let message = format!("{} {}: not here", desired.kind, desired.name);
            return Err(RequestError::Invalid(Failure { reason: Reason::Rejected, message }));
        }
        let key = (desired.kind.clone(), desired.name.clone());
        let live = self.object(&key).cloned();
        if live.is_none() && self.over_quota.contains(&desired.kind) {
            let message =
                format!("{} {}: exceeded quota at {}", desired.kind, desired.name, self.now);
            return Err(RequestError::Invalid(Failure { reason: Reason::QuotaExceeded, message }));
        }
        let uid = live.as_ref().map(|it| it["metadata"]["uid"].as_str().unwrap().to_owned());
        if write.uid.is_some() && write.uid != uid {
            return Err(RequestError::Conflict);
        }
        let applied = managed::apply(live.as_ref(), &desired.object, MANAGER);
        let mut object = with_defaults(&desired.kind, applied);
        if let Some(admit) = self.admission {
            admit(&mut object);
        }
        if let Some(live) = &live
            && let Some(message) = immutable(&desired.kind, live, &object)
        {
            return Err(RequestError::Invalid(Failure { reason: Reason::Rejected, message }));
        }
        self.put(&key, object);
        if let Some(entry) = self.objects.get_mut(&key) {
            entry.child = Arc::new((*entry.child).clone().with_applied(&desired.object));
        }
        Ok(())
    }

    fn delete(&mut self, child: &Child) -> Result<(), RequestError> {
        let key = (child.kind.clone(), child.name.clone());
        let Some(object) = self.object(&key).cloned() else { return Ok(()) };
        if object["metadata"]["uid"] != *child.uid {
            return Err(RequestError::Conflict);
        }
        let mut object = object;
        // Foreground deletion.
        object["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
        self.put(&key, object);
        Ok(())
    }

    /// Alternates reconciles and controllers until nothing changes, now or later.
    pub(super) fn converge(&mut self) {
        for _ in 0..PASSES {
            let moved = self.run_controllers();
            let decision = self.reconcile();
            if moved || !decision.actions.is_empty() {
                continue;
            }
            match decision.requeue_after {
                // Only a certificate is renewed that much later.
                Some(after) if after < Duration::from_hours(24) => self.advance(after),
                _ => return,
            }
        }
        let last = self.plan_actions(&self.view(), &[]);
        panic!("not converged after {PASSES} passes; {:?}; {:#?}", self.phase(), last.actions);
    }

    pub(super) fn advance(&mut self, time: Duration) {
        self.now += SignedDuration::try_from(time).unwrap();
    }

    // Comparison.

    /// The owned fields of all objects and the status, without times and counters.
    pub(super) fn outcome(&self) -> Value {
        let objects: BTreeMap<String, Value> = self
            .objects
            .iter()
            .filter(|(_, entry)| entry.child.owner.is_some())
            .map(|((kind, name), entry)| {
                let mut owned = super::owned(&entry.object);
                owned["metadata"]["ownerReferences"][0]["uid"] = json!("the class's");
                let scaled = self.objects.contains_key(&(AUTOSCALER, name.clone()));
                if *kind == DEPLOYMENT && scaled {
                    // Their owner depends on whether there ever was load.
                    owned["spec"].as_object_mut().unwrap().remove("replicas");
                }
                (format!("{} {kind} {}", kind.group, without_generation(name)), owned)
            })
            .collect();
        let status = self.class.as_ref().map(|_| {
            let status = self.status();
            let functions = status.functions.iter().map(|it| {
                json!([it.key, it.runs_as, it.ready, it.url, it.public_url, it.completed.is_some()])
            });
            json!({
                "phase": status.phase, "reason": status.reason, "ready": status.ready,
                "functions": functions.collect::<Vec<_>>(),
                "odgm": status.odgm, "replaced": status.replaced.is_some(),
                "template": status.selection.map(|it| (it.template, it.profile, it.basis)),
                "refs": status.resource_refs.len(),
            })
        });
        json!({"objects": objects, "status": status})
    }
}

/// A status after the reconciler's server-side apply: what others own of it stays.
fn apply_status(old: &Value, status: &ClassRuntimeStatus) -> Value {
    let mut new = whole_numbers(serde_json::to_value(status).unwrap());
    for field in [
        "nfr_recommendations",
        "last_applied_recommendations",
        "last_applied_at",
        "nfr_compliance",
        "oom_kills",
    ] {
        assert!(new.get(field).is_none(), "{field} isn't the reconciler's");
        if let Some(theirs) = old.get(field) {
            new[field] = theirs.clone();
        }
    }
    let is_own = |it: &Value| OWNED_CONDITIONS.iter().any(|own| it["type"] == *own);
    let conditions = new["conditions"].as_array_mut().unwrap();
    assert!(conditions.iter().all(is_own), "{conditions:?}");
    let theirs = old["conditions"].as_array().into_iter().flatten();
    conditions.extend(theirs.filter(|it| !is_own(it)).cloned());
    new
}

/// The API server makes no difference between 99 and 99.0.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation)]
            Some(figure) if figure.fract() == 0.0 && figure.abs() < 1e9 => json!(figure as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(name, below)| (name, whole_numbers(below))).collect()
        }
        other => other,
    }
}

/// A Job's name ends with the generation of its class.
fn without_generation(name: &str) -> String {
    match name.rsplit_once("-g") {
        Some((begin, end)) if end.bytes().all(|it| it.is_ascii_digit()) => begin.to_owned(),
        _ => name.to_owned(),
    }
}
