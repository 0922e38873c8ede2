//! Bodies: JSON or YAML, of a bounded length.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::{StatusCode, header},
};
use serde::de::DeserializeOwned;

use super::problem::Failure;

/// What bodies may be called. JSON is YAML, too, so it makes no difference to how they are read.
const KINDS: [&str; 6] = [
    "application/json",
    "application/yaml",
    "application/x-yaml",
    "application/vnd.yaml",
    "text/yaml",
    "text/x-yaml",
];

/// A body of text, in JSON or YAML.
pub(super) struct Text(pub String);

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !KINDS.contains(&kind.as_str()) {
            let detail = "The body must be application/json or application/yaml.";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Failure::new(status, "UNSUPPORTED_MEDIA_TYPE", detail));
        }
        let bytes =
            Bytes::from_request(request, state).await.map_err(|rejection| unread(&rejection))?;
        String::from_utf8(bytes.into())
            .map(Self)
            .map_err(|_| Failure::bad("INVALID_BODY", "The body isn't UTF-8."))
    }
}

fn unread(rejection: &BytesRejection) -> Failure {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let detail = "The body is longer than is allowed.";
        return Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail);
    }
    Failure::bad("INVALID_BODY", "The body couldn't be read.")
}

/// A small document, whose fields are all known.
pub(super) trait Small: DeserializeOwned {
    /// Its fields.
    const FIELDS: &'static [&'static str];
}

impl Small for oprc_rest::Deprecation {
    const FIELDS: &'static [&'static str] = &["reason"];
}

impl Small for oprc_rest::Rollback {
    const FIELDS: &'static [&'static str] = &["revision"];
}

impl Small for oprc_rest::Adoption {
    const FIELDS: &'static [&'static str] = &["deployment"];
}

/// Reads a small document. A field that isn't known is refused: it may be a known one misspelt.
pub(super) fn small<T: Small>(text: &str) -> Result<T, Failure> {
    let wrong =
        |detail: String| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_DOCUMENT", detail);
    let value: serde_json::Value = serde_saphyr::from_str(text)
        .map_err(|_| Failure::bad("INVALID_BODY", "The body is neither JSON nor YAML."))?;
    let fields = value.as_object().ok_or_else(|| wrong("The body has no fields.".to_owned()))?;
    if let Some(field) = fields.keys().find(|field| !T::FIELDS.contains(&field.as_str())) {
        let known = T::FIELDS.join(", ");
        return Err(wrong(format!("{field:?} is no field here; known: {known}")));
    }
    serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use oprc_rest::Rollback;

    use super::*;

    #[test]
    fn fields_that_are_misspelt_are_refused() {
        let read: Rollback = small("revision: abc").unwrap();
        assert_eq!(read.revision.as_deref(), Some("abc"));
        assert_eq!(small::<Rollback>("{}").unwrap(), Rollback::default());
        let failure = small::<Rollback>("{\"revison\": \"abc\"}").unwrap_err();
        assert_eq!(failure.problem().status, 422);
        assert_eq!(failure.problem().detail, "\"revison\" is no field here; known: revision");
        assert_eq!(small::<Rollback>("[1]").unwrap_err().problem().status, 422);
        assert_eq!(small::<Rollback>("{revision: 1}").unwrap_err().problem().status, 422);
        assert_eq!(small::<Rollback>("{").unwrap_err().problem().status, 400);
    }
}
