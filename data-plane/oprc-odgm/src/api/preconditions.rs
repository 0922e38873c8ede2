//! `If-Match` and `If-None-Match`.

use axum::http::{
    HeaderMap, HeaderName,
    header::{IF_MATCH, IF_NONE_MATCH},
};

use super::problem::Problem;
use crate::{Expected, Grid};

const MAX_TAGS: usize = 100;

/// What the headers require.
pub(super) fn expected(grid: &Grid, headers: &HeaderMap) -> Result<Expected, Problem> {
    let text = |name: HeaderName| {
        let mut values = headers.get_all(&name).iter().peekable();
        values.peek()?;
        let values: Vec<_> = values.map(|it| it.to_str().unwrap_or_default().trim()).collect();
        Some(values.join(","))
    };
    match (text(IF_MATCH).as_deref(), text(IF_NONE_MATCH).as_deref()) {
        (None, None) => Ok(Expected::Anything),
        (None, Some("*")) => Ok(Expected::Absent),
        (Some("*"), None) => Ok(Expected::Exists),
        (Some(tags), None) => {
            let allowed = "must be * or a list of at most 100 ETags";
            let tags = tags.split(',').map(str::trim).filter(|it| !it.is_empty());
            let tags: Vec<_> = tags.collect();
            if tags.is_empty() || tags.len() > MAX_TAGS || !tags.iter().all(|it| is_etag(it)) {
                return Err(Problem::bad_header(IF_MATCH.as_str(), allowed));
            }
            // ETags of other stores and weak ones match nothing.
            let versions = tags.into_iter().filter_map(|it| grid.version_of_etag(it));
            Ok(Expected::OneOf(versions.collect()))
        }
        (_, Some(_)) => {
            Err(Problem::bad_header(IF_NONE_MATCH.as_str(), "must be *, without If-Match"))
        }
    }
}

fn is_etag(text: &str) -> bool {
    let strong = text.strip_prefix("W/").unwrap_or(text);
    let tag = strong.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    tag.is_some_and(|it| !it.contains('"'))
}
