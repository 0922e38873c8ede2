//! `oprc invoke`: invokes a function of a class over HTTP, or runs the steps of a macro.

mod macros;
mod service_proxy;

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Result, bail};
use bytes::Bytes;
use hyper::{
    Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use oprc_models::{Access as Openness, Macro};
use oprc_rest::{
    BindingEntry, ClassEntry, Condition, Deployment, FunctionEntry, FunctionStatus, PackageVersion,
    Plan, UnitStatus,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::time::timeout;

use self::{
    macros::MacroInput,
    service_proxy::{join_url, service_proxy},
};
use crate::{
    client::{Client, escape, filtered, read_body},
    connection::ConnectionArgs,
    contexts::Context,
    error::{CliError, optional},
    files,
    kube::{KubeArgs, to_cli_error},
    output::{duration, note, print_bytes},
    target::version_path,
};

const MAX_MACRO_DEPTH: usize = 8;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "If the function's URL is not reachable from here, or with --kubeconfig or --kube-context, the request is sent through the API server's service proxy.\n\nExamples:\n  oprc invoke hello greet --path '/?name=you'\n  oprc invoke counter increment -d '{\"by\": 2}'\n  echo '{}' | oprc invoke counter -d @-\n  oprc invoke shapes scaled-area --class Circle -d '{\"object\": {\"label\": \"a\"}, \"args\": {\"factor\": 2}}'"
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
    /// Maximum time to wait for the response, such as 30s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
    #[command(flatten)]
    access: KubeArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let client = command.connection.client().await?;
    let path = format!("/deployments/{}", escape(&command.deployment));
    let found: Deployment = client.get(&path).await?;
    let unit = select_unit(&command, &found)?;
    let Plan { package, version, .. } = found.plan.clone();
    let classes: Vec<ClassEntry> = entries(&client, "/classes", &package, &version).await?;
    let class = classes.into_iter().find(|it| it.key == unit.class).unwrap_or_default();
    let function = select_function(unit, &class.functions, command.function.as_deref())?;
    let data = match command.data.as_deref().map(|data| (data, data.strip_prefix('@'))) {
        Some((_, Some(file))) => Some(files::read(Path::new(file))?),
        Some((data, None)) => Some(data.to_owned()),
        None => None,
    };
    let context = command.connection.resolve()?;
    let invoker = Invoker { command: &command, context: &context, client: &client, unit };
    let invocation = async {
        if function.invocation_url.is_none() {
            let package = FunctionRef { package, version, key: String::new() };
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
        bail!(CliError::Failed(format!("function {} returned {status}", function.key)));
    }
    Ok(())
}

/// Prefers a unit that is running.
fn select_unit<'a>(command: &Command, found: &'a Deployment) -> Result<&'a UnitStatus, CliError> {
    let matches = |unit: &&UnitStatus| {
        command.class.as_ref().is_none_or(|it| *it == unit.class)
            && command.cluster.as_ref().is_none_or(|it| *it == unit.cluster)
    };
    let units: Vec<_> = found.status.units.iter().filter(matches).collect();
    let classes: BTreeSet<_> = units.iter().map(|unit| unit.class.as_str()).collect();
    if classes.len() > 1 {
        let classes = classes.into_iter().collect::<Vec<_>>().join(", ");
        return Err(CliError::InvalidInput(format!(
            "the deployment has several classes; select one with --class: {classes}"
        )));
    }
    let running = units.iter().find(|unit| unit.condition == Condition::Running);
    running.or(units.first()).copied().ok_or_else(|| {
        let key = &command.deployment;
        CliError::NotFound(format!(
            "deployment {key} has no unit that matches; see `oprc status {key}`"
        ))
    })
}

/// The catalogue of a package version. An unknown package is empty: the package of an adopted
/// deployment may have been lost with the store, and functions are then called by their keys.
async fn entries<T: DeserializeOwned>(
    client: &Client,
    list: &str,
    package: &str,
    version: &str,
) -> Result<Vec<T>> {
    let path = filtered(list, &[("package", Some(package)), ("version", Some(version))]);
    Ok(optional(client.list(&path).await)?.unwrap_or_default())
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
        let path = version_path(&from.package, &from.version);
        let mut found: PackageVersion = self.client.get(&path).await?;
        let missing =
            || CliError::NotFound(format!("package {} has no dependency {package}", from.package));
        let version = found.resolved.remove(package).ok_or_else(missing)?;
        Ok(FunctionRef { package: package.to_owned(), version, key: key.to_owned() })
    }

    /// `None` if the function is no macro.
    async fn find_macro(&self, place: &FunctionRef) -> Result<Option<Macro>> {
        let FunctionRef { package, version, key } = place;
        let all: Vec<FunctionEntry> = entries(self.client, "/functions", package, version).await?;
        Ok(all.into_iter().find(|it| it.key == *key).and_then(|it| it.flow))
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
            let key = &own.key;
            let message = format!("macro {key} exceeds the maximum depth of {MAX_MACRO_DEPTH}");
            bail!(CliError::Failed(message));
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
        let UnitStatus { functions, class, .. } = self.unit;
        let Some(function) = functions.iter().find(|it| it.key == place.key || it.key == named)
        else {
            let message = format!("function {named} is not deployed for class {class}");
            bail!(CliError::NotFound(message));
        };
        let data = serde_json::to_string(input)?;
        let (status, body) = self.call(function, Some(data), Some(Method::POST)).await?;
        let text = String::from_utf8_lossy(&body);
        if !status.is_success() {
            let message = format!("function {named} returned {status}: {}", text.trim());
            bail!(CliError::Failed(message));
        }
        Ok(serde_json::from_slice(&body).unwrap_or_else(|_| text.into()))
    }

    async fn call(
        &self,
        function: &FunctionStatus,
        data: Option<String>,
        method: Option<Method>,
    ) -> Result<(StatusCode, Bytes)> {
        let Self { command, context, client, .. } = *self;
        let key = &function.key;
        let Some(url) = function.invocation_url.as_deref() else {
            let why = function.error_msg.as_deref().unwrap_or("it has no URL yet");
            bail!(CliError::Failed(format!("cannot invoke function {key}: {why}")));
        };
        let proxy = service_proxy(&command.access, context, function, &command.path).await?;
        let uri = proxy.as_ref().map_or_else(|| join_url(url, &command.path), |it| it.path.clone());
        let default = if data.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method.unwrap_or(default)).uri(&uri);
        let mut host = proxy.as_ref().and_then(|it| it.host.as_deref());
        let mut typed = false;
        for header in &command.headers {
            let Some((name, value)) = header.split_once(':') else {
                let message = format!("invalid header {header:?}; use 'Name: value'");
                bail!(CliError::InvalidInput(message));
            };
            let (name, value) = (name.trim(), value.trim());
            typed |= name.eq_ignore_ascii_case(CONTENT_TYPE.as_str());
            host = host.filter(|_| !name.eq_ignore_ascii_case(HOST.as_str()));
            if proxy.is_some() && name.eq_ignore_ascii_case(AUTHORIZATION.as_str()) {
                // The API server would interpret it as its own credentials.
                let message = "an Authorization header cannot be sent through the Service proxy of \
                               the API server; call the function's URL directly";
                bail!(CliError::InvalidInput(message.to_owned()));
            }
            request = request.header(name, value);
        }
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        if let Some(data) = data.as_ref().filter(|_| !typed) {
            let json = serde_json::from_str::<IgnoredAny>(data).is_ok();
            let kind = if json { "application/json" } else { "text/plain" };
            request = request.header(CONTENT_TYPE, kind);
        }
        let body = Bytes::from(data.unwrap_or_default());
        let invalid =
            |error: hyper::http::Error| CliError::InvalidInput(format!("invalid request: {error}"));
        if let Some(proxy) = proxy {
            let request = request.body(kube::client::Body::from(body.to_vec())).map_err(invalid)?;
            let response = proxy.cluster.send(request).await;
            let response = response.map_err(|error| to_cli_error(&error))?;
            return Ok((response.status(), read_body(response.into_body()).await?));
        }
        let response = client.send_external(request.body(body.into()).map_err(invalid)?).await?;
        Ok((response.status(), read_body(response.into_body()).await?))
    }
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
