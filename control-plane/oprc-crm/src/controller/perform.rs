//! Performs actions: the only place that writes to the cluster, and only while this process leads.

use std::{sync::Arc, time::Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
    core::DynamicObject,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use serde_json::{Value, json};

use crate::{
    cluster::Cache,
    crd::{ClassRuntime, ClassRuntimeStatus},
    deadline::{REQUEST, until},
    kinds::Kind,
    leader::Leadership,
    observed::{RawClass, parse},
    reconcile::{
        Action, FINALIZER, Notice, ObservedClass,
        diff::Write,
        observe::{Child, MANAGER},
        report::Failure,
    },
};

/// What the API server takes as the note of an Event.
const NOTE: usize = 1024;

/// Why an action wasn't performed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process doesn't lead.
    #[error("this process doesn't lead")]
    NotLeading,
    /// The class has to be told.
    #[error("{}: {}", .0.reason, .0.message)]
    Told(Failure),
    /// It may well work another time. The class is told only if it never does.
    #[error("{}: {}", .0.reason, .0.message)]
    Passing(Failure),
}

/// Writes to the cluster.
pub struct Hands {
    /// The way there.
    pub client: Client,
    /// Where what was written is put, so that it is seen at once.
    pub cache: Arc<Cache>,
    /// Whether anything may be written.
    pub leadership: Leadership,
    /// Who tells Events.
    pub reporter: Reporter,
}

impl Hands {
    /// Performs one action. `version` is the class's latest version, where writes depend on it.
    pub async fn perform(
        &self,
        class: &ObservedClass,
        version: &mut String,
        action: &Action,
    ) -> Result<(), Error> {
        // No write may still be under way when somebody else leads.
        let Some(leads) = self.leadership.until() else { return Err(Error::NotLeading) };
        let end = leads.min(Instant::now() + REQUEST);
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
            Action::Apply(write) => self.apply(class, write, end).await,
            Action::Delete(child) => self.delete(child, end).await,
            Action::Status(status) => self.status(class, version, status, end).await,
            Action::Event(notice) => {
                self.event(class, notice, end).await;
                Ok(())
            }
        }
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
            Ok(written) => {
                self.seen(version, &written);
                Ok(())
            }
            // It is gone: nothing is left to be kept or let go.
            Err(Refused::Api(404, _)) => Ok(()),
            Err(refused) => Err(refused.passing("the finalizer")),
        }
    }

    async fn apply(&self, class: &ObservedClass, write: &Write, end: Instant) -> Result<(), Error> {
        let wanted = &write.wanted;
        let mut object = wanted.object.clone();
        if let (Some(uid), Some(meta)) =
            (&write.uid, object.get_mut("metadata").and_then(Value::as_object_mut))
        {
            // A change of what is there must never make anew what has gone.
            meta.insert("uid".to_owned(), uid.clone().into());
        }
        let api = self.api(&wanted.kind, &class.namespace);
        let mut params = PatchParams::apply(MANAGER);
        // Who makes something may not have heard yet that somebody else has just made it: where the
        // two differ the API server says whose fields they are, and the next look finds the name
        // taken.
        params.force = write.uid.is_some();
        match bounded(end, api.patch(&wanted.name, &params, &Patch::Apply(&object))).await {
            Ok(written) => {
                let child = Child::of(&wanted.kind, &written).answering(&wanted.object);
                self.cache.put_child(child);
                Ok(())
            }
            Err(refused) => Err(refused.told(&format!("{} {}", wanted.kind, wanted.name))),
        }
    }

    async fn delete(&self, child: &Child, end: Instant) -> Result<(), Error> {
        let api = self.api(&child.kind, &child.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(child.uid.clone()),
                resource_version: None,
            }),
            // It is gone when what it stands for is gone.
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        let key = (child.namespace.clone(), child.name.clone());
        match bounded(end, api.delete(&child.name, &params)).await {
            Ok(answer) => match answer.left() {
                Some(going) => self.cache.put_child(Child::of(&child.kind, &going)),
                None => self.cache.remove_child(&child.kind, &key, &child.uid),
            },
            Err(Refused::Api(404, _)) => {
                self.cache.remove_child(&child.kind, &key, &child.uid);
            }
            Err(refused) => {
                return Err(refused.told(&format!("deleting {} {}", child.kind, child.name)));
            }
        }
        Ok(())
    }

    async fn status(
        &self,
        class: &ObservedClass,
        version: &mut String,
        status: &ClassRuntimeStatus,
        end: Instant,
    ) -> Result<(), Error> {
        let mut status = status.clone();
        // Written by whoever analyses requirements, under a name of its own.
        status.nfr_recommendations.clear();
        status.last_applied_recommendations.clear();
        status.last_applied_at = None;
        let object = json!({
            "apiVersion": ClassRuntime::api_version(&()),
            "kind": ClassRuntime::kind(&()),
            "metadata": {
                "name": class.name, "namespace": class.namespace,
                "uid": class.uid, "resourceVersion": version,
            },
            "status": status,
        });
        let api = self.classes(&class.namespace);
        let params = PatchParams::apply(MANAGER).force();
        match bounded(end, api.patch_status(&class.name, &params, &Patch::Apply(&object))).await {
            Ok(written) => {
                self.seen(version, &written);
                Ok(())
            }
            Err(refused) => Err(refused.passing("the status")),
        }
    }

    fn seen(&self, version: &mut String, written: &RawClass) {
        if let Some(latest) = &written.metadata.resource_version {
            version.clone_from(latest);
        }
        let gone = written.metadata.deletion_timestamp.is_some()
            && written.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        // One without finalizers that is going is gone: the watch will say so.
        if !gone {
            self.cache.put_class(parse(written));
        }
    }

    /// An Event that can't be told is no reason to stop.
    async fn event(&self, class: &ObservedClass, notice: &Notice, end: Instant) {
        let regarding = ObjectReference {
            api_version: Some(ClassRuntime::api_version(&()).into_owned()),
            kind: Some(ClassRuntime::kind(&()).into_owned()),
            name: Some(class.name.clone()),
            namespace: Some(class.namespace.clone()),
            uid: Some(class.uid.clone()),
            ..ObjectReference::default()
        };
        let id = class.correlation_id.as_ref().map_or_else(String::new, |id| format!(" [{id}]"));
        let mut note = notice.note.clone();
        while note.len() + id.len() > NOTE && note.pop().is_some() {}
        note.push_str(&id);
        let event = Event {
            type_: if notice.warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason.clone(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        // One for each: a recorder that remembers would repeat the note of an earlier Event that
        // has the same reason.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        match until(end, recorder.publish(&event, &regarding)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(%error, "an Event couldn't be told"),
            None => tracing::debug!("an Event couldn't be told in time"),
        }
        tracing::info!(reason = notice.reason, note = notice.note, "told");
    }
}

/// Why the API server didn't do what it was asked.
enum Refused {
    Api(u16, String),
    Other(String),
}

async fn bounded<T>(
    end: Instant,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Refused> {
    match until(end, request).await {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(kube::Error::Api(status))) => {
            Err(Refused::Api(status.code, status.message.clone()))
        }
        Some(Err(error)) => Err(Refused::Other(error.to_string())),
        None => Err(Refused::Other("no answer in time".to_owned())),
    }
}

impl Refused {
    fn passing(self, what: &str) -> Error {
        let (reason, message) = match self {
            Self::Api(409, message) => ("Conflict", message),
            Self::Api(code, message) => ("ApiServerFails", format!("{code}: {message}")),
            Self::Other(message) => ("ApiServerFails", message),
        };
        Error::Passing(Failure { reason, message: format!("{what}: {message}") })
    }

    /// What only a human can change is told; what passes isn't.
    fn told(self, what: &str) -> Error {
        let (code, message) = match self {
            Self::Api(code @ (400 | 403 | 404 | 405 | 413 | 422), message) => (code, message),
            other => return other.passing(what),
        };
        let reason = match code {
            403 if message.contains("exceeded quota") => "QuotaExceeded",
            403 => "Forbidden",
            404 => "KindMissing",
            _ => "Rejected",
        };
        Error::Told(Failure { reason, message: format!("{what}: {message}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a rejection: whether it is told at once, its reason, and its message.
    fn outcome(error: Error) -> (bool, &'static str, String) {
        match error {
            Error::Told(failure) => (true, failure.reason, failure.message),
            Error::Passing(failure) => (false, failure.reason, failure.message),
            Error::NotLeading => panic!("{error}"),
        }
    }

    #[test]
    fn what_only_a_human_can_change_is_told_at_once() {
        let api = |code, message: &str| Refused::Api(code, message.to_owned());
        let quota = "pods \"p\" is forbidden: exceeded quota: few";
        let message = |said: &str| format!("Service shop: {said}");
        for (refused, told, reason, said) in [
            (api(400, "no JSON"), true, "Rejected", "no JSON"),
            (api(401, "who?"), false, "ApiServerFails", "401: who?"),
            (api(403, "may not"), true, "Forbidden", "may not"),
            (api(403, quota), true, "QuotaExceeded", quota),
            (api(404, "not found"), true, "KindMissing", "not found"),
            (api(405, "not so"), true, "Rejected", "not so"),
            (api(409, "changed"), false, "Conflict", "changed"),
            (api(413, "too large"), true, "Rejected", "too large"),
            (api(422, "immutable"), true, "Rejected", "immutable"),
            (api(429, "later"), false, "ApiServerFails", "429: later"),
            (api(500, "webhook"), false, "ApiServerFails", "500: webhook"),
            (api(503, "away"), false, "ApiServerFails", "503: away"),
            (Refused::Other("cut".to_owned()), false, "ApiServerFails", "cut"),
        ] {
            assert_eq!(outcome(refused.told("Service shop")), (told, reason, message(said)));
        }
    }

    /// The status and the finalizer are CRM's own: nobody is to mend them.
    #[test]
    fn what_may_pass_is_never_told_at_once() {
        for (code, reason, said) in [
            (403, "ApiServerFails", "the status: 403: no"),
            (404, "ApiServerFails", "the status: 404: no"),
            (409, "Conflict", "the status: no"),
            (422, "ApiServerFails", "the status: 422: no"),
            (500, "ApiServerFails", "the status: 500: no"),
        ] {
            let refused = Refused::Api(code, "no".to_owned());
            assert_eq!(outcome(refused.passing("the status")), (false, reason, said.to_owned()));
        }
    }
}
