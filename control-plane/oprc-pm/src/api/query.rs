//! Query parameters.

use axum::{
    extract::{FromRequestParts, Query as Raw},
    http::request::Parts,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::problem::Failure;

pub(super) struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let read = Raw::try_from_uri(&parts.uri);
        read.map(|Raw(read)| Self(read))
            .map_err(|rejection| Failure::bad("INVALID_PARAMETER", rejection.body_text()))
    }
}

/// No parameters. Writes reject unknown ones: a misspelt `dry_run` must not change anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParams {}
