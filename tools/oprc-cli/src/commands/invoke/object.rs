//! Invokes a method of an object through the data grid of its class.

use anyhow::Result;
use hyper::{
    Method,
    header::{HeaderName, HeaderValue},
};
use serde::de::IgnoredAny;

use super::{Command, bindings, headers, print_body, reject_authorization};
use crate::{
    client::{Client, escape},
    contexts::Context,
    deployed_unit::{DeployedUnit, any_member},
    error::CliError,
    grid::{Grid, GridRequest, IDEMPOTENCY_KEY, Retry, new_idempotency_key},
    output::note,
};

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Whether a method of an object is meant rather than a function: with --object and the like, and for
/// the only object of a SINGLETON class unless the request is described.
pub(super) fn is_meant(command: &Command, units: &[DeployedUnit]) -> bool {
    let Command { object, idempotency_key, collection, path, method, .. } = command;
    let described = path.is_some() || method.is_some();
    let only_object = |it: &DeployedUnit| it.is_singleton() && it.status.odgm.is_some();
    object.is_some()
        || idempotency_key.is_some()
        || collection.is_some()
        || (!described && units.iter().any(only_object))
}

pub(super) async fn invoke(
    command: &Command,
    client: &Client,
    context: &Context,
    units: Vec<DeployedUnit>,
    arguments: Option<String>,
) -> Result<()> {
    let Command { deployment: name, collection, access, timeout, .. } = command;
    if let Some(text) = &arguments {
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| {
            CliError::InvalidInput(format!(
                "--data: the arguments of a method must be JSON: {error}"
            ))
        })?;
    }
    let method = match &command.function {
        Some(method) => method.clone(),
        None => default_method(client, &any_member(units.clone())?).await?,
    };
    let grid = Grid::of_members(name, units, access, context, *timeout).await?;
    let grid = grid.with_collection(collection.clone());
    let id = grid.object_id(command.object.as_deref())?;
    let path = format!("{}/{}", grid.object(id), escape(&method));
    let key = command.idempotency_key.clone().unwrap_or_else(new_idempotency_key);
    let mut request = GridRequest::new(Method::POST, path, Retry::Idempotent);
    for (header, value) in headers(&command.headers)? {
        reject_authorization(&header)?;
        request = request.header(header, value);
    }
    let key = HeaderValue::from_str(&key).map_err(|_| {
        let message = "--idempotency-key: must have only printable ASCII characters";
        CliError::InvalidInput(message.to_owned())
    })?;
    let request = request.header(IDEMPOTENCY_KEY, key).body(arguments.unwrap_or_default());
    let response = grid.send(&request).await?;
    if response.headers().get(REPLAYED) == Some(&HeaderValue::from_static("true")) {
        note("this is the result of an earlier call with the same idempotency key");
    }
    print_body(response.body())
}

async fn default_method(client: &Client, unit: &DeployedUnit) -> Result<String> {
    let class = &unit.status.class;
    let bindings = bindings(client, &unit.package, &unit.version, class).await?;
    let default = bindings.iter().find(|it| it.default_route).map(|it| it.name.clone());
    let known: Vec<_> = bindings.into_iter().map(|it| it.name).collect();
    let missing = || {
        let known = known.join(", ");
        let message = format!("class {class} has no default method; select one of: {known}");
        anyhow::Error::new(CliError::InvalidInput(message))
    };
    default.ok_or_else(missing)
}
