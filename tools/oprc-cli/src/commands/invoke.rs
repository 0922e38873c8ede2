//! `oprc invoke`: invokes a function of a class over HTTP, or runs the steps of a macro.

mod macros;
mod service_proxy;

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, Request, StatusCode, header::HOST};
use oprc_models::{Access as Openness, Macro};
use oprc_rest::{
    BindingEntry, ClassEntry, Deployment, FunctionEntry, FunctionStatus, PackageVersion, UnitStatus,
};
use serde_json::Value;
use tokio::time::timeout;

use self::{
    macros::MacroInput,
    service_proxy::{join_url, service_proxy},
};
use super::package::filter_query;
use crate::{
    client::{Client, escape},
    connection::ConnectionArgs,
    contexts::Context,
    error::CliError,
    files,
    kube::{KubeArgs, to_cli_error},
    output::{duration, note, print_bytes},
};

const MAX_RESPONSE_BYTES: usize = 64 << 20;
const MAX_MACRO_DEPTH: usize = 8;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "If the function's URL is not reachable from here, or with --kubeconfig or --kube-context, the request goes through the Service proxy of the cluster's API server.\n\nExamples:\n  oprc invoke hello greet --path '/?name=you'\n  oprc invoke counter increment -d '{\"by\": 2}'\n  echo '{}' | oprc invoke counter -d @-\n  oprc invoke shapes scaled-area --class Circle -d '{\"object\": {\"label\": \"a\"}, \"args\": {\"factor\": 2}}'"
)]
pub(crate) struct Command {
    /// Deployment of the function.
    deployment: String,
    /// Function, by the name of its binding [default: the class's default function].
    function: Option<String>,
    /// Request body: text, @FILE, or @- for standard input.
    #[arg(long, short)]
    data: Option<String>,
    /// Path and query of the request.
    #[arg(long, default_value = "/")]
    path: String,
    /// HTTP method [default: POST with a body, GET without].
    #[arg(long, short = 'X')]
    method: Option<Method>,
    /// Request header as 'Name: value'; can be repeated.
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// Class, if the deployment has several.
    #[arg(long)]
    class: Option<String>,
    /// Cluster, if the deployment runs on several.
    #[arg(long)]
    cluster: Option<String>,
    /// Maximum time to wait for the response.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
    #[command(flatten)]
    access: KubeArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let client = command.connection.client().await?;
    let path = format!("/deployments/{}", escape(&command.deployment));
    let found: Deployment = client.get(&path).await?;
    let unit = select_unit(&command, &found)?;
    let bindings = bindings(&client, &found, &unit.class).await?;
    let function = select_function(unit, &bindings, command.function.as_deref())?;
    let data = match command.data.as_deref().map(|data| (data, data.strip_prefix('@'))) {
        Some((_, Some(file))) => Some(files::read(Path::new(file))?),
        Some((data, None)) => Some(data.to_owned()),
        None => None,
    };
    let context = command.connection.resolve()?;
    let invoker = Invoker { command: &command, context: &context, client: &client, unit };
    let invocation = async {
        if function.invocation_url.is_none() {
            let package = FunctionRef::package_of(&found);
            let own = invoker.resolve(&package, &function.key).await?;
            if let Some(flow) = invoker.find_macro(&own).await? {
                let input = MacroInput::parse(data.as_deref())?;
                let result = invoker.run_macro(&own, &flow, &input, 0).await?;
                return Ok((StatusCode::OK, format!("{result}\n").into()));
            }
        }
        invoker.call(function, data, command.method.clone()).await
    };
    let timed_out = |_| {
        let (key, limit) = (&function.key, duration::short(command.timeout));
        CliError::Unavailable(format!("{key} did not respond within {limit}; see --timeout"))
    };
    let (status, body) = timeout(command.timeout, invocation).await.map_err(timed_out)??;
    // The body is printed unchanged.
    print_bytes(&body)?;
    if body.last().is_some_and(|last| *last != b'\n') {
        note("");
    }
    if !status.is_success() {
        return Err(CliError::Failed(format!("function {} returned {status}", function.key)).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Prefers a unit that is running.
fn select_unit<'a>(command: &Command, found: &'a Deployment) -> Result<&'a UnitStatus, CliError> {
    let matches = |unit: &&UnitStatus| {
        command.class.as_ref().is_none_or(|it| *it == unit.class)
            && command.cluster.as_ref().is_none_or(|it| *it == unit.cluster)
    };
    let units: Vec<_> = found.status.units.iter().filter(matches).collect();
    let mut classes: Vec<_> = units.iter().map(|unit| unit.class.as_str()).collect();
    classes.sort_unstable();
    classes.dedup();
    if classes.len() > 1 {
        let classes = classes.join(", ");
        return Err(CliError::InvalidInput(format!(
            "the deployment has several classes; select one with --class: {classes}"
        )));
    }
    let running = units.iter().find(|unit| unit.condition == oprc_rest::Condition::Running);
    running.or(units.first()).copied().ok_or_else(|| {
        CliError::NotFound(format!(
            "deployment {} has no unit that matches; see `oprc status {}`",
            command.deployment, command.deployment
        ))
    })
}

async fn bindings(client: &Client, found: &Deployment, class: &str) -> Result<Vec<BindingEntry>> {
    let (package, version) = (found.plan.package.clone(), found.plan.version.clone());
    let filters = [("package", Some(package)), ("version", Some(version))];
    let all: Vec<ClassEntry> =
        or_empty(client.list(&format!("/classes{}", filter_query(filters))).await)?;
    let found = all.into_iter().find(|it| it.key == class);
    Ok(found.map(|it| it.functions).unwrap_or_default())
}

/// Treats an unknown package as empty: the package of an adopted deployment may have been lost with
/// the store, and functions are then called by their keys.
fn or_empty<T>(all: Result<Vec<T>>) -> Result<Vec<T>> {
    match all {
        Err(error) if matches!(error.downcast_ref(), Some(CliError::NotFound(_))) => Ok(Vec::new()),
        all => all,
    }
}

/// By the name of its binding, by its key, or the default function.
fn select_function<'a>(
    unit: &'a UnitStatus,
    bindings: &[BindingEntry],
    name: Option<&str>,
) -> Result<&'a FunctionStatus, CliError> {
    let binding = match name {
        Some(name) => bindings.iter().find(|it| it.name == name),
        None => bindings.iter().find(|it| it.default_route),
    };
    if let Some(binding) = binding.filter(|it| it.access == Openness::Private.to_string()) {
        let name = &binding.name;
        return Err(CliError::Rejected(format!(
            "function {name} is PRIVATE and can only be called by its own class"
        )));
    }
    // Functions of other packages have a PACKAGE. prefix.
    let bare = |name: &str| name.rsplit_once('.').map_or(name, |(_, key)| key).to_owned();
    let key = binding.map(|it| it.function.clone()).or(name.map(str::to_owned));
    let selected = match (&key, unit.functions.as_slice()) {
        (Some(key), all) => all.iter().find(|it| it.key == *key || bare(&it.key) == bare(key)),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    selected.ok_or_else(|| {
        let mut known: Vec<_> = bindings.iter().map(|it| it.name.as_str()).collect();
        if known.is_empty() {
            known = unit.functions.iter().map(|it| it.key.as_str()).collect();
        }
        let (class, known) = (&unit.class, known.join(", "));
        match name {
            Some(name) => CliError::NotFound(format!(
                "function {name:?} not found in class {class}; available: {known}"
            )),
            None => CliError::InvalidInput(format!(
                "class {class} has no default function; select one of: {known}"
            )),
        }
    })
}

#[derive(Clone, Debug)]
struct FunctionRef {
    package: String,
    version: String,
    key: String,
}

impl FunctionRef {
    /// The package of a deployment, without a function.
    fn package_of(found: &Deployment) -> Self {
        let (package, version) = (found.plan.package.clone(), found.plan.version.clone());
        Self { package, version, key: String::new() }
    }
}

/// Invokes functions of one unit.
struct Invoker<'a> {
    command: &'a Command,
    context: &'a Context,
    client: &'a Client,
    unit: &'a UnitStatus,
}

impl Invoker<'_> {
    /// Resolves a function name used in a package: its own, or DEPENDENCY.FUNCTION.
    async fn resolve(&self, from: &FunctionRef, function: &str) -> Result<FunctionRef> {
        let Some((package, key)) = function.split_once('.') else {
            return Ok(FunctionRef { key: function.to_owned(), ..from.clone() });
        };
        let path =
            format!("/packages/{}/versions/{}", escape(&from.package), escape(&from.version));
        let mut found: PackageVersion = self.client.get(&path).await?;
        let missing =
            || CliError::NotFound(format!("package {} has no dependency {package}", from.package));
        let version = found.resolved.remove(package).ok_or_else(missing)?;
        Ok(FunctionRef { package: package.to_owned(), version, key: key.to_owned() })
    }

    /// `None` if the function is no macro.
    async fn find_macro(&self, place: &FunctionRef) -> Result<Option<Macro>> {
        let FunctionRef { package, version, key } = place.clone();
        let filters = [("package", Some(package)), ("version", Some(version))];
        let all: Vec<FunctionEntry> =
            or_empty(self.client.list(&format!("/functions{}", filter_query(filters))).await)?;
        Ok(all.into_iter().find(|it| it.key == key).and_then(|it| it.flow))
    }

    /// Runs the steps of a macro, and of macros that it calls.
    async fn run_macro(
        &self,
        own: &FunctionRef,
        flow: &Macro,
        input: &MacroInput,
        depth: usize,
    ) -> Result<Value> {
        if depth > MAX_MACRO_DEPTH {
            let message =
                format!("macro {} exceeds the maximum depth of {MAX_MACRO_DEPTH}", own.key);
            return Err(CliError::Failed(message).into());
        }
        macros::run(flow, input, async |function, input| {
            let place = self.resolve(own, function).await?;
            match self.find_macro(&place).await? {
                Some(flow) => Box::pin(self.run_macro(&place, &flow, &input, depth + 1)).await,
                None => self.run_step(&place, &input).await,
            }
        })
        .await
    }

    async fn run_step(&self, place: &FunctionRef, input: &MacroInput) -> Result<Value> {
        let named = format!("{}.{}", place.package, place.key);
        let known = self.unit.functions.iter().find(|it| it.key == place.key || it.key == named);
        let missing = || {
            CliError::NotFound(format!(
                "function {named} is not deployed for class {}",
                self.unit.class
            ))
        };
        let data = serde_json::to_string(input)?;
        let (status, body) =
            self.call(known.ok_or_else(missing)?, Some(data), Some(Method::POST)).await?;
        let text = || String::from_utf8_lossy(&body).into_owned();
        if !status.is_success() {
            let message = format!("function {named} returned {status}: {}", text().trim());
            return Err(CliError::Failed(message).into());
        }
        Ok(serde_json::from_slice(&body).unwrap_or_else(|_| text().into()))
    }

    async fn call(
        &self,
        function: &FunctionStatus,
        data: Option<String>,
        method: Option<Method>,
    ) -> Result<(StatusCode, Bytes)> {
        let Self { command, context, client, .. } = *self;
        let default = if data.is_some() { Method::POST } else { Method::GET };
        let Some(url) = function.invocation_url.as_deref() else {
            let why = function.error_msg.clone().unwrap_or_else(|| "it has no URL yet".to_owned());
            return Err(CliError::Failed(format!(
                "cannot invoke function {}: {why}",
                function.key
            ))
            .into());
        };
        let proxy = service_proxy(&command.access, context, function, &command.path).await?;
        let uri = proxy.as_ref().map_or_else(|| join_url(url, &command.path), |it| it.path.clone());
        let method = method.unwrap_or(default);
        let mut request = Request::builder().method(method).uri(&uri);
        let mut host = proxy.as_ref().and_then(|it| it.host.as_deref());
        let mut typed = data.is_none();
        for header in &command.headers {
            let invalid =
                || CliError::InvalidInput(format!("invalid header {header:?}; use 'Name: value'"));
            let (name, value) = header.split_once(':').ok_or_else(invalid)?;
            typed |= name.trim().eq_ignore_ascii_case("content-type");
            host = host.filter(|_| !name.trim().eq_ignore_ascii_case("host"));
            if proxy.is_some() && name.trim().eq_ignore_ascii_case("authorization") {
                // The API server would interpret it as its own credentials.
                return Err(CliError::InvalidInput(
                    "an Authorization header cannot be sent through the Service proxy of the API \
                     server; call the function's URL directly"
                        .to_owned(),
                )
                .into());
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
        let invalid =
            |error: hyper::http::Error| CliError::InvalidInput(format!("invalid request: {error}"));
        if let Some(proxy) = proxy {
            let request = request.body(kube::client::Body::from(body.to_vec())).map_err(invalid)?;
            let response =
                proxy.cluster.send(request).await.map_err(|error| to_cli_error(&error))?;
            let status = response.status();
            return Ok((status, read_body(response.into_body()).await?));
        }
        let response = client.send_external(request.body(body.into()).map_err(invalid)?).await?;
        let status = response.status();
        Ok((status, read_body(response.into_body()).await?))
    }
}

async fn read_body<B>(body: B) -> Result<Bytes>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| {
        CliError::Unavailable(format!("the connection broke while reading the response: {error}"))
    })?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(keys: &[&str]) -> UnitStatus {
        let function =
            |key: &&str| FunctionStatus { key: (*key).to_owned(), ..FunctionStatus::default() };
        UnitStatus { functions: keys.iter().map(function).collect(), ..UnitStatus::default() }
    }

    #[test]
    fn selects_functions_by_binding_name() {
        let binding = |name: &str, function: &str, default_route| BindingEntry {
            name: name.to_owned(),
            function: function.to_owned(),
            default_route,
            ..BindingEntry::default()
        };
        let bindings = [binding("area", "shapes.area", true), binding("more", "grow", false)];
        let unit = unit(&["area", "grow"]);
        let selected = |name| select_function(&unit, &bindings, name).map(|it| it.key.clone());
        assert_eq!(selected(None).unwrap(), "area");
        assert_eq!(selected(Some("more")).unwrap(), "grow");
        let error = selected(Some("other")).unwrap_err().to_string();
        assert!(error.contains("available: area, more"), "{error}");
        assert!(select_function(&unit, &[], None).is_err());
    }
}
