//! The documents of the package manager's REST API, for who serves it and who asks. Nothing here
//! does any IO.
//!
//! Names are camelCase on the wire. Times are RFC 3339 texts in UTC, ids and revisions TSIDs,
//! which sort by when they were made.

mod cluster;
mod deployment;
mod event;
mod package;
mod page;
mod plan;
mod problem;
mod runtime;

pub use self::{
    cluster::*, deployment::*, event::*, package::*, page::*, plan::*, problem::*, runtime::*,
};

/// A document: written and read in camelCase, empty optional fields left out, and with a schema
/// where the OpenAPI document is made.
macro_rules! document {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }
    )*};
}

/// Words that are written in capitals.
macro_rules! words {
    ($($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $word:ident,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum $name { $($(#[$doc])* $word,)* }
    )*};
}

pub(crate) use {document, words};
