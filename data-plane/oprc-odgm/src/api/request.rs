//! What all requests have: an object and a caller.

use std::{collections::HashMap, ops::Deref};

use axum::{
    extract::{FromRequestParts, Path, Query, rejection::QueryRejection},
    http::request::Parts,
};

use super::problem::Problem;
use crate::{Error, Grid, ObjectId, caller::Caller, class::Access};

/// What handlers share.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) grid: Grid,
    /// Of callers without a call token.
    pub(super) caller: Access,
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let values = parts.headers.get_all(Self::TOKENS).iter().filter_map(|it| it.to_str().ok());
        let tokens = values.collect::<Vec<_>>().join(",");
        Ok(Self::recognise(&api.grid, api.caller, &tokens)?)
    }
}

/// The parts of a path.
pub(super) struct Target(HashMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let parsed = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let Path(parts) = parsed.map_err(|error| Problem::invalid("the path", &error))?;
        Ok(Self(parts))
    }
}

impl Target {
    pub(super) fn collection(&self) -> Option<&str> {
        self.0.get("collection").map(String::as_str)
    }

    pub(super) fn id(&self) -> Result<ObjectId, Error> {
        ObjectId::parse(self.0.get("id").map_or("", Deref::deref))
    }

    pub(super) fn method(&self) -> String {
        self.0.get("method").cloned().unwrap_or_default()
    }
}

pub(super) fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    let Query(query) = query.map_err(|it| Problem::invalid("the query", &it))?;
    Ok(query)
}
