//! What all requests have: an object and a caller.

use std::{collections::HashMap, ops::Deref};

use axum::{
    extract::{FromRequestParts, Path, Query, rejection::QueryRejection},
    http::{HeaderMap, request::Parts},
};

use super::problem::Problem;
use crate::{Error, Grid, ObjectId, call_token::CALL_TOKEN, class::Access, invocation::CallOrigin};

/// What handlers share.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) grid: Grid,
    /// Of callers without a call token.
    pub(super) caller: Access,
}

/// Who calls.
pub(super) struct Caller {
    pub(super) access: Access,
    pub(super) origin: CallOrigin,
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        Ok(Self::of(api, &parts.headers)?)
    }
}

impl Caller {
    /// Call tokens count on the port for workloads of the cluster only: elsewhere they may have leaked.
    fn of(api: &Api, headers: &HeaderMap) -> Result<Self, Error> {
        if api.caller == Access::Public {
            return Ok(Self { access: Access::Public, origin: CallOrigin::default() });
        }
        let values = headers.get_all(CALL_TOKEN).iter().filter_map(|it| it.to_str().ok());
        let (origin, is_own) = api.grid.tokens.origin(&values.collect::<Vec<_>>().join(","))?;
        let access = if is_own { Access::Private } else { api.caller };
        Ok(Self { access, origin })
    }

    /// Fails unless the caller may read and write objects.
    pub(super) fn permit_data(&self, api: &Api) -> Result<(), Error> {
        api.grid.class().permit_data(self.access)
    }

    /// Fails unless the caller may write this object, which no call of it has led to.
    pub(super) fn permit_write(&self, api: &Api, target: &Target) -> Result<ObjectId, Error> {
        self.permit_data(api)?;
        let id = target.id()?;
        api.grid.check_reentrancy(target.collection(), &id, &self.origin)?;
        Ok(id)
    }

    /// Fails for callers outside of the cluster.
    pub(super) fn require_internal(&self, what: &str) -> Result<(), Error> {
        if self.access == Access::Public {
            let access = Access::Internal.as_str();
            return Err(Error::Forbidden { what: what.to_owned(), access });
        }
        Ok(())
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

/// Finishes work even if the client goes: a change may have been stored, and its event must be
/// delivered.
pub(super) async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Problem> {
    let outcome = tokio::spawn(work).await;
    let outcome = outcome.unwrap_or_else(|error| Err(Error::UnknownOutcome(error.to_string())));
    Ok(outcome?)
}
