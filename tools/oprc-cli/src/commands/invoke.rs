//! `oprc invoke`: invokes a method of an object through the data grid; or a function over HTTP, or the
//! steps of a macro, without an object.

mod macros;
mod object;

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use bytes::Bytes;
use hyper::{
    Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue},
};
use oprc_models::{Access as Openness, Macro};
use oprc_rest::{
    BindingEntry, ClassEntry, FunctionEntry, FunctionStatus, PackageVersion, UnitStatus,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::time::timeout;

use self::macros::MacroInput;
use crate::{
    client::{Client, filtered, read_body},
    connection::ConnectionArgs,
    contexts::Context,
    deployed_unit::{self, UnitSelector},
    error::{CliError, optional},
    files,
    kube::{KubeArgs, to_cli_error},
    output::{duration, note, print_bytes},
    service_proxy::{join_url, service_proxy},
    target::version_path,
};

const MAX_MACRO_DEPTH: usize = 8;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --object, the data grid of the class calls the method and stores the changed state. The call is repeated until it succeeds or the timeout has passed; its idempotency key makes sure that it changes the state once.\n\nWithout --object, a function is called directly. If its URL is not reachable from here, or with --kubeconfig or --kube-context, the request is sent through the API server's service proxy.\n\nExamples:\n  oprc invoke counter increment --object visits -d '{\"by\": 2}'\n  oprc invoke counter increment --object visits --idempotency-key order-17\n  oprc invoke hello greet --path '/?name=you'\n  echo '{}' | oprc invoke hello -d @-\n  oprc invoke shapes scaled-area --class Circle -d '{\"object\": {\"label\": \"a\"}, \"args\": {\"factor\": 2}}'"
)]
pub(crate) struct Command {
    /// Deployment, or class: CLASS, PACKAGE.CLASS, or the id of a ClassRuntime.
    #[arg(value_name = "CLASS")]
    deployment: String,
    /// Method or function, by the name of its binding [default: the class's default function].
    #[arg(value_name = "METHOD")]
    function: Option<String>,
    /// Id of the object whose method is invoked; a SINGLETON class has only one and needs none.
    #[arg(long, value_name = "ID", conflicts_with_all = ["path", "method"])]
    object: Option<String>,
    /// Arguments of the method as JSON, or request body of the function: text, @FILE, or @- for standard
    /// input.
    #[arg(long, short)]
    data: Option<String>,
    /// Key that identifies the call of a method: calls with the same key change the state once
    /// [default: a random one].
    #[arg(long, value_name = "KEY", conflicts_with_all = ["path", "method"])]
    idempotency_key: Option<String>,
    /// Collection of the object [default: the first of the class].
    #[arg(long, conflicts_with_all = ["path", "method"])]
    collection: Option<String>,
    /// Path and query of the request [default: /].
    #[arg(long)]
    path: Option<String>,
    /// HTTP method [default: POST with a body, GET without].
    #[arg(long, short = 'X')]
    method: Option<Method>,
    /// Request header as 'Name: value'; can be repeated.
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// Class, if the deployment has several.
    #[arg(long)]
    class: Option<String>,
    /// Cluster, if the class runs on several.
    #[arg(long)]
    cluster: Option<String>,
    /// Environment, if the class runs in several.
    #[arg(long = "env", value_name = "ENVIRONMENT")]
    environment: Option<String>,
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
    let selector = UnitSelector {
        name: &command.deployment,
        class: command.class.as_deref(),
        cluster: command.cluster.as_deref(),
        environment: command.environment.as_deref(),
    };
    let units = deployed_unit::find(&client, selector).await?;
    let context = command.connection.resolve()?;
    let data = match command.data.as_deref().map(|data| (data, data.strip_prefix('@'))) {
        Some((_, Some(file))) => Some(files::read(Path::new(file))?),
        Some((data, None)) => Some(data.to_owned()),
        None => None,
    };
    if object::is_meant(&command, &units) {
        return object::invoke(&command, &client, &context, units, data).await;
    }
    let unit = deployed_unit::any_running(units)?;
    let (package, version, unit) = (unit.package, unit.version, &unit.status);
    let bindings = bindings(&client, &package, &version, &unit.class).await?;
    let function = select_function(unit, &bindings, command.function.as_deref())?;
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
    print_body(&body)?;
    if !status.is_success() {
        bail!(CliError::Failed(format!("function {} returned {status}", function.key)));
    }
    Ok(())
}

/// Prints a body unchanged.
fn print_body(body: &[u8]) -> Result<()> {
    print_bytes(body)?;
    if body.last().is_some_and(|last| *last != b'\n') {
        note("");
    }
    Ok(())
}

/// The functions of a class, with the names they are called by.
async fn bindings(
    client: &Client,
    package: &str,
    version: &str,
    class: &str,
) -> Result<Vec<BindingEntry>> {
    let classes: Vec<ClassEntry> = entries(client, "/classes", package, version).await?;
    let class = classes.into_iter().find(|it| it.key == class);
    Ok(class.unwrap_or_default().functions)
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

/// Request headers of the command line.
fn headers(given: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, CliError> {
    let header = |text: &String| {
        let (name, value) = text.split_once(':')?;
        Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
    };
    let invalid = |text: &String| {
        CliError::InvalidInput(format!("invalid header {text:?}; use 'Name: value'"))
    };
    given.iter().map(|text| header(text).ok_or_else(|| invalid(text))).collect()
}

/// The API server would interpret it as its own credentials.
fn reject_authorization(name: &HeaderName) -> Result<(), CliError> {
    if *name == AUTHORIZATION {
        let message = "an Authorization header cannot be sent through the Service proxy of the API \
                       server; call the function's URL directly";
        return Err(CliError::InvalidInput(message.to_owned()));
    }
    Ok(())
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
        let path = command.path.as_deref().unwrap_or("/");
        let proxy = service_proxy(&command.access, context, function, path).await?;
        let uri = proxy.as_ref().map_or_else(|| join_url(url, path), |it| it.path.clone());
        let default = if data.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method.unwrap_or(default)).uri(&uri);
        let mut host = proxy.as_ref().and_then(|it| it.host.as_deref());
        let mut typed = false;
        for (name, value) in headers(&command.headers)? {
            typed |= name == CONTENT_TYPE;
            host = host.filter(|_| name != HOST);
            if proxy.is_some() {
                reject_authorization(&name)?;
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
