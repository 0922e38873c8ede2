//! Request bodies: JSON or YAML.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::{StatusCode, header},
};
use serde::de::DeserializeOwned;

use super::problem::Failure;

/// Accepted content types. JSON is a subset of YAML, so one parser reads both.
const CONTENT_TYPES: [&str; 6] = [
    "application/json",
    "application/yaml",
    "application/x-yaml",
    "application/vnd.yaml",
    "text/yaml",
    "text/x-yaml",
];

pub(super) struct Text(pub String);

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !CONTENT_TYPES.contains(&kind.as_str()) {
            let detail = "The content type must be application/json or application/yaml.";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Failure::new(status, "UNSUPPORTED_MEDIA_TYPE", detail));
        }
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| read_failure(&rejection))?;
        String::from_utf8(bytes.into())
            .map(Self)
            .map_err(|_| Failure::bad("INVALID_BODY", "The body is not valid UTF-8."))
    }
}

fn read_failure(rejection: &BytesRejection) -> Failure {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let detail = "The body exceeds the size limit.";
        return Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail);
    }
    Failure::bad("INVALID_BODY", "The body could not be read.")
}

/// Parses a document with a single field. Other fields are rejected, because they may be misspelt.
pub(super) fn small<T: DeserializeOwned>(text: &str, field: &str) -> Result<T, Failure> {
    let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|_| {
        Failure::bad("INVALID_BODY", "The body is neither valid JSON nor valid YAML.")
    })?;
    let fields =
        value.as_object().ok_or_else(|| Failure::invalid("The body must be an object."))?;
    if let Some(other) = fields.keys().find(|other| *other != field) {
        let detail = format!("unknown field {other:?}; known fields: {field}");
        return Err(Failure::invalid(detail));
    }
    serde_json::from_value(value).map_err(|error| Failure::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use oprc_rest::Rollback;

    use super::*;

    #[test]
    fn rejects_unknown_fields() {
        let read = |text| small::<Rollback>(text, "revision");
        assert_eq!(read("revision: abc").unwrap().revision.as_deref(), Some("abc"));
        assert_eq!(read("{}").unwrap(), Rollback::default());
        let failure = read("{\"revison\": \"abc\"}").unwrap_err();
        let detail = failure.problem().detail.as_deref();
        assert_eq!(detail, Some("unknown field \"revison\"; known fields: revision"));
        for (text, status) in
            [("revison: abc", 422), ("[1]", 422), ("{revision: 1}", 422), ("{", 400)]
        {
            let failure = read(text).unwrap_err();
            assert_eq!(failure.problem().status.unwrap().as_u16(), status, "{text}");
        }
    }
}
