//! Environment variables of the data grid. They are validated more strictly than by the real grid, to
//! detect errors of the control plane.

use std::{collections::BTreeMap, num::NonZeroU16, path::PathBuf, str::FromStr, time::Duration};

use axum::http::uri::Authority;
use serde::de::DeserializeOwned;

use crate::collection::Collection;

/// Environment variables by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// The values that the stand-in uses.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) http_port: u16,
    pub(crate) node_id: String,
    pub(crate) cluster_id: String,
    /// The address of this node.
    pub(crate) address: String,
    pub(crate) collections: Vec<Collection>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) unready_until: Option<PathBuf>,
    pub(crate) exit_after: Option<Duration>,
}

const PORT: &str = "a port";
const TEXT: &str = "a non-empty text";

impl Config {
    /// Parses and validates all variables; the error is one line that names the variable.
    pub(crate) fn read(variables: &Variables) -> Result<Self, String> {
        let port = |name| required(variables, name, PORT, parse::<NonZeroU16>).map(NonZeroU16::get);
        let text = |name| required(variables, name, TEXT, non_empty);

        let http_port = port("ODGM_HTTP_PORT")?;
        let own = format!("http://HOST:{http_port}, the port of ODGM_HTTP_PORT");
        let address = required(variables, "ODGM_NODE_ADDR", &own, |address| {
            let port = port_of(address.strip_prefix("http://")?)?;
            (port == http_port).then(|| address.to_owned())
        })?;
        let collections = read_collections(variables)?;
        text("ODGM_CLASS_FILE")?;
        text("ODGM_LOG")?;
        let path =
            |name| optional(variables, name, "a path", |path| non_empty(path).map(Into::into));
        let exit_after = optional(variables, "STAND_IN_EXIT_AFTER_MS", "a number", parse::<u64>)?;
        Ok(Self {
            http_port,
            node_id: text("ODGM_NODE_ID")?,
            cluster_id: text("ODGM_CLUSTER_ID")?,
            address,
            collections,
            data_dir: path("ODGM_DATA_DIR")?,
            unready_until: path("STAND_IN_UNREADY_UNTIL")?,
            exit_after: exit_after.map(Duration::from_millis),
        })
    }
}

fn required<T>(
    variables: &Variables,
    name: &str,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, String> {
    let missing = || format!("{name} is not set; expected: {expected}");
    let value = variables.get(name).ok_or_else(missing)?;
    // Debug format escapes line breaks.
    parse(value).ok_or_else(|| format!("{name}={value:?}; expected: {expected}"))
}

fn optional<T>(
    variables: &Variables,
    name: &str,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    variables.contains_key(name).then(|| required(variables, name, expected, parse)).transpose()
}

fn json<T: DeserializeOwned>(variables: &Variables, name: &str) -> Result<Vec<T>, String> {
    let text = required(variables, name, "a JSON array", non_empty)?;
    serde_json::from_str(&text)
        .map_err(|error| format!("{name}={text:?}; expected: a JSON array; {error}"))
}

fn parse<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn non_empty(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text.to_owned())
}

fn port_of(text: &str) -> Option<u16> {
    let authority: Authority = text.parse().ok()?;
    authority.port_u16().filter(|port| *port > 0 && !authority.host().is_empty())
}

fn read_collections(variables: &Variables) -> Result<Vec<Collection>, String> {
    let names = required(variables, "ODGM_COLLECTIONS", "names, separated by commas", |text| {
        let names = text.split(',').filter(|_| !text.is_empty());
        names.map(non_empty).collect::<Option<Vec<_>>>()
    })?;
    let collections: Vec<Collection> = json(variables, "ODGM_COLLECTION")?;
    if !collections.iter().map(|collection| &collection.name).eq(&names) {
        return Err(format!(
            "ODGM_COLLECTION has other names than ODGM_COLLECTIONS; expected: {names:?}"
        ));
    }
    Ok(collections)
}

#[cfg(test)]
mod tests;
