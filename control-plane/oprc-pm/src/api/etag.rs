//! ETags and conditional requests.

use axum::{
    Json,
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use headers::{ETag, HeaderMapExt as _, IfNoneMatch};
use serde::Serialize;

use super::problem::Failure;
use crate::service::Precondition;

/// The conditional headers of a request.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// A write is for one version at most, so `If-Match` has one tag here.
    if_match: Precondition,
    if_none_match: Option<IfNoneMatch>,
}

impl<S: Sync> FromRequestParts<S> for Conditions {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Self::parse(&parts.headers)
    }
}

impl Conditions {
    fn parse(headers: &HeaderMap) -> Result<Self, Failure> {
        let invalid = |name: &str, expected: &str| {
            Failure::bad("INVALID_HEADER", format!("{name} must be {expected}."))
        };
        let if_none_match = headers
            .typed_try_get()
            .map_err(|_| invalid("If-None-Match", "* or a list of quoted tags"))?;
        let mut values = headers.get_all(header::IF_MATCH).iter();
        let if_match = match (values.next(), values.next()) {
            (None, _) => Some(Precondition::None),
            (Some(value), None) => parse_if_match(value),
            (Some(_), Some(_)) => None,
        };
        let if_match = if_match.ok_or_else(|| invalid("If-Match", "* or one quoted tag"))?;
        Ok(Self { if_match, if_none_match })
    }

    /// The tag that a write requires.
    pub(super) fn required_tag(&self) -> Option<&str> {
        self.if_match.revision()
    }

    /// What a write of a deployment requires; its tag is its revision.
    pub(super) fn precondition(&self) -> Precondition {
        if self.if_none_match == Some(IfNoneMatch::any()) {
            return Precondition::Absent;
        }
        self.if_match.clone()
    }
}

/// Tags are compared by their text, weak or not: versions never differ in bytes only.
fn parse_if_match(value: &HeaderValue) -> Option<Precondition> {
    let text = value.to_str().ok()?.trim();
    if text == "*" {
        return Some(Precondition::Exists);
    }
    if text.contains(' ') || text.parse::<ETag>().is_err() {
        return None;
    }
    let tag = text.strip_prefix("W/").unwrap_or(text);
    Some(Precondition::Revision(tag.trim_matches('"').to_owned()))
}

/// The document with its tag, or 304 if the caller has that version.
pub(super) fn tagged<T: Serialize>(tag: &str, conditions: &Conditions, document: &T) -> Response {
    let tag: Option<ETag> = format!("\"{tag}\"").parse().ok();
    let known = match (&conditions.if_none_match, &tag) {
        (Some(condition), Some(tag)) => !condition.precondition_passes(tag),
        _ => false,
    };
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(document).into_response()
    };
    let headers = response.headers_mut();
    if let Some(tag) = tag {
        headers.typed_insert(tag);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn conditions(name: HeaderName, value: &'static str) -> Result<Conditions, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        Conditions::parse(&headers)
    }

    #[test]
    fn reads_quoted_tags() {
        let read = conditions(header::IF_MATCH, "\"a\"").unwrap();
        assert_eq!(read.required_tag(), Some("a"));
        assert_eq!(read.precondition(), Precondition::Revision("a".to_owned()));
        let read = conditions(header::IF_NONE_MATCH, "W/\"a\", \"b\"").unwrap();
        let status = |tag: &str| tagged(tag, &read, &()).status().as_u16();
        assert_eq!([status("a"), status("b"), status("c")], [304, 304, 200]);
        let any = conditions(header::IF_NONE_MATCH, "*").unwrap();
        assert_eq!(any.precondition(), Precondition::Absent);
        let any = conditions(header::IF_MATCH, "*").unwrap();
        assert_eq!((any.precondition(), any.required_tag()), (Precondition::Exists, None));
        assert!(conditions(header::IF_MATCH, "a").is_err());
        assert!(conditions(header::IF_MATCH, "\"a\", \"b\"").is_err());
    }
}
