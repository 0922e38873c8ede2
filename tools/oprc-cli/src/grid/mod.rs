//! Client of the data grid of a class.

mod args;
mod lines;
mod problem;
mod transport;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
    http::request::Builder,
};
use oprc_rest::UnitStatus;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

pub(crate) use self::{
    args::GridArgs,
    lines::{Lines, parse_json},
};
use self::{
    problem::{GridProblem, MemberPlace},
    transport::{GridBody, ServiceRef, Transport},
};
use crate::{
    client::{escape, read_body},
    contexts::Context,
    deployed_unit::{DeployedUnit, any_member},
    error::CliError,
    kube::{KubeArgs, connect_without_retries},
    output::{duration, note},
    service_proxy::proxy_base,
    tunnel,
};

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// The id of the only object of a SINGLETON class.
const SINGLETON: &str = "singleton";
const DEFAULT_PORT: u16 = 8081;
const MAX_PROBLEM_BYTES: usize = 1 << 20;
/// First and longest delay before a request is repeated.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// When a request is sent again, within the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// It has the same effect if it is sent twice: also if its outcome is unknown.
    Idempotent,
    /// Only if the data grid says that it had no effect.
    IfNotApplied,
}

/// A request to the data grid.
#[derive(Clone, Debug)]
pub(crate) struct GridRequest {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// JSON.
    pub(crate) body: Bytes,
    pub(crate) retry: Retry,
}

impl GridRequest {
    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, Retry::Idempotent)
    }

    pub(crate) fn new(method: Method, path: String, retry: Retry) -> Self {
        Self { method, path, headers: Vec::new(), body: Bytes::new(), retry }
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

/// The data grid of one class.
pub(crate) struct Grid {
    transport: Transport,
    /// What the user calls the class.
    name: String,
    collection: Option<String>,
    timeout: Duration,
    singleton: bool,
    other_members: Option<OtherMembers>,
}

/// The units that have other objects of the class, and how they are reached.
struct OtherMembers {
    units: Vec<DeployedUnit>,
    context: Context,
}

impl Grid {
    /// The grid of a unit, through the API server of its cluster.
    pub(crate) async fn of_unit(
        name: &str,
        unit: &DeployedUnit,
        access: &KubeArgs,
        context: &Context,
        limit: Duration,
    ) -> Result<Self> {
        let service = service_of(name, &unit.status)?;
        let cluster = connect_without_retries(access, context, &unit.status.cluster).await?;
        let base = proxy_base(&service.namespace, &service.name, service.port);
        let transport = Transport::Proxied { cluster, base, service };
        let (name, singleton) = (name.to_owned(), unit.is_singleton());
        Ok(Self {
            transport,
            name,
            collection: None,
            timeout: limit,
            singleton,
            other_members: None,
        })
    }

    /// The grid of any of the units that divide the objects of a class among them, or of the only unit.
    /// Calls of objects elsewhere are sent to their grids, unless the cluster is given by a kubeconfig.
    pub(crate) async fn of_members(
        name: &str,
        units: Vec<DeployedUnit>,
        access: &KubeArgs,
        context: &Context,
        limit: Duration,
    ) -> Result<Self> {
        let first = any_member(units.clone())?;
        let grid = Self::of_unit(name, &first, access, context, limit).await?;
        let is_given = access.kubeconfig.is_some() || access.kube_context.is_some();
        let context = context.clone();
        let others = (units.len() > 1 && !is_given).then_some(OtherMembers { units, context });
        Ok(Self { other_members: others, ..grid })
    }

    /// The grid of the member that has an object; none if it isn't known.
    async fn member_at(&self, place: &MemberPlace) -> Result<Option<Self>> {
        let Some(OtherMembers { units, context }) = &self.other_members else { return Ok(None) };
        let is_there = |it: &&DeployedUnit| {
            it.status.cluster == place.cluster && it.status.environment == place.environment
        };
        let Some(unit) = units.iter().find(is_there) else { return Ok(None) };
        let access = KubeArgs::default();
        let grid = Self::of_unit(&self.name, unit, &access, context, self.timeout).await?;
        Ok(Some(grid))
    }

    /// A grid that can be reached directly.
    pub(crate) fn at(name: &str, url: &str, limit: Duration) -> Result<Self> {
        let transport = Transport::direct(url)?;
        let name = name.to_owned();
        let (collection, singleton, other_members) = (None, false, None);
        Ok(Self { transport, name, collection, timeout: limit, singleton, other_members })
    }

    pub(crate) fn with_collection(self, collection: Option<String>) -> Self {
        Self { collection, ..self }
    }

    /// What the user calls the class.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_singleton(&self) -> bool {
        self.singleton
    }

    /// The id of a command line. A SINGLETON class needs none.
    pub(crate) fn object_id<'a>(&self, id: Option<&'a str>) -> Result<&'a str, CliError> {
        match id {
            Some(id) => Ok(id),
            None if self.singleton => Ok(SINGLETON),
            None => Err(CliError::InvalidInput(format!(
                "the class has many objects; give the id of one, see `oprc object list {}`",
                self.name
            ))),
        }
    }

    /// The path of the objects of the collection.
    pub(crate) fn objects(&self) -> String {
        match &self.collection {
            Some(collection) => format!("/collections/{}/objects", escape(collection)),
            None => "/objects".to_owned(),
        }
    }

    pub(crate) fn object(&self, id: &str) -> String {
        format!("{}/{}", self.objects(), escape(id))
    }

    /// A URL for gRPC calls, while the command runs.
    pub(crate) async fn grpc_url(&self) -> Result<String> {
        match &self.transport {
            Transport::Direct { url, .. } => Ok(url.clone()),
            Transport::Proxied { cluster, service, .. } => {
                let ServiceRef { namespace, name, port } = service;
                tunnel::open_to(cluster, namespace, name, Some(*port)).await
            }
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T> {
        Ok(parse_json(&self.send(&GridRequest::get(path)).await?.into_body())?)
    }

    /// Sends a request until it succeeds or can't succeed any more, and reads the response. If another
    /// member has the object, the request is sent to its grid.
    pub(crate) async fn send(&self, request: &GridRequest) -> Result<Response<Bytes>> {
        let mut answer = self.send_here(request).await?;
        if let Err(problem) = &answer
            && let Some(place) = &problem.member
            && let Some(other) =
                self.member_at(place).await.with_context(|| problem.summary().to_owned())?
        {
            answer = other.send_here(request).await?;
        }
        answer.map_err(|problem| problem.into_error(&self.name).into())
    }

    async fn send_here(
        &self,
        request: &GridRequest,
    ) -> Result<Result<Response<Bytes>, GridProblem>> {
        let deadline = Instant::now() + self.timeout;
        let mut delay = RETRY_DELAY.0;
        let mut waiting = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let attempt = timeout(left, self.attempt(request)).await;
            let problem = match attempt.map_err(|_| self.timed_out())?? {
                Ok(response) => return Ok(Ok(response)),
                Err(problem) => problem,
            };
            let again = problem.is_transient()
                || (problem.is_ambiguous() && request.retry == Retry::Idempotent);
            if !again || Instant::now() + delay >= deadline {
                return Ok(Err(problem));
            }
            if !waiting {
                note(&format!("waiting for the data grid: {}", problem.summary()));
                waiting = true;
            }
            sleep(delay).await;
            delay = (delay * 2).min(RETRY_DELAY.1);
        }
    }

    async fn attempt(&self, request: &GridRequest) -> Result<Result<Response<Bytes>, GridProblem>> {
        let response = self.transport.send(self.builder(request), request.body.clone()).await?;
        let (parts, body) = response.into_parts();
        if parts.status.is_success() {
            return Ok(Ok(Response::from_parts(parts, read_body(body).await?)));
        }
        Ok(Err(problem(parts.status, body).await))
    }

    /// Opens a stream of lines. The timeout is that of the first response.
    pub(crate) async fn stream(&self, request: &GridRequest) -> Result<Lines> {
        let sent = self.transport.send(self.builder(request), request.body.clone());
        let response = timeout(self.timeout, sent).await.map_err(|_| self.timed_out())??;
        let (status, body) = (response.status(), response.into_body());
        if status.is_success() {
            return Ok(Lines::new(body));
        }
        let problem = timeout(self.timeout, problem(status, body)).await;
        bail!(problem.map_err(|_| self.timed_out())?.into_error(&self.name))
    }

    /// Sends a file of lines, and reads the response.
    pub(crate) async fn upload<T: DeserializeOwned>(&self, path: &str, file: &Path) -> Result<T> {
        let request = Request::post(self.transport.uri(path)).header(USER_AGENT, AGENT);
        let request = request.header(CONTENT_TYPE, NDJSON);
        let sent = async {
            let response = self.transport.upload(request, file).await?;
            let (status, body) = (response.status(), response.into_body());
            if status.is_success() {
                return Ok(parse_json(&read_body(body).await?)?);
            }
            bail!(problem(status, body).await.into_error(&self.name))
        };
        timeout(self.timeout, sent).await.map_err(|_| self.timed_out())?
    }

    fn builder(&self, request: &GridRequest) -> Builder {
        let mut builder = Request::builder()
            .method(request.method.clone())
            .uri(self.transport.uri(&request.path))
            .header(USER_AGENT, AGENT);
        if !request.body.is_empty() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        builder
    }

    fn timed_out(&self) -> CliError {
        let (name, limit) = (&self.name, duration::short(self.timeout));
        CliError::Unavailable(format!(
            "the data grid of {name} did not respond within {limit}; see --timeout and \
             `oprc grid status {name}`"
        ))
    }
}

const AGENT: &str = concat!("oprc/", env!("CARGO_PKG_VERSION"));

async fn problem(status: StatusCode, body: GridBody) -> GridProblem {
    let body = Limited::new(body, MAX_PROBLEM_BYTES).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    GridProblem::parse(status, &body)
}

pub(crate) fn no_grid(name: &str, unit: &UnitStatus) -> CliError {
    CliError::NotFound(format!(
        "class {} has no data grid; a class needs a stateSpec for one, see `oprc status {name}`",
        unit.class
    ))
}

/// From an address such as `counter--counter-odgm-svc:8081`.
fn service_of(name: &str, unit: &UnitStatus) -> Result<ServiceRef, CliError> {
    let grid = unit.odgm.as_ref().filter(|it| !it.service.is_empty());
    let grid = grid.ok_or_else(|| no_grid(name, unit))?;
    let address = grid.service.strip_prefix("http://").unwrap_or(&grid.service);
    let (host, port) = match address.trim_end_matches('/').split_once(':') {
        Some((host, port)) => (host, port.parse().unwrap_or(DEFAULT_PORT)),
        None => (address.trim_end_matches('/'), DEFAULT_PORT),
    };
    let mut labels = host.split('.');
    let service = labels.next().unwrap_or_default().to_owned();
    let namespace = labels.next().map_or_else(|| unit.namespace.clone(), str::to_owned);
    Ok(ServiceRef { namespace, name: service, port })
}

/// An idempotency key that no other request has.
pub(crate) fn new_idempotency_key() -> String {
    format!("oprc-{:032x}", fastrand::u128(..))
}

/// A JSON object of a command line; `source` says where it is from.
pub(crate) fn json_object(text: &str, source: &str) -> Result<Map<String, Value>, CliError> {
    serde_json::from_str(text).map_err(|error| {
        CliError::InvalidInput(format!(
            "{source}: must be a JSON object such as {{\"value\": 0}}: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use oprc_rest::GridStatus;

    use super::*;

    #[test]
    fn the_service_is_in_the_namespace_of_its_unit() {
        let service = |address: &str| {
            let odgm = GridStatus { service: address.to_owned(), ..GridStatus::default() };
            let namespace = "shop".to_owned();
            let unit = UnitStatus { namespace, odgm: Some(odgm), ..UnitStatus::default() };
            let ServiceRef { namespace, name, port } = service_of("cart", &unit).unwrap();
            (namespace, name, port)
        };
        let expected =
            |namespace: &str, name: &str, port| (namespace.to_owned(), name.to_owned(), port);
        assert_eq!(service("cart-odgm-svc:8081"), expected("shop", "cart-odgm-svc", 8081));
        assert_eq!(service("http://odgm.prod.svc:9000/"), expected("prod", "odgm", 9000));
        assert_eq!(service("odgm"), expected("shop", "odgm", 8081));
        let error = service_of("cart", &UnitStatus::default()).unwrap_err().to_string();
        assert!(error.contains("stateSpec") && error.contains("oprc status cart"), "{error}");
    }
}
