//! What CRM does for its clients, whatever they speak: the same checks, errors and cursors.

mod cluster_info;
mod error;
mod flights;
mod list;
mod odgm;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Service as KubeService;
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use oprc_unit::{Identity, Rejection, UnitSpec, names, select, spec::DeploymentUnit, validate};
use serde_json::{Value, json};

pub use self::{
    cluster_info::ClusterInfo,
    error::Error,
    flights::Flights,
    list::{Filter, Page},
};
use crate::{
    cluster::{Begin, Cache, Changed, Contact, Key, Nodes, Watches},
    controller::PlatformNow,
    crd::ClassRuntime,
    deadline::{REQUEST, until},
    leader::Leadership,
    observed::{RawClass, parse, read_spec},
    reconcile::data_protection::guard_data,
    reconcile::{CORRELATION, FINALIZER, ObservedClass, render::DEPLOYMENT_ID},
};

/// The field manager under which specifications are written, by whichever process is asked.
const MANAGER: &str = "oprc-crm-api";
/// How long a watch may be broken before this process says that it isn't well.
const BROKEN: Duration = Duration::from_secs(20);

/// What CRM does for its clients.
pub struct Service {
    /// The way to the API server.
    pub client: Client,
    /// What is known.
    pub cache: Arc<Cache>,
    /// Whether it can be believed.
    pub contact: Contact,
    /// The nodes.
    pub nodes: Arc<Nodes>,
    /// The watches.
    pub watches: Arc<Watches>,
    /// What classes meet.
    pub environment: PlatformNow,
    /// Whether this process leads.
    pub leadership: Leadership,
    /// Where classes go that don't say.
    pub default_namespace: String,
    /// The only namespace there is, where there is one.
    pub only_namespace: Option<String>,
    /// Writes that are under way.
    pub flights: Flights,
    /// Whether this process is to stop.
    pub stopping: tokio::sync::watch::Receiver<bool>,
}

impl Service {
    /// The namespace that a request is about.
    fn namespace(&self, asked: &str) -> Result<String, Error> {
        let namespace = if asked.is_empty() { &self.default_namespace } else { asked };
        if let Some(only) = &self.only_namespace
            && only != namespace
        {
            let message = format!("this CRM serves the namespace {only} only");
            return Err(Error::invalid("namespace", message));
        }
        if !names::is_namespace(namespace) {
            return Err(Error::invalid(
                "namespace",
                format!("{namespace:?} is no name of a namespace"),
            ));
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

    /// Makes a class, or brings it to another specification.
    pub async fn deploy(
        &self,
        namespace: &str,
        id: &str,
        spec: Value,
        correlation_id: &str,
    ) -> Result<Arc<ObservedClass>, Error> {
        let id = Self::deployment_id(id)?;
        let namespace = self.namespace(namespace)?;
        self.ready()?;
        let name = names::class_runtime(id);
        let known = self.cache.class(&(namespace.clone(), name.clone()));
        if known.as_ref().is_some_and(|known| known.deleting.is_some()) {
            return Err(Error::deleting(id));
        }
        let spec = self.check(&namespace, &name, id, spec, known.as_deref())?;
        let object = json!({
            "apiVersion": ClassRuntime::api_version(&()),
            "kind": ClassRuntime::kind(&()),
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {DEPLOYMENT_ID: names::label(id)},
                "annotations": {DEPLOYMENT_ID: id, CORRELATION: correlation_id},
                "finalizers": [FINALIZER],
            },
            "spec": spec,
        });
        let what = object.get("spec").cloned().unwrap_or_default();
        let key = (namespace, name);
        self.flights.share(&key, &what, || self.write(&key, id, &object)).await
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
            .map_err(|error| Error::of_write(error, id))?;
        let class = parse(&written);
        self.cache.put_class(class.clone());
        if class.deleting.is_some() {
            return Err(Error::deleting(id));
        }
        Ok(Arc::new(class))
    }

    /// Everything that can be told to be wrong before anything is written.
    fn check(
        &self,
        namespace: &str,
        name: &str,
        id: &str,
        spec: Value,
        known: Option<&ObservedClass>,
    ) -> Result<UnitSpec, Error> {
        let mut spec = read_spec(spec).map_err(|violation| Error::Invalid(vec![violation]))?;
        let unit = spec.deployment_unit.get_or_insert_with(DeploymentUnit::default);
        if unit.id.is_empty() {
            id.clone_into(&mut unit.id);
        } else if unit.id != id {
            return Err(Error::invalid("spec.deployment_unit.id", "is another than deployment_id"));
        }
        let environment = (self.environment)();
        let identity = Identity {
            name: name.to_owned(),
            base: names::base(name),
            namespace: namespace.to_owned(),
            uid: String::new(),
            generation: 0,
            deployment_id: id.to_owned(),
            environment: spec.target_environment.clone(),
        };
        // The same specification is the same generation, which keeps what it was given.
        let profile = known
            .filter(|known| known.spec.as_ref().is_ok_and(|it| *it == spec))
            .and_then(|known| known.profile_of(known.generation))
            .unwrap_or(environment.profile);
        let valid = validate(profile, identity, &spec, &environment)?;
        let status = known.and_then(|known| known.status.as_ref());
        guard_data(valid.odgm.as_ref(), status, &spec)?;
        select(&valid, &environment, None)?;
        Ok(spec)
    }

    /// A class by the id that it was deployed under, and whether what is told may be out of date.
    pub async fn get(
        &self,
        namespace: &str,
        id: &str,
    ) -> Result<(Arc<ObservedClass>, bool), Error> {
        let id = Self::deployment_id(id)?;
        let namespace = self.namespace(namespace)?;
        let stale = self.contact.is_lost();
        let key = (namespace, names::class_runtime(id));
        if let Some(class) = self.find(&key, id) {
            return Ok((class, stale));
        }
        self.ready()?;
        // Another process may have written it a moment ago.
        match bounded(self.api(&key.0).get_opt(&key.1)).await {
            Ok(Some(object)) => self.cache.put_class(parse(&object)),
            Ok(None) => {}
            Err(error) => return Err(Error::of_read(error)),
        }
        let class = self.find(&key, id).ok_or_else(|| Error::NotFound(id.to_owned()))?;
        Ok((class, false))
    }

    /// One that was made by hand is known by its own name.
    fn find(&self, key: &Key, id: &str) -> Option<Arc<ObservedClass>> {
        let by_name = || self.cache.class(&(key.0.clone(), id.to_owned()));
        let class = self.cache.class(key).filter(|class| has_id(class, id));
        class.or_else(|| by_name().filter(|class| has_id(class, id)))
    }

    /// Marks a class for deletion.
    pub async fn delete(&self, namespace: &str, id: &str) -> Result<(), Error> {
        let (class, _) = self.get(namespace, id).await?;
        if class.deleting.is_some() {
            return Ok(());
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(class.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let answer = bounded(self.api(&class.namespace).delete(&class.name, &params)).await;
        match answer {
            Ok(answer) => {
                if let Some(object) = answer.left() {
                    self.cache.put_class(parse(&object));
                }
                Ok(())
            }
            Err(error) => match Error::of_write(error, id) {
                Error::NotFound(_) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// What becomes of classes.
    pub fn follow(&self, after: Option<u64>) -> (Begin, tokio::sync::broadcast::Receiver<Changed>) {
        self.cache.follow(after)
    }

    /// Refuses to list what isn't known in full: what is left out would look as if it were gone.
    pub fn ready(&self) -> Result<(), Error> {
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("not everything is known yet: {}", missing.join(", "));
        Err(Error::Unavailable { reason: "NOT_READY", message })
    }

    /// Checks a namespace that a request is limited to, where it is.
    pub fn check_namespace(&self, asked: &str) -> Result<(), Error> {
        if asked.is_empty() { Ok(()) } else { self.namespace(asked).map(|_| ()) }
    }

    /// Waits until this process is to stop.
    pub async fn stopped(&self) {
        // One that can't be told any more is stopped.
        let _ = self.stopping.clone().wait_for(|stop| *stop).await;
    }

    /// Why this process isn't ready to serve, if it isn't.
    pub fn missing(&self) -> Vec<String> {
        self.watches.missing()
    }

    /// What couldn't be watched for some time.
    pub fn broken(&self) -> Vec<String> {
        self.contact.broken(BROKEN)
    }

    /// Whether this process is to stop.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    async fn service_address(&self, namespace: &str, name: &str) -> Result<String, Error> {
        let api: Api<KubeService> = Api::namespaced(self.client.clone(), namespace);
        let service = bounded(api.get_opt(name)).await.map_err(Error::of_read)?;
        let address = service.and_then(|it| it.spec?.cluster_ip).filter(|it| it != "None");
        address.ok_or_else(|| Error::Unavailable {
            reason: "NO_ADDRESS",
            message: format!("the Service {name} has no address yet"),
        })
    }
}

/// Whether a class goes by an id.
fn has_id(class: &ObservedClass, id: &str) -> bool {
    deployment_id(class) == id
}

/// The id that a class was deployed under, or its name.
pub fn deployment_id(class: &ObservedClass) -> &str {
    let unit = class.spec.as_ref().ok().and_then(|spec| spec.deployment_unit.as_ref());
    unit.map(|unit| unit.id.as_str()).or(class.deployment_id.as_deref()).unwrap_or(&class.name)
}

/// Labels that a selector such as `a=b,c=d` asks for.
pub(crate) fn parse_selector(selector: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut all = BTreeMap::new();
    for part in selector.split(',').filter(|part| !part.trim().is_empty()) {
        let Some((key, value)) = part.split_once('=').filter(|(key, _)| !key.ends_with('!')) else {
            return Err(Error::invalid("label_selector", format!("{part:?} isn't key=value")));
        };
        let value = value.strip_prefix('=').unwrap_or(value);
        all.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok(all)
}

async fn bounded<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Option<kube::Error>> {
    until(Instant::now() + REQUEST, request).await.ok_or(None)?.map_err(Some)
}

impl From<Rejection> for Error {
    fn from(mut rejection: Rejection) -> Self {
        for violation in &mut rejection.violations {
            violation.field = format!("spec.{}", violation.field);
        }
        if rejection.precondition {
            Self::Precondition(rejection)
        } else {
            Self::Invalid(rejection.violations)
        }
    }
}
