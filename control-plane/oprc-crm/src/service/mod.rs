//! What CRM does for its clients, independent of the protocol.

mod error;
mod list;
mod odgm;
mod single_flight;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use oprc_models::parse_label_selector;
use oprc_unit::{Admitted, Identity, UnitSpec, names, spec::DeploymentUnit};
use serde_json::{Value, json};

pub use self::{
    error::Error,
    list::{Filter, Page},
    single_flight::SingleFlight,
};
use crate::{
    cache::{ApiHealth, Cache, Key, Nodes, Watches},
    controller::PlatformNow,
    crd::ClassRuntime,
    deadline::{REQUEST_TIMEOUT, until},
    decode::{RawClass, decode, deployment_id},
    grid_client::cluster_ip,
    leader::Leadership,
    observations::ObservationStore,
    reason::Reason,
    reconcile::{CORRELATION, FINALIZER, ObservedClass, admission::admit, render::DEPLOYMENT_ID},
};

/// The field manager under which specifications are written, by any process.
const MANAGER: &str = "oprc-crm-api";
/// Annotation: the profile whose sizes and defaults apply.
const PROFILE: &str = "oaas.io/profile";
/// Annotation: the enforcement mode, if the specification sets one.
const ENFORCEMENT: &str = "oaas.io/enforcement";
/// Annotation: the requested template, if the specification sets one.
const TEMPLATE_HINT: &str = "oaas.io/template-hint";
/// How long a watch may fail before this process reports that it isn't ready.
const MAX_WATCH_FAILURE: Duration = Duration::from_secs(20);

pub struct Service {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub api_health: ApiHealth,
    pub nodes: Arc<Nodes>,
    pub watches: Arc<Watches>,
    pub platform: PlatformNow,
    pub leadership: Leadership,
    /// The namespace of requests that name none.
    pub default_namespace: String,
    /// The only namespace that CRM manages; none means all of them.
    pub only_namespace: Option<String>,
    /// Of the leader; empty on other processes.
    pub observations: Arc<ObservationStore>,
    /// Whether metrics are read.
    pub measures: bool,
    /// Whether requirements can be enforced.
    pub enforces: bool,
    pub single_flight: SingleFlight,
    pub stopping: tokio::sync::watch::Receiver<bool>,
}

impl Service {
    fn namespace(&self, requested: &str) -> Result<String, Error> {
        let namespace = if requested.is_empty() { &self.default_namespace } else { requested };
        if let Some(only) = &self.only_namespace
            && only != namespace
        {
            let message = format!("this CRM manages only the namespace {only}");
            return Err(Error::invalid("namespace", message));
        }
        if !names::is_namespace(namespace) {
            let message = format!("{namespace:?} is not a valid namespace name");
            return Err(Error::invalid("namespace", message));
        }
        Ok(namespace.to_owned())
    }

    fn deployment_id(id: &str) -> Result<&str, Error> {
        if id.is_empty() || id.len() > 253 || id.chars().any(char::is_control) {
            return Err(Error::invalid("deployment_id", "must have 1 to 253 printable characters"));
        }
        Ok(id)
    }

    fn api(&self, namespace: &str) -> Api<RawClass> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates a class or changes its specification.
    pub async fn deploy(
        &self,
        namespace: &str,
        id: &str,
        spec: UnitSpec,
        correlation_id: &str,
    ) -> Result<Arc<ObservedClass>, Error> {
        let id = Self::deployment_id(id)?;
        let namespace = self.namespace(namespace)?;
        self.ready()?;
        let name = names::class_runtime(id);
        let known = self.cache.class(&(namespace.clone(), name.clone()));
        match &known {
            Some(known) if known.deleting.is_some() => return Err(Error::deleting(id)),
            Some(known) if deployment_id(known) != id => return Err(Error::name_conflict(id)),
            _ => {}
        }
        let (spec, admitted) = self.check(&namespace, id, spec, known.as_deref())?;
        let object = json!({
            "apiVersion": ClassRuntime::api_version(&()),
            "kind": ClassRuntime::kind(&()),
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {DEPLOYMENT_ID: names::label(id)},
                "annotations": annotations(id, correlation_id, &spec, &admitted),
                "finalizers": [FINALIZER],
            },
            "spec": spec,
        });
        let key = (namespace, name);
        self.single_flight.share(&key, &spec, || self.write(&key, id, &object)).await
    }

    async fn write(
        &self,
        key: &Key,
        id: &str,
        object: &Value,
    ) -> Result<Arc<ObservedClass>, Error> {
        let params = PatchParams::apply(MANAGER).force();
        let api = self.api(&key.0);
        let written = bounded(api.patch(&key.1, &params, &Patch::Apply(object)))
            .await
            .map_err(|error| self.write_error(error, id))?;
        let class = decode(&written);
        self.cache.put_class(class.clone());
        if class.deleting.is_some() {
            return Err(Error::deleting(id));
        }
        Ok(Arc::new(class))
    }

    /// Admits a specification before it is written, as the reconciler does.
    fn check(
        &self,
        namespace: &str,
        id: &str,
        mut spec: UnitSpec,
        known: Option<&ObservedClass>,
    ) -> Result<(UnitSpec, Admitted), Error> {
        let unit = spec.deployment_unit.get_or_insert_with(DeploymentUnit::default);
        if unit.id.is_empty() {
            id.clone_into(&mut unit.id);
        } else if unit.id != id {
            return Err(Error::invalid("spec.deployment_unit.id", "is another than deployment_id"));
        }
        let identity = Identity::for_unit(id, namespace, spec.target_environment.as_deref());
        // The same specification is the same generation, which keeps its selection.
        let former = known
            .filter(|known| known.spec.as_ref().is_ok_and(|it| *it == spec))
            .and_then(|known| known.selection_of(known.generation));
        let status = known.and_then(|known| known.status.as_ref());
        let admitted = admit(identity, &spec, &(self.platform)(), status, former)?;
        Ok((spec, admitted))
    }

    /// A class by its deployment id, and whether it may be out of date.
    pub async fn get(
        &self,
        namespace: &str,
        id: &str,
    ) -> Result<(Arc<ObservedClass>, bool), Error> {
        let id = Self::deployment_id(id)?;
        let namespace = self.namespace(namespace)?;
        let stale = self.api_health.is_stale();
        let key = (namespace, names::class_runtime(id));
        if let Some(class) = self.find(&key, id) {
            return Ok((class, stale));
        }
        self.ready()?;
        // Another replica may have written it a moment ago.
        match bounded(self.api(&key.0).get_opt(&key.1)).await {
            Ok(Some(object)) => self.cache.put_class(decode(&object)),
            Ok(None) => {}
            Err(error) => return Err(self.read_error(error)),
        }
        let class = self.find(&key, id).ok_or_else(|| Error::NotFound(id.to_owned()))?;
        Ok((class, false))
    }

    /// A class that was created by hand is found by its own name.
    fn find(&self, key: &Key, id: &str) -> Option<Arc<ObservedClass>> {
        let find = |key: &Key| self.cache.class(key).filter(|class| deployment_id(class) == id);
        find(key).or_else(|| find(&(key.0.clone(), id.to_owned())))
    }

    /// Marks a class for deletion.
    pub async fn delete(&self, namespace: &str, id: &str) -> Result<(), Error> {
        let (class, _) = self.get(namespace, id).await?;
        if class.deleting.is_some() {
            return Ok(());
        }
        let preconditions = Preconditions { uid: Some(class.uid.clone()), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        match bounded(self.api(&class.namespace).delete(&class.name, &params)).await {
            Ok(response) => {
                if let Some(object) = response.left() {
                    self.cache.put_class(decode(&object));
                }
                Ok(())
            }
            Err(error) => match self.write_error(error, id) {
                Error::NotFound(_) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Rejects requests while the caches are incomplete: a missing class would look deleted.
    pub fn ready(&self) -> Result<(), Error> {
        let missing = self.watches.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let message =
            format!("CRM is starting, its caches are not synced yet: {}", missing.join(", "));
        Err(Error::Unavailable { reason: Reason::NotReady, message })
    }

    /// An empty namespace means all of them.
    pub fn check_namespace(&self, requested: &str) -> Result<(), Error> {
        if requested.is_empty() { Ok(()) } else { self.namespace(requested).map(|_| ()) }
    }

    /// Waits for shutdown.
    pub async fn stopped(&self) {
        oprc_server::stopped(self.stopping.clone()).await;
    }

    /// Watches that have been failing for some time.
    pub fn failing_watches(&self) -> Vec<String> {
        self.api_health.failing_watches(MAX_WATCH_FAILURE)
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    fn read_error(&self, error: Option<kube::Error>) -> Error {
        Error::of_read(error, self.api_health.retry_after())
    }

    fn write_error(&self, error: Option<kube::Error>, id: &str) -> Error {
        Error::of_write(error, id, self.api_health.retry_after())
    }

    async fn service_address(&self, namespace: &str, name: &str) -> Result<String, Error> {
        let address = bounded(cluster_ip(&self.client, namespace, name)).await;
        let address = address.map_err(|error| self.read_error(error))?;
        address.ok_or_else(|| Error::Unavailable {
            reason: Reason::ServiceAddressPending,
            message: format!("Service {name} has no cluster IP yet"),
        })
    }
}

/// Server-side apply removes an annotation that a former Deploy call set and this one doesn't.
fn annotations(
    id: &str,
    correlation_id: &str,
    spec: &UnitSpec,
    admitted: &Admitted,
) -> BTreeMap<&'static str, Value> {
    let enforcement = spec.nfr.as_ref().and_then(|nfr| nfr.enforcement.as_ref());
    let all = [
        (DEPLOYMENT_ID, Some(json!(id))),
        (CORRELATION, Some(json!(correlation_id))),
        (PROFILE, Some(json!(admitted.selection.profile.as_str()))),
        (ENFORCEMENT, enforcement.map(|it| json!(it.mode))),
        (TEMPLATE_HINT, admitted.class.template.as_ref().map(|it| json!(it))),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Parses a selector such as `a=b,c=d`.
pub(crate) fn parse_selector(selector: &str) -> Result<BTreeMap<String, String>, Error> {
    let invalid = |part| Error::invalid("label_selector", format!("{part:?} is not KEY=VALUE"));
    let requirements = parse_label_selector(selector).map_err(invalid)?.into_iter();
    requirements.map(|(key, value)| Ok((key.clone(), value.ok_or_else(|| invalid(key))?))).collect()
}

async fn bounded<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Option<kube::Error>> {
    until(Instant::now() + REQUEST_TIMEOUT, request).await.ok_or(None)?.map_err(Some)
}

#[cfg(test)]
mod tests {
    use oprc_unit::{Platform, Profile};

    use super::*;

    fn annotations_of(spec: Value, platform: &Platform) -> Value {
        let spec: UnitSpec = serde_json::from_value(spec).unwrap();
        let identity = Identity::for_unit("shop", "n", None);
        let admitted = admit(identity, &spec, platform, None, None).unwrap();
        json!(annotations("shop", "call-1", &spec, &admitted))
    }

    #[test]
    fn annotations_name_profile_enforcement_and_template() {
        let platform = Platform::of(Profile::Edge);
        let plain = json!({"function": {"image": "img"}});
        let ids = json!({"oaas.io/deployment-id": "shop", "oaas.io/correlation-id": "call-1"});
        let with = |more: Value| {
            let mut all = ids.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        assert_eq!(
            annotations_of(plain.clone(), &platform),
            with(json!({"oaas.io/profile": "edge"})),
            "optional annotations are omitted"
        );
        for field in ["selected_template", "template_hint"] {
            let mut spec = plain.clone();
            spec[field] = json!("full");
            spec["nfr"] = json!({"enforcement": {"mode": "enforce"}});
            let expected = with(json!({
                "oaas.io/profile": "full", "oaas.io/enforcement": "enforce",
                "oaas.io/template-hint": "full",
            }));
            assert_eq!(annotations_of(spec, &platform), expected, "the template selects a profile");
        }
        let mut default_mode = plain;
        default_mode["nfr"] = json!({"enforcement": {}});
        let annotations = annotations_of(default_mode, &platform);
        assert_eq!(annotations["oaas.io/enforcement"], "observe");
    }

    #[test]
    fn repeated_deploy_keeps_the_profile_of_the_selection() {
        let spec: UnitSpec = serde_json::from_value(json!({"function": {"image": "img"}})).unwrap();
        let deploy = |platform: &Platform, former| {
            let identity = Identity::for_unit("shop", "n", None);
            admit(identity, &spec, platform, None, former).unwrap()
        };
        let first = deploy(&Platform::of(Profile::Edge), None);
        let former = first.selection.status(1);
        // CRM was restarted with another profile in between.
        let second = deploy(&Platform::of(Profile::Full), Some(&former));
        let annotations = |admitted| annotations("shop", "call-1", &spec, admitted);
        assert_eq!(annotations(&first), annotations(&second));
    }
}
