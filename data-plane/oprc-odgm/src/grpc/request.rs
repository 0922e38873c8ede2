//! Parts of requests.

use hyper::header::{HeaderName, HeaderValue};
use oprc_grpc::odgm::Precondition;
use serde::de::DeserializeOwned;
use tonic::{Status, metadata::MetadataMap};

use crate::{
    Error, Expected, Grid,
    caller::{Caller, PASSED_ON},
    class::Access,
    grid::now,
};

const MAX_ETAGS: usize = 100;

pub(super) fn caller(grid: &Grid, access: Access, metadata: &MetadataMap) -> Result<Caller, Error> {
    let tokens = metadata.get_all(Caller::TOKENS);
    let tokens: Vec<_> = tokens.iter().filter_map(|it| it.to_str().ok()).collect();
    let mut caller = Caller::recognise(grid, access, &tokens.join(","))?;
    let timeout = metadata.get("grpc-timeout").and_then(|it| it.to_str().ok());
    if let Some(millis) = timeout.and_then(timeout_millis) {
        let expires = now().saturating_add(millis);
        let earlier = caller.origin.expires.map_or(expires, |it| it.min(expires));
        caller.origin.expires = Some(earlier);
    }
    Ok(caller)
}

/// The value of `grpc-timeout` in milliseconds.
fn timeout_millis(text: &str) -> Option<i64> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i64 = digits.parse().ok().filter(|it| *it >= 0)?;
    match unit {
        "H" => number.checked_mul(3_600_000),
        "M" => number.checked_mul(60_000),
        "S" => number.checked_mul(1000),
        "m" => Some(number),
        "u" => Some(number / 1000),
        "n" => Some(number / 1_000_000),
        _ => None,
    }
}

pub(super) fn collection(name: &str) -> Option<&str> {
    Some(name).filter(|it| !it.is_empty())
}

pub(super) fn json<T: DeserializeOwned>(text: &str, field: &str) -> Result<T, Status> {
    let invalid = |error| Status::invalid_argument(format!("{field} is invalid: {error}"));
    serde_json::from_str(text).map_err(invalid)
}

pub(super) fn expected(
    grid: &Grid,
    precondition: Option<Precondition>,
) -> Result<Expected, Status> {
    let Precondition { absent, exists, etags } = precondition.unwrap_or_default();
    match (absent, exists, etags.len()) {
        (false, false, 0) => Ok(Expected::Anything),
        (true, false, 0) => Ok(Expected::Absent),
        (false, true, 0) => Ok(Expected::Exists),
        (false, false, 1..=MAX_ETAGS) => {
            let versions = etags.iter().filter_map(|it| grid.version_of_etag(it));
            Ok(Expected::OneOf(versions.collect()))
        }
        _ => {
            let allowed = "absent, exists or at most 100 etags";
            Err(Status::invalid_argument(format!("precondition: expected: one of {allowed}")))
        }
    }
}

pub(super) fn passed_on(metadata: &MetadataMap) -> Vec<(HeaderName, HeaderValue)> {
    let header = |name: &'static str| {
        let value = HeaderValue::from_bytes(metadata.get(name)?.as_bytes()).ok()?;
        Some((HeaderName::from_static(name), value))
    };
    PASSED_ON.into_iter().filter_map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_units() {
        for (text, millis) in [
            ("5S", 5000),
            ("100m", 100),
            ("2H", 7_200_000),
            ("1M", 60_000),
            ("1500u", 1),
            ("9n", 0),
        ] {
            assert_eq!(timeout_millis(text), Some(millis), "{text}");
        }
        for text in ["", "5", "S", "-1S", "5é", "99999999999999999999S", "5x"] {
            assert_eq!(timeout_millis(text), None, "{text}");
        }
    }
}
