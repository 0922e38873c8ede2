//! `oprc invoke`: calls a function of a class over HTTP, or all that a macro calls.

mod flow;

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, Request, StatusCode, Uri, header::HOST};
use k8s_openapi::api::core::v1;
use kube::Api;
use oprc_models::{Access as Openness, Macro};
use oprc_rest::{
    BindingEntry, ClassEntry, Deployment, FunctionEntry, FunctionStatus, PackageVersion, UnitStatus,
};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use self::flow::Asked;
use super::package::filtered;
use crate::{
    client::{Client, escape},
    contexts::Context,
    failure::Failure,
    files,
    kube::{Access, connect, failure, within},
    output::{age, print_bytes, say},
    remote::Remote,
};

/// No answer is read beyond this.
const MAX_ANSWER: usize = 64 << 20;
/// How long a public address may take to be reached.
const REACHED: Duration = Duration::from_secs(3);
/// Macros call macros no deeper than this.
const DEEPEST: usize = 8;

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Addresses that can't be reached from here are called through the cluster's API server, and all are where --kubeconfig or --kube-context says how.\n\nExamples:\n  oprc invoke hello greet --path '/?name=you'\n  oprc invoke counter increment -d '{\"by\": 2}'\n  echo '{}' | oprc invoke counter -d @-\n  oprc invoke shapes scaled-area --class Circle -d '{\"object\": {\"label\": \"a\"}, \"args\": {\"factor\": 2}}'"
)]
pub(crate) struct Command {
    /// The deployment.
    deployment: String,
    /// The function, by the name that the class offers it under; its default one where left out.
    function: Option<String>,
    /// What to send: a text, or @FILE, or @- for standard input.
    #[arg(long, short)]
    data: Option<String>,
    /// The path and query to call.
    #[arg(long, default_value = "/")]
    path: String,
    /// The method: POST where something is sent, GET otherwise.
    #[arg(long, short = 'X')]
    method: Option<Method>,
    /// A header to send, as 'Name: value'; may be said again.
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// The class, where the deployment has several.
    #[arg(long)]
    class: Option<String>,
    /// The cluster, where it runs on several.
    #[arg(long)]
    cluster: Option<String>,
    /// How long the answer may take.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = age::parse)]
    timeout: Duration,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    remote: Remote,
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let client = command.remote.client().await?;
    let path = format!("/deployments/{}", escape(&command.deployment));
    let found: Deployment = client.get(&path).await?;
    let unit = choose_unit(&command, &found)?;
    let bindings = bindings(&client, &found, &unit.class).await?;
    let function = choose_function(unit, &bindings, command.function.as_deref())?;
    let data = match command.data.as_deref().map(|data| (data, data.strip_prefix('@'))) {
        Some((_, Some(file))) => Some(files::read(Path::new(file))?),
        Some((data, None)) => Some(data.to_owned()),
        None => None,
    };
    let context = command.remote.settle()?;
    let caller = Caller { command: &command, context: &context, client: &client, unit };
    let called = async {
        if function.invocation_url.is_none() {
            let package = Place::of(&found);
            let own = caller.place(&package, &function.key).await?;
            if let Some(flow) = caller.macro_at(&own).await? {
                let asked = Asked::read(data.as_deref())?;
                let result = caller.take(&own, &flow, &asked, 0).await?;
                return Ok((StatusCode::OK, format!("{result}\n").into()));
            }
        }
        caller.call(function, data, command.method.clone()).await
    };
    let late = |_| Failure::Away(format!("no answer within {}", age::short(command.timeout)));
    let (status, body) = timeout(command.timeout, called).await.map_err(late)??;
    // Just what the function said, whatever it is.
    print_bytes(&body)?;
    if body.last().is_some_and(|last| *last != b'\n') {
        say("");
    }
    if !status.is_success() {
        return Err(Failure::Failed(format!("{} answered {status}", function.key)).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// The unit to call: one that runs before one that doesn't.
fn choose_unit<'a>(command: &Command, found: &'a Deployment) -> Result<&'a UnitStatus, Failure> {
    let fits = |unit: &&UnitStatus| {
        command.class.as_ref().is_none_or(|it| *it == unit.class)
            && command.cluster.as_ref().is_none_or(|it| *it == unit.cluster)
    };
    let units: Vec<_> = found.status.units.iter().filter(fits).collect();
    let mut classes: Vec<_> = units.iter().map(|unit| unit.class.as_str()).collect();
    classes.sort_unstable();
    classes.dedup();
    if classes.len() > 1 {
        let classes = classes.join(", ");
        return Err(Failure::Wrong(format!("there are several classes: --class, of: {classes}")));
    }
    let running = units.iter().find(|unit| unit.condition == oprc_rest::Condition::Running);
    running
        .or(units.first())
        .copied()
        .ok_or_else(|| Failure::Missing(format!("{} runs nowhere that fits", command.deployment)))
}

/// What a class offers.
async fn bindings(client: &Client, found: &Deployment, class: &str) -> Result<Vec<BindingEntry>> {
    let (package, version) = (found.plan.package.clone(), found.plan.version.clone());
    let filters = [("package", Some(package)), ("version", Some(version))];
    let all: Vec<ClassEntry> = known(client.list(&format!("/classes{}", filtered(filters))).await)?;
    let found = all.into_iter().find(|it| it.key == class);
    Ok(found.map(|it| it.functions).unwrap_or_default())
}

/// What is known of a package. What was adopted runs, though its package was lost with the store: then
/// that is nothing, and functions go by their keys.
fn known<T>(all: Result<Vec<T>>) -> Result<Vec<T>> {
    match all {
        Err(error) if matches!(error.downcast_ref(), Some(Failure::Missing(_))) => Ok(Vec::new()),
        all => all,
    }
}

/// The function to call: by the name it is offered under, by its own, or the default one.
fn choose_function<'a>(
    unit: &'a UnitStatus,
    bindings: &[BindingEntry],
    name: Option<&str>,
) -> Result<&'a FunctionStatus, Failure> {
    let binding = match name {
        Some(name) => bindings.iter().find(|it| it.name == name),
        None => bindings.iter().find(|it| it.default_route),
    };
    if let Some(binding) = binding.filter(|it| it.access == Openness::Private.to_string()) {
        let told = format!("{} is PRIVATE: only its own class calls it", binding.name);
        return Err(Failure::Refused(told));
    }
    // Functions of other packages are named with them.
    let bare = |name: &str| name.rsplit_once('.').map_or(name, |(_, key)| key).to_owned();
    let key = binding.map(|it| it.function.clone()).or(name.map(str::to_owned));
    let chosen = match (&key, unit.functions.as_slice()) {
        (Some(key), all) => all.iter().find(|it| it.key == *key || bare(&it.key) == bare(key)),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    chosen.ok_or_else(|| {
        let mut known: Vec<_> = bindings.iter().map(|it| it.name.as_str()).collect();
        if known.is_empty() {
            known = unit.functions.iter().map(|it| it.key.as_str()).collect();
        }
        let (class, known) = (&unit.class, known.join(", "));
        match name {
            Some(name) => Failure::Missing(format!("{class} offers no {name:?}, only: {known}")),
            None => {
                Failure::Wrong(format!("{class} has no default function: name one of: {known}"))
            }
        }
    })
}

/// A function of a package.
#[derive(Clone, Debug)]
struct Place {
    package: String,
    version: String,
    key: String,
}

impl Place {
    /// The package of a deployment, and none of its functions yet.
    fn of(found: &Deployment) -> Self {
        let (package, version) = (found.plan.package.clone(), found.plan.version.clone());
        Self { package, version, key: String::new() }
    }
}

/// Whoever calls functions of a unit.
struct Caller<'a> {
    command: &'a Command,
    context: &'a Context,
    client: &'a Client,
    unit: &'a UnitStatus,
}

impl Caller<'_> {
    /// The package that a function is of which another names, as its own or as one of a dependency.
    async fn place(&self, from: &Place, function: &str) -> Result<Place> {
        let Some((package, key)) = function.split_once('.') else {
            return Ok(Place { key: function.to_owned(), ..from.clone() });
        };
        let path =
            format!("/packages/{}/versions/{}", escape(&from.package), escape(&from.version));
        let mut found: PackageVersion = self.client.get(&path).await?;
        let missing = || Failure::Missing(format!("{} depends on no {package}", from.package));
        let version = found.resolved.remove(package).ok_or_else(missing)?;
        Ok(Place { package: package.to_owned(), version, key: key.to_owned() })
    }

    /// The steps of a function, where it is a macro.
    async fn macro_at(&self, place: &Place) -> Result<Option<Macro>> {
        let Place { package, version, key } = place.clone();
        let filters = [("package", Some(package)), ("version", Some(version))];
        let all: Vec<FunctionEntry> =
            known(self.client.list(&format!("/functions{}", filtered(filters))).await)?;
        Ok(all.into_iter().find(|it| it.key == key).and_then(|it| it.flow))
    }

    /// Takes the steps of a macro, and gives its result.
    async fn take(&self, own: &Place, flow: &Macro, asked: &Asked, depth: usize) -> Result<Value> {
        if depth > DEEPEST {
            let told = format!("{}: macros call each other too deeply", own.key);
            return Err(Failure::Failed(told).into());
        }
        flow::take(flow, asked, async |function, asked| {
            let place = self.place(own, function).await?;
            match self.macro_at(&place).await? {
                Some(flow) => Box::pin(self.take(&place, &flow, &asked, depth + 1)).await,
                None => self.step(&place, &asked).await,
            }
        })
        .await
    }

    /// Calls a function of a macro's step.
    async fn step(&self, place: &Place, asked: &Asked) -> Result<Value> {
        let named = format!("{}.{}", place.package, place.key);
        let known = self.unit.functions.iter().find(|it| it.key == place.key || it.key == named);
        let missing = || Failure::Missing(format!("{} doesn't run {named}", self.unit.class));
        let data = serde_json::to_string(asked)?;
        let (status, body) =
            self.call(known.ok_or_else(missing)?, Some(data), Some(Method::POST)).await?;
        let text = || String::from_utf8_lossy(&body).into_owned();
        if !status.is_success() {
            let told = format!("{named} answered {status}: {}", text().trim());
            return Err(Failure::Failed(told).into());
        }
        Ok(serde_json::from_slice(&body).unwrap_or_else(|_| text().into()))
    }

    /// Calls a function.
    async fn call(
        &self,
        function: &FunctionStatus,
        data: Option<String>,
        method: Option<Method>,
    ) -> Result<(StatusCode, Bytes)> {
        let Self { command, context, client, .. } = *self;
        let usual = if data.is_some() { Method::POST } else { Method::GET };
        let Some(url) = function.invocation_url.as_deref() else {
            let why = function.error_msg.clone().unwrap_or_else(|| "it has no address".to_owned());
            return Err(Failure::Failed(format!("{} can't be called: {why}", function.key)).into());
        };
        let through = through_cluster(command, context, function).await?;
        let uri = through.as_ref().map_or_else(|| joined(url, &command.path), |it| it.path.clone());
        let method = method.unwrap_or(usual);
        let mut request = Request::builder().method(method).uri(&uri);
        let mut host = through.as_ref().and_then(|it| it.host.as_deref());
        let mut typed = data.is_none();
        for header in &command.headers {
            let wrong = || Failure::Wrong(format!("{header:?} is no header such as 'Name: value'"));
            let (name, value) = header.split_once(':').ok_or_else(wrong)?;
            typed |= name.trim().eq_ignore_ascii_case("content-type");
            host = host.filter(|_| !name.trim().eq_ignore_ascii_case("host"));
            if through.is_some() && name.trim().eq_ignore_ascii_case("authorization") {
                // The API server would take it as meant for itself.
                let told = "Authorization can't be sent through a cluster's API server";
                return Err(Failure::Wrong(told.to_owned()).into());
            }
            request = request.header(name.trim(), value.trim());
        }
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        if !typed {
            let json = data
                .as_deref()
                .is_some_and(|it| serde_json::from_str::<serde_json::Value>(it).is_ok());
            request = request
                .header("content-type", if json { "application/json" } else { "text/plain" });
        }
        let body = Bytes::from(data.unwrap_or_default());
        let wrong = |error: hyper::http::Error| Failure::Wrong(format!("no such call: {error}"));
        if let Some(through) = through {
            let request = request.body(kube::client::Body::from(body.to_vec())).map_err(wrong)?;
            let answer = through.cluster.send(request).await.map_err(|error| failure(&error))?;
            let status = answer.status();
            return Ok((status, whole(answer.into_body()).await?));
        }
        let answer = client.elsewhere(request.body(body.into()).map_err(wrong)?).await?;
        let status = answer.status();
        Ok((status, whole(answer.into_body()).await?))
    }
}

async fn whole<B>(body: B) -> Result<Bytes>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = Limited::new(body, MAX_ANSWER).collect().await;
    let whole = whole.map_err(|error| Failure::Away(format!("the answer broke off: {error}")))?;
    Ok(whole.to_bytes())
}

fn joined(url: &str, path: &str) -> String {
    format!("{}/{}", url.trim_end_matches('/'), path.trim_start_matches('/'))
}

/// A call by way of a cluster's API server.
struct Through {
    cluster: kube::Client,
    path: String,
    /// What is asked for, where the service that is called serves several.
    host: Option<String>,
}

/// The way through a function's cluster, where there is no other, or it was said how the cluster is
/// reached.
async fn through_cluster(
    command: &Command,
    context: &Context,
    function: &FunctionStatus,
) -> Result<Option<Through>> {
    let inside = function.cluster_url.as_deref().and_then(Service::at);
    let Some(service) = inside else { return Ok(None) };
    let public = function.invocation_url.as_ref();
    let public = public.filter(|_| function.invocation_url != function.cluster_url);
    let said = command.access.kubeconfig.is_some() || command.access.kube_context.is_some();
    if let Some(public) = public.filter(|_| !said)
        && somebody_listens(public).await
    {
        return Ok(None);
    }
    let cluster = connect(&command.access, context, &function.cluster).await?;
    // One that stands for another, as Knative's do for its gateway, has no pods to be called.
    let services: Api<v1::Service> = Api::namespaced(cluster.clone(), &service.namespace);
    let named = match within(services.get(&service.name)).await {
        Ok(found) => found.spec.and_then(|spec| spec.external_name),
        // Who may call services may not be allowed to look at them: most stand for themselves.
        Err(error) if matches!(error.downcast_ref(), Some(Failure::Refused(_))) => None,
        Err(error) => return Err(error),
    };
    let other = named.and_then(|name| Service::at(&format!("http://{name}:{}", service.port)));
    let host = other.as_ref().map(|_| service.host.clone());
    let path = other.as_ref().unwrap_or(&service).path(&joined(&service.base, &command.path));
    Ok(Some(Through { cluster, path, host }))
}

/// Whether an address can be reached from here. Not every cluster's name is known to name servers.
async fn somebody_listens(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let connecting = TcpStream::connect((uri.host().unwrap_or_default(), port));
    matches!(timeout(REACHED, connecting).await, Ok(Ok(_)))
}

/// A service of a cluster, by its address there.
#[derive(Debug)]
struct Service {
    name: String,
    namespace: String,
    port: u16,
    host: String,
    base: String,
}

impl Service {
    /// Nothing for other addresses.
    fn at(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.host()?;
        let bare = host.strip_suffix(".cluster.local").unwrap_or(host).strip_suffix(".svc")?;
        let (name, namespace) = bare.split_once('.')?;
        Some(Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            port: uri.port_u16().unwrap_or(80),
            host: host.to_owned(),
            base: uri.path().to_owned(),
        })
    }

    /// The path by which its cluster's API server calls it.
    fn path(&self, path: &str) -> String {
        let Self { name, namespace, port, .. } = self;
        let path = path.trim_start_matches('/');
        format!("/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy/{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_called_through_their_cluster() {
        let path = |url: &str, path: &str| {
            Service::at(url).map(|service| service.path(&joined(&service.base, path)))
        };
        assert_eq!(
            path("http://hello--greet.default.svc", "/?name=you").unwrap(),
            "/api/v1/namespaces/default/services/hello--greet:80/proxy/?name=you"
        );
        assert_eq!(
            path("http://a.b.svc.cluster.local:8080/base", "x").unwrap(),
            "/api/v1/namespaces/b/services/a:8080/proxy/base/x"
        );
        assert_eq!(path("https://greet.example.org", "/"), None);
    }

    fn unit(keys: &[&str]) -> UnitStatus {
        let function =
            |key: &&str| FunctionStatus { key: (*key).to_owned(), ..FunctionStatus::default() };
        UnitStatus { functions: keys.iter().map(function).collect(), ..UnitStatus::default() }
    }

    #[test]
    fn functions_are_called_by_the_name_they_are_offered_under() {
        let binding = |name: &str, function: &str, default_route| BindingEntry {
            name: name.to_owned(),
            function: function.to_owned(),
            default_route,
            ..BindingEntry::default()
        };
        let bindings = [binding("area", "shapes.area", true), binding("more", "grow", false)];
        let unit = unit(&["area", "grow"]);
        let chosen = |name| choose_function(&unit, &bindings, name).map(|it| it.key.clone());
        assert_eq!(chosen(None).unwrap(), "area");
        assert_eq!(chosen(Some("more")).unwrap(), "grow");
        let told = chosen(Some("other")).unwrap_err().to_string();
        assert!(told.contains("only: area, more"), "{told}");
        assert!(choose_function(&unit, &[], None).is_err());
    }
}
