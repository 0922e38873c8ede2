//! ETags, and requests that hold only for one.

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::problem::Failure;

/// What a request asks of the thing that it is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    /// It is one of these; empty where any will do.
    pub if_match: Vec<String>,
    /// There is such a thing at all.
    pub must_exist: bool,
    /// It is none of these.
    pub if_none_match: Vec<String>,
    /// There is no such thing.
    pub must_not_exist: bool,
}

impl<S: Sync> FromRequestParts<S> for Conditions {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Self::of(&parts.headers)
    }
}

impl Conditions {
    fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let (if_match, must_exist) = tags(headers, &header::IF_MATCH)?;
        let (if_none_match, must_not_exist) = tags(headers, &header::IF_NONE_MATCH)?;
        Ok(Self { if_match, must_exist, if_none_match, must_not_exist })
    }

    /// The one tag that a change is for, where it is for one.
    pub(super) fn expected(&self) -> Result<Option<&str>, Failure> {
        match self.if_match.as_slice() {
            [] => Ok(None),
            [tag] => Ok(Some(tag)),
            _ => Err(Failure::bad("INVALID_HEADER", "If-Match must have one tag here.")),
        }
    }

    /// Whether the caller has this already.
    fn has(&self, tag: &str) -> bool {
        self.must_not_exist || self.if_none_match.iter().any(|known| known == tag)
    }
}

/// The tags of a header, and whether it is `*`. A tag is compared by its text, weak or not: no
/// two versions here differ in bytes only.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<(Vec<String>, bool), Failure> {
    let wrong = || {
        let detail = format!("{name} must be * or tags in quotes.");
        Failure::bad("INVALID_HEADER", detail)
    };
    let mut tags = Vec::new();
    let mut any = false;
    for value in headers.get_all(name) {
        for part in value.to_str().map_err(|_| wrong())?.split(',').map(str::trim) {
            if part == "*" {
                any = true;
                continue;
            }
            let tag = part.strip_prefix("W/").unwrap_or(part);
            let tag = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            tags.push(tag.ok_or_else(wrong)?.to_owned());
        }
    }
    Ok((tags, any))
}

/// A document with its tag, or 304 where the caller has it.
pub(super) fn tagged<T: Serialize>(tag: &str, conditions: &Conditions, document: &T) -> Response {
    let quoted = HeaderValue::from_str(&format!("\"{tag}\""));
    let mut response = if conditions.has(tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        axum::Json(document).into_response()
    };
    if let Ok(quoted) = quoted {
        response.headers_mut().insert(header::ETAG, quoted);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(name: HeaderName, value: &'static str) -> Result<Conditions, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        Conditions::of(&headers)
    }

    #[test]
    fn tags_are_in_quotes() {
        let read = conditions(header::IF_MATCH, "\"a\"").unwrap();
        assert_eq!(read.expected().unwrap(), Some("a"));
        let read = conditions(header::IF_NONE_MATCH, "W/\"a\", \"b\"").unwrap();
        assert!(read.has("a") && read.has("b") && !read.has("c"));
        assert!(conditions(header::IF_NONE_MATCH, "*").unwrap().must_not_exist);
        assert!(conditions(header::IF_MATCH, "*").unwrap().must_exist);
        assert!(conditions(header::IF_MATCH, "a").is_err());
        assert!(conditions(header::IF_MATCH, "\"a\", \"b\"").unwrap().expected().is_err());
    }
}
