//! Applies actions: the only place that writes children and status, and only while this process is
//! the leader.

mod secret;

use std::{sync::Arc, time::Instant};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use oprc_unit::names;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cache::Cache,
    crd::{
        ClassRuntime, ClassRuntimeStatus, NfrChange, OomKillStatus, Recommendation,
        RequirementStatus,
    },
    deadline::{REQUEST_TIMEOUT, until},
    decode::{RawClass, decode, deployment_id, encode_status},
    kinds::{KNATIVE_REVISION, Kind},
    leader::Leadership,
    reason::Reason,
    reconcile::{
        Action, EventRecord, FINALIZER, ObservedClass,
        diff::Apply,
        observe::{Child, MANAGER},
        render::DEPLOYMENT_ID,
        report::Failure,
        revision_scale::{MIN_SCALE, RevisionScale},
    },
};

/// The API server's limit on the note of an Event, in bytes.
const MAX_NOTE: usize = 1024;
/// `reportingController` of Events.
const CONTROLLER: &str = "oprc-crm";

/// The field manager of the compliance in status.
const NFR_MANAGER: &str = "oprc-crm-nfr";

/// The part of a status that the analyzer owns.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NfrStatus {
    /// At most `NfrObserved`, `NfrEnforced` and `PrometheusDisabled`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nfr_compliance: Vec<RequirementStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nfr_recommendations: Vec<Recommendation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_applied_recommendations: Vec<Recommendation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_at: Option<Time>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nfr_history: Vec<NfrChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub oom_kills: Vec<OomKillStatus>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("this process is not the leader")]
    NotLeader,
    /// Needs a human; reported in status at once.
    #[error("{}: {}", .0.reason, .0.message)]
    Permanent(Failure),
    /// Retried; reported in status only if it persists.
    #[error("{}: {}", .0.reason, .0.message)]
    Transient(Failure),
}

pub struct Applier {
    pub client: Client,
    /// Takes the responses of writes, so that the next reconcile sees them.
    pub cache: Arc<Cache>,
    pub leadership: Leadership,
    /// Recorded in Events.
    pub identity: String,
}

impl Applier {
    /// `version` is the latest resourceVersion of the class, which some writes depend on.
    pub async fn apply(
        &self,
        class: &ObservedClass,
        version: &mut String,
        action: &Action,
    ) -> Result<(), Error> {
        // No write may still be in progress when another process becomes the leader.
        let Some(deadline) = self.leadership.until() else { return Err(Error::NotLeader) };
        let end = deadline.min(Instant::now() + REQUEST_TIMEOUT);
        match action {
            Action::AddFinalizer => {
                let all = class.finalizers.iter().map(String::as_str).chain([FINALIZER]);
                self.set_finalizers(class, version, &all.collect::<Vec<_>>(), end).await
            }
            Action::RemoveFinalizer => {
                let all = class.finalizers.iter().map(String::as_str);
                let rest: Vec<&str> = all.filter(|it| *it != FINALIZER).collect();
                self.set_finalizers(class, version, &rest, end).await
            }
            Action::Apply(apply) => self.apply_object(class, apply, end).await,
            Action::IssueCertificate(apply) => self.issue_certificate(class, apply, end).await,
            Action::Delete(child) => self.delete(child, end).await,
            Action::ScaleRevision(scale) => self.scale_revision(class, scale, end).await,
            Action::Status(status) => self.write_status(class, version, status, end).await,
            Action::Event(record) => {
                self.record_event(class, record, end).await;
                Ok(())
            }
        }
    }

    /// Writes the part of the status that the analyzer owns; what `status` lacks of it is removed.
    pub async fn apply_nfr_status(
        &self,
        class: &ObservedClass,
        status: &NfrStatus,
    ) -> Result<(), Error> {
        let Some(deadline) = self.leadership.until() else { return Err(Error::NotLeader) };
        let end = deadline.min(Instant::now() + REQUEST_TIMEOUT);
        // Without a resourceVersion: nobody else writes these fields.
        let object = json!({
            "apiVersion": ClassRuntime::api_version(&()),
            "kind": ClassRuntime::kind(&()),
            "metadata": {"name": class.name, "namespace": class.namespace, "uid": class.uid},
            "status": status,
        });
        let api = self.classes(&class.namespace);
        let params = PatchParams::apply(NFR_MANAGER).force();
        let written = bounded(end, api.patch_status(&class.name, &params, &Patch::Apply(&object)))
            .await
            .map_err(|error| error.transient("the compliance in status"))?;
        self.cache_response(&mut String::new(), &written);
        Ok(())
    }

    fn api(&self, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    fn classes(&self, namespace: &str) -> Api<RawClass> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn set_finalizers(
        &self,
        class: &ObservedClass,
        version: &mut String,
        finalizers: &[&str],
        end: Instant,
    ) -> Result<(), Error> {
        let patch = json!({"metadata": {
            "finalizers": finalizers, "uid": class.uid, "resourceVersion": version,
        }});
        let api = self.classes(&class.namespace);
        let params =
            PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match bounded(end, api.patch(&class.name, &params, &Patch::Merge(&patch))).await {
            Ok(written) => self.cache_response(version, &written),
            // The class is deleted, so it needs no finalizer.
            Err(RequestError::Api(404, _)) => {}
            Err(error) => return Err(error.transient("the finalizer")),
        }
        Ok(())
    }

    async fn apply_object(
        &self,
        class: &ObservedClass,
        apply: &Apply,
        end: Instant,
    ) -> Result<(), Error> {
        let desired = &apply.desired;
        let mut object = desired.object.clone();
        set_uid(&mut object, apply.uid.as_ref());
        let api = self.api(&desired.kind, &class.namespace);
        let what = format!("{} {}", desired.kind, desired.name);
        if apply.uid.is_none() && desired.kind.is_watched_by_label() {
            self.check_name_is_free(class, &api, &desired.name, &what, end).await?;
        }
        let mut params = PatchParams::apply(MANAGER);
        // Another controller may have created an object of this name that the cache doesn't have yet:
        // without force the API server reports the conflict, and the next reconcile finds the name
        // taken.
        params.force = apply.uid.is_some();
        let written = bounded(end, api.patch(&desired.name, &params, &Patch::Apply(&object)))
            .await
            .map_err(|error| error.classify(&what))?;
        self.cache.put_child(Child::of(&desired.kind, &written).with_applied(&desired.object));
        Ok(())
    }

    /// An object of another owner isn't in the cache without CRM's label, and an apply would merge
    /// into it.
    async fn check_name_is_free(
        &self,
        class: &ObservedClass,
        api: &Api<DynamicObject>,
        name: &str,
        what: &str,
        end: Instant,
    ) -> Result<(), Error> {
        let found = bounded(end, api.get_metadata_opt(name)).await;
        let found = found.map_err(|error| error.classify(what))?;
        match found.filter(|it| !is_owned_by(&it.metadata, class)) {
            Some(_) => Err(Error::Permanent(Failure {
                reason: Reason::NameConflict,
                message: format!("{what} belongs to another owner"),
            })),
            None => Ok(()),
        }
    }

    async fn scale_revision(
        &self,
        class: &ObservedClass,
        scale: &RevisionScale,
        end: Instant,
    ) -> Result<(), Error> {
        let RevisionScale { revision, min_scale } = scale;
        let api = self.api(&KNATIVE_REVISION, &class.namespace);
        let patch = json!({"metadata": {"annotations": {MIN_SCALE: min_scale}}});
        let params =
            PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match bounded(end, api.patch(revision, &params, &Patch::Merge(&patch))).await {
            // Another revision serves by now.
            Ok(_) | Err(RequestError::Api(404, _)) => Ok(()),
            Err(error) => Err(error.classify(&format!("Revision {revision}"))),
        }
    }

    async fn delete(&self, child: &Child, end: Instant) -> Result<(), Error> {
        let api = self.api(&child.kind, &child.namespace);
        let preconditions = Preconditions { uid: Some(child.uid.clone()), resource_version: None };
        // The object is deleted after its dependents.
        let params = DeleteParams::foreground().preconditions(preconditions);
        let terminating = match bounded(end, api.delete(&child.name, &params)).await {
            Ok(response) => response.left(),
            Err(RequestError::Api(404, _)) => None,
            Err(error) => {
                return Err(error.classify(&format!("deleting {} {}", child.kind, child.name)));
            }
        };
        match terminating {
            Some(object) => self.cache.put_child(Child::of(&child.kind, &object)),
            None => {
                let key = (child.namespace.clone(), child.name.clone());
                self.cache.remove_child(&child.kind, &key, &child.uid);
            }
        }
        Ok(())
    }

    async fn write_status(
        &self,
        class: &ObservedClass,
        version: &mut String,
        status: &ClassRuntimeStatus,
        end: Instant,
    ) -> Result<(), Error> {
        let object = json!({
            "apiVersion": ClassRuntime::api_version(&()),
            "kind": ClassRuntime::kind(&()),
            "metadata": {
                "name": class.name, "namespace": class.namespace,
                "uid": class.uid, "resourceVersion": version,
            },
            "status": encode_status(status),
        });
        let api = self.classes(&class.namespace);
        let params = PatchParams::apply(MANAGER).force();
        let written = bounded(end, api.patch_status(&class.name, &params, &Patch::Apply(&object)))
            .await
            .map_err(|error| error.transient("the status"))?;
        self.cache_response(version, &written);
        Ok(())
    }

    fn cache_response(&self, version: &mut String, written: &RawClass) {
        if let Some(latest) = &written.metadata.resource_version {
            version.clone_from(latest);
        }
        let deleted = written.metadata.deletion_timestamp.is_some()
            && written.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        // The watch reports the deletion.
        if !deleted {
            self.cache.put_class(decode(written));
        }
    }

    /// A failure to record an Event doesn't fail the reconcile.
    async fn record_event(&self, class: &ObservedClass, record: &EventRecord, end: Instant) {
        let (reason, note) = (record.reason.as_str(), &record.note);
        let event = event(class, record, &self.identity, Timestamp::now());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &class.namespace);
        match until(end, api.create(&PostParams::default(), &event)).await {
            Some(Ok(_)) => tracing::info!(reason, note, "event recorded"),
            Some(Err(error)) => tracing::info!(reason, note, %error, "failed to record event"),
            None => tracing::info!(reason, note, "timed out recording event"),
        }
    }
}

fn is_owned_by(meta: &ObjectMeta, class: &ObservedClass) -> bool {
    meta.owner_references.iter().flatten().any(|it| it.uid == class.uid)
}

/// An update must never recreate a deleted object.
fn set_uid(object: &mut Value, uid: Option<&String>) {
    let meta = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(uid), Some(meta)) = (uid, meta) {
        meta.insert("uid".to_owned(), uid.clone().into());
    }
}

/// Built here and not by kube's recorder, which sets no annotations and repeats the note of an
/// earlier Event with the same reason.
fn event(class: &ObservedClass, record: &EventRecord, identity: &str, now: Timestamp) -> Event {
    let correlation =
        class.correlation_id.as_ref().map_or_else(String::new, |id| format!(" [{id}]"));
    let mut note = record.note.clone();
    while note.len() + correlation.len() > MAX_NOTE && note.pop().is_some() {}
    note.push_str(&correlation);
    let deployment_id = deployment_id(class);
    let label = (DEPLOYMENT_ID.to_owned(), names::label(deployment_id));
    let annotation = (DEPLOYMENT_ID.to_owned(), deployment_id.to_owned());
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", class.name, now.as_nanosecond())),
            namespace: Some(class.namespace.clone()),
            labels: Some([label].into()),
            annotations: Some([annotation].into()),
            ..ObjectMeta::default()
        },
        regarding: Some(ObjectReference {
            api_version: Some(ClassRuntime::api_version(&()).into_owned()),
            kind: Some(ClassRuntime::kind(&()).into_owned()),
            name: Some(class.name.clone()),
            namespace: Some(class.namespace.clone()),
            uid: Some(class.uid.clone()),
            ..ObjectReference::default()
        }),
        type_: Some(if record.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(record.reason.as_str().to_owned()),
        note: Some(note),
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(identity.to_owned()),
        ..Event::default()
    }
}

enum RequestError {
    Api(u16, String),
    Other(String),
}

async fn bounded<T>(
    end: Instant,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, RequestError> {
    match until(end, request).await {
        Some(Ok(response)) => Ok(response),
        Some(Err(kube::Error::Api(status))) => {
            Err(RequestError::Api(status.code, status.message.clone()))
        }
        Some(Err(error)) => Err(RequestError::Other(error.to_string())),
        None => Err(RequestError::Other("no response in time".to_owned())),
    }
}

impl RequestError {
    fn transient(self, what: &str) -> Error {
        let (reason, message) = match self {
            Self::Api(409, message) => (Reason::Conflict, message),
            Self::Api(code, message) => (Reason::ApiServerError, format!("{code}: {message}")),
            Self::Other(message) => (Reason::ApiServerError, message),
        };
        Error::Transient(Failure { reason, message: format!("{what}: {message}") })
    }

    /// Errors that only a human can resolve are permanent.
    fn classify(self, what: &str) -> Error {
        let (code, message) = match self {
            Self::Api(code @ (400 | 403 | 404 | 405 | 413 | 422), message) => (code, message),
            other => return other.transient(what),
        };
        let reason = match code {
            403 if message.contains("exceeded quota") => Reason::QuotaExceeded,
            403 => Reason::Forbidden,
            404 => Reason::KindMissing,
            _ => Reason::Rejected,
        };
        Error::Permanent(Failure { reason, message: format!("{what}: {message}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::CORRELATION;

    /// Whether an error is permanent, its reason, and its message.
    fn outcome(error: Error) -> (bool, Reason, String) {
        match error {
            Error::Permanent(failure) => (true, failure.reason, failure.message),
            Error::Transient(failure) => (false, failure.reason, failure.message),
            Error::NotLeader => panic!("{error}"),
        }
    }

    #[test]
    fn errors_that_need_a_human_are_permanent() {
        let api = |code, message: &str| RequestError::Api(code, message.to_owned());
        let quota = "pods \"p\" is forbidden: exceeded quota: few";
        let message = |said: &str| format!("Service shop: {said}");
        for (error, permanent, reason, said) in [
            (api(400, "no JSON"), true, Reason::Rejected, "no JSON"),
            (api(401, "who?"), false, Reason::ApiServerError, "401: who?"),
            (api(403, "may not"), true, Reason::Forbidden, "may not"),
            (api(403, quota), true, Reason::QuotaExceeded, quota),
            (api(404, "not found"), true, Reason::KindMissing, "not found"),
            (api(405, "not so"), true, Reason::Rejected, "not so"),
            (api(409, "changed"), false, Reason::Conflict, "changed"),
            (api(413, "too large"), true, Reason::Rejected, "too large"),
            (api(422, "immutable"), true, Reason::Rejected, "immutable"),
            (api(429, "later"), false, Reason::ApiServerError, "429: later"),
            (api(500, "webhook"), false, Reason::ApiServerError, "500: webhook"),
            (api(503, "away"), false, Reason::ApiServerError, "503: away"),
            (RequestError::Other("cut".to_owned()), false, Reason::ApiServerError, "cut"),
        ] {
            assert_eq!(outcome(error.classify("Service shop")), (permanent, reason, message(said)));
        }
    }

    /// Status and finalizer are CRM's own, so no human can correct them.
    #[test]
    fn errors_of_status_and_finalizer_are_transient() {
        for (code, reason, said) in [
            (403, Reason::ApiServerError, "the status: 403: no"),
            (404, Reason::ApiServerError, "the status: 404: no"),
            (409, Reason::Conflict, "the status: no"),
            (422, Reason::ApiServerError, "the status: 422: no"),
            (500, Reason::ApiServerError, "the status: 500: no"),
        ] {
            let error = RequestError::Api(code, "no".to_owned());
            assert_eq!(outcome(error.transient("the status")), (false, reason, said.to_owned()));
        }
    }

    #[test]
    fn events_carry_the_deployment_id() {
        let raw = serde_json::json!({
            "metadata": {
                "name": "shop", "namespace": "n", "uid": "u",
                "annotations": {CORRELATION: "call-1"},
            },
            "spec": {"deployment_unit": {"id": "Shop/cart"}},
        });
        let class = decode(&serde_json::from_value(raw).unwrap());
        let record =
            EventRecord { warning: true, reason: Reason::CrashLoop, note: "é".repeat(MAX_NOTE) };
        let event = event(&class, &record, "crm-0", Timestamp::UNIX_EPOCH);
        let of = |all: Option<std::collections::BTreeMap<String, String>>| {
            all.unwrap().remove("oaas.io/deployment-id").unwrap()
        };
        assert_eq!(of(event.metadata.annotations), "Shop/cart");
        assert_eq!(of(event.metadata.labels), names::label("Shop/cart"));
        assert_eq!(event.regarding.unwrap().uid.as_deref(), Some("u"));
        assert_eq!(event.reporting_instance.as_deref(), Some("crm-0"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let note = event.note.unwrap();
        assert!(note.len() <= MAX_NOTE && note.ends_with("é [call-1]"), "{note}");
    }
}
