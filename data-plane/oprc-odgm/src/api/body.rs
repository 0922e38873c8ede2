//! Bodies of requests.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::StatusCode,
    response::IntoResponse as _,
};
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// A body that isn't too large.
pub(super) struct Body(Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Bytes::from_request(request, state).await {
            Ok(bytes) => Ok(Self(bytes)),
            Err(rejection) => Err(rejected(rejection)),
        }
    }
}

fn rejected(rejection: BytesRejection) -> Problem {
    let text = rejection.body_text();
    match rejection.into_response().status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let detail = format!("the body has more than {} bytes", super::MAX_BODY);
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", detail)
        }
        _ => Problem::invalid("the body", &text),
    }
}

impl Body {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.0).map_err(|error| Problem::invalid("the body", &error))
    }
}
