//! The documents of PM's REST API, shared by server and clients.
//!
//! Names are camelCase on the wire. Times are RFC 3339 in UTC. Ids and revisions are TSIDs, which
//! sort by creation time.

mod cluster;
mod deployment;
mod event;
mod grid;
mod nfr;
mod package;
mod page;
mod plan;
mod problem;
mod runtime;

pub use self::{
    cluster::*, deployment::*, event::*, grid::*, nfr::*, package::*, page::*, plan::*, problem::*,
    runtime::*,
};

/// Structs that are camelCase on the wire and have an OpenAPI schema with the feature `openapi`.
macro_rules! document {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }
    )*};
}

/// Enums that are SCREAMING_SNAKE_CASE on the wire.
macro_rules! string_enum {
    ($($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $word:ident,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum $name { $($(#[$doc])* $word,)* }
    )*};
}

pub(crate) use {document, string_enum};
