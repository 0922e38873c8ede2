//! Parameters of a request, each known and well formed.

use axum::{
    extract::{FromRequestParts, Query as Raw},
    http::request::Parts,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::problem::Failure;

/// The parameters behind the path.
pub(super) struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = Raw::<T>::from_request_parts(parts, state).await;
        let Raw(read) =
            read.map_err(|rejection| Failure::bad("INVALID_PARAMETER", rejection.body_text()))?;
        Ok(Self(read))
    }
}

/// No parameters, for what changes something: one that isn't known may be one misspelt that would
/// have kept it from that.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// How much is on a page where nothing is said, and at most.
const ON_A_PAGE: usize = 100;
const MAX_PAGE_SIZE: usize = 500;

/// How much is wanted on a page.
pub(super) fn limit(wanted: Option<usize>) -> Result<usize, Failure> {
    match wanted {
        None => Ok(ON_A_PAGE),
        Some(limit @ 1..=MAX_PAGE_SIZE) => Ok(limit),
        Some(_) => {
            let detail = format!("limit: must be from 1 to {MAX_PAGE_SIZE}");
            Err(Failure::bad("INVALID_PARAMETER", detail))
        }
    }
}
