//! `oprc object`: the objects of a class, in its data grid.

mod input;
mod watch;

use anyhow::Result;
use bytes::Bytes;
use clap::{Args, Subcommand};
use hyper::{
    Method, Response,
    header::{ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::input::InputArgs;
use crate::{
    client::filtered,
    connection::{ApiArgs, ConnectionArgs},
    error::CliError,
    grid::{Grid, GridArgs, GridRequest, IDEMPOTENCY_KEY, Retry, new_idempotency_key, parse_json},
    output::{Column, Format, OutputArgs, note, table},
};

/// The data grid returns at most this many objects at once.
const PAGE_SIZE: usize = 1000;
const SHOWN_STATE_CHARS: usize = 100;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show an object.
    #[command(
        after_help = "Examples:\n  oprc object get counter visits\n  oprc object get counter visits -o json | jq .state.value\n  oprc object get chat lobby --class Room --resolve owner"
    )]
    Get(Get),
    /// Create an object, or replace its state.
    #[command(
        after_help = "Without an ID, a new object with a generated id is created.\n\nExamples:\n  oprc object put counter visits -d '{\"value\": 0}'\n  oprc object put counter visits -f state.json --if-match 5f3a01c2-7\n  echo '{\"value\": 0}' | oprc object put counter visits --create"
    )]
    Put(Put),
    /// Set some keys of an object; null removes a key.
    #[command(
        after_help = "Example:\n  oprc object patch counter visits -d '{\"label\": \"Visits\"}'"
    )]
    Patch(Patch),
    /// List objects in the order of their ids.
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  oprc object list counter\n  oprc object list counter --prefix 2026- --limit 50 -o name"
    )]
    List(List),
    /// Delete an object.
    #[command(after_help = "Example:\n  oprc object delete counter visits")]
    Delete(Delete),
    /// Print the objects, then each change.
    #[command(
        after_help = "Examples:\n  oprc object watch counter\n  oprc object watch counter --prefix 2026- -o json | jq .object.state"
    )]
    Watch(watch::Watch),
}

// No doc comment: clap would use it as the description of the commands.
#[derive(Clone, Debug, Args)]
struct ObjectArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// Id of the object; a SINGLETON class has only one and needs none.
    id: Option<String>,
    #[command(flatten)]
    collection: CollectionArgs,
}

#[derive(Clone, Debug, Args)]
struct CollectionArgs {
    /// Collection [default: the first of the class].
    #[arg(long)]
    collection: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct PreconditionArgs {
    /// Fail unless the object has this ETag, which `oprc object get` shows; * for any.
    #[arg(long, value_name = "ETAG", value_parser = parse_etag)]
    if_match: Option<HeaderValue>,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(flatten)]
    object: ObjectArgs,
    /// Only these keys of the state, separated by commas.
    #[arg(long)]
    keys: Option<String>,
    /// References to resolve, separated by commas: the objects are shown instead of their ids.
    #[arg(long, value_name = "REFERENCES")]
    resolve: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    #[command(flatten)]
    object: ObjectArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    precondition: PreconditionArgs,
    /// Fail if the object exists.
    #[arg(long, conflicts_with = "if_match")]
    create: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Patch {
    #[command(flatten)]
    object: ObjectArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    precondition: PreconditionArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    grid: GridArgs,
    #[command(flatten)]
    collection: CollectionArgs,
    /// Only objects whose ids start with this.
    #[arg(long)]
    prefix: Option<String>,
    /// Only objects after this id.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Maximum number of objects.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    object: ObjectArgs,
    #[command(flatten)]
    precondition: PreconditionArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// An object as the data grid returns it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct ObjectDocument {
    id: String,
    version: u64,
    state: Map<String, Value>,
    /// Without quotes; empty in lists.
    #[serde(skip_serializing_if = "String::is_empty")]
    etag: String,
    /// Objects that the state refers to, and whatever else is returned.
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl ObjectDocument {
    fn state(&self) -> String {
        Value::Object(self.state.clone()).to_string()
    }
}

#[derive(Debug, Deserialize)]
struct ObjectPage {
    objects: Vec<ObjectDocument>,
    /// The id after which the next page starts.
    next: Option<String>,
}

const ID: Column<ObjectDocument> = ("ID", |it| it.id.clone());
const VERSION: Column<ObjectDocument> = ("VERSION", |it| it.version.to_string());
const ETAG_COLUMN: Column<ObjectDocument> = ("ETAG", |it| it.etag.clone());
const SHORT_STATE: Column<ObjectDocument> = ("STATE", short_state);
const STATE: Column<ObjectDocument> = ("STATE", ObjectDocument::state);

fn short_state(object: &ObjectDocument) -> String {
    let state = object.state();
    match state.char_indices().nth(SHOWN_STATE_CHARS) {
        Some((at, _)) => format!("{}…", state.get(..at).unwrap_or_default()),
        None => state,
    }
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Get(command) => get(command).await,
        Command::Put(command) => put(command).await,
        Command::Patch(command) => patch(command).await,
        Command::List(command) => list(command).await,
        Command::Delete(command) => delete(command).await,
        Command::Watch(command) => watch::run(command).await,
    }
}

impl ObjectArgs {
    async fn open(&self, connection: &ConnectionArgs) -> Result<Grid> {
        let grid = self.grid.open_for_objects(connection).await?;
        Ok(grid.with_collection(self.collection.collection.clone()))
    }
}

impl PreconditionArgs {
    /// A write with a precondition isn't repeated: its own effect would violate it.
    fn apply(&self, mut request: GridRequest) -> GridRequest {
        if let Some(tag) = self.if_match.clone() {
            request.retry = Retry::IfNotApplied;
            return request.header(IF_MATCH, tag);
        }
        request
    }
}

/// With or without quotes.
fn parse_etag(text: &str) -> Result<HeaderValue, String> {
    let tag = text.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(text);
    let is_tag = !tag.is_empty() && tag.bytes().all(|it| it.is_ascii_graphic() && it != b'"');
    let quoted = if tag == "*" { "*".to_owned() } else { format!("\"{tag}\"") };
    let value = HeaderValue::try_from(quoted).ok().filter(|_| is_tag);
    value.ok_or_else(|| "must be an ETag as `oprc object get` shows it, or *".to_owned())
}

async fn get(command: Get) -> Result<()> {
    let Get { object, keys, resolve, api } = command;
    let grid = object.open(&api.connection).await?;
    let path = grid.object(grid.object_id(object.id.as_deref())?);
    let query = [("keys", keys.as_deref()), ("resolve", resolve.as_deref())];
    let response = grid.send(&GridRequest::get(filtered(&path, &query))).await?;
    show(&api.show, &response)
}

async fn put(command: Put) -> Result<()> {
    let Put { object, input, precondition, create, api } = command;
    let state = input.read()?;
    let grid = object.open(&api.connection).await?;
    let request = match object.id.as_deref() {
        None if !grid.is_singleton() => {
            if precondition.if_match.is_some() {
                let message = "--if-match needs the id of an object";
                anyhow::bail!(CliError::InvalidInput(message.to_owned()));
            }
            // The key gives the object the same id if the request is repeated.
            let request = GridRequest::new(Method::POST, grid.objects(), Retry::Idempotent);
            request.header(IDEMPOTENCY_KEY, HeaderValue::try_from(new_idempotency_key())?)
        }
        id => {
            let path = grid.object(grid.object_id(id)?);
            let request = GridRequest::new(Method::PUT, path, Retry::Idempotent);
            let mut request = precondition.apply(request);
            if create {
                request.retry = Retry::IfNotApplied;
                request = request.header(IF_NONE_MATCH, HeaderValue::from_static("*"));
            }
            request
        }
    };
    write(&grid, request, &state, &api.show).await
}

async fn patch(command: Patch) -> Result<()> {
    let Patch { object, input, precondition, api } = command;
    let changes = input.read()?;
    let grid = object.open(&api.connection).await?;
    let path = grid.object(grid.object_id(object.id.as_deref())?);
    let request = GridRequest::new(Method::PATCH, path, Retry::Idempotent);
    write(&grid, precondition.apply(request), &changes, &api.show).await
}

async fn write(
    grid: &Grid,
    request: GridRequest,
    document: &Map<String, Value>,
    output: &OutputArgs,
) -> Result<()> {
    let request = request.body(serde_json::to_vec(document)?);
    let response = grid.send(&request).await?;
    show(output, &response)
}

fn show(output: &OutputArgs, response: &Response<Bytes>) -> Result<()> {
    let mut object: ObjectDocument = parse_json(response.body())?;
    let etag = response.headers().get(ETAG).and_then(|it| it.to_str().ok());
    etag.unwrap_or_default().trim_matches('"').clone_into(&mut object.etag);
    output.one(&object, &[&object.id], |wide| {
        let columns = [ID, ETAG_COLUMN, if wide { STATE } else { SHORT_STATE }];
        table(std::slice::from_ref(&object), &columns, !output.no_headers)
    })
}

async fn list(command: List) -> Result<()> {
    let List { grid, collection, prefix, mut after, limit, api } = command;
    let grid = grid.open(&api.connection).await?.with_collection(collection.collection);
    let limit = usize::try_from(limit)?;
    let mut objects: Vec<ObjectDocument> = Vec::new();
    loop {
        let count = PAGE_SIZE.min(limit - objects.len()).to_string();
        let query =
            [("prefix", prefix.as_deref()), ("after", after.as_deref()), ("limit", Some(&*count))];
        let page: ObjectPage = grid.get(filtered(&grid.objects(), &query)).await?;
        let is_empty = page.objects.is_empty();
        objects.extend(page.objects);
        after = page.next;
        // An empty page would be returned for ever.
        if after.is_none() || is_empty || objects.len() >= limit {
            break;
        }
    }
    let is_wide = api.show.output == Format::Wide;
    let columns = [ID, VERSION, if is_wide { STATE } else { SHORT_STATE }];
    api.show.list(&objects, |it| it.id.clone(), &columns, &[])?;
    if let Some(last) = after {
        note(&format!("more objects follow; continue with --after '{last}', or raise --limit"));
    }
    Ok(())
}

async fn delete(command: Delete) -> Result<()> {
    let Delete { object, precondition, connection } = command;
    let grid = object.open(&connection).await?;
    let id = grid.object_id(object.id.as_deref())?;
    // A repeated deletion would not find the object.
    let request = GridRequest::new(Method::DELETE, grid.object(id), Retry::IfNotApplied);
    grid.send(&precondition.apply(request)).await?;
    note(&format!("object {id} deleted"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn etags_are_quoted() {
        assert_eq!(parse_etag("5f-7").unwrap(), "\"5f-7\"");
        assert_eq!(parse_etag("\"5f-7\"").unwrap(), "\"5f-7\"");
        assert_eq!(parse_etag("*").unwrap(), "*");
        for bad in ["", "\"\"", "a\"b", "7 8", "7\r\nx: y", "é"] {
            assert!(parse_etag(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn long_states_are_shortened_in_tables() {
        let object = |text: &str| ObjectDocument {
            state: Map::from_iter([("a".to_owned(), json!(text))]),
            ..ObjectDocument::default()
        };
        assert_eq!(short_state(&object("é")), r#"{"a":"é"}"#);
        let shortened = short_state(&object(&"é".repeat(200)));
        assert!(shortened.chars().count() == SHOWN_STATE_CHARS + 1 && shortened.ends_with('…'));
    }
}
