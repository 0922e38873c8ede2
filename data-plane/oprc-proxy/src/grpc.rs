//! The parts of gRPC that the proxy knows: content type, status codes, message framing.

use hyper::{
    HeaderMap,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};

pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const MEDIA_TYPE: &str = "application/grpc";

pub(crate) const OK: u16 = 0;
pub(crate) const UNKNOWN: u16 = 2;
pub(crate) const DEADLINE_EXCEEDED: u16 = 4;
pub(crate) const RESOURCE_EXHAUSTED: u16 = 8;
pub(crate) const UNIMPLEMENTED: u16 = 12;
pub(crate) const INTERNAL: u16 = 13;
pub(crate) const UNAVAILABLE: u16 = 14;
pub(crate) const DATA_LOSS: u16 = 15;

/// Length of the prefix of a message: a flag for compression and four bytes for the length.
const PREFIX_LENGTH: usize = 5;

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = value.and_then(|value| value.strip_prefix(MEDIA_TYPE.as_bytes()));
    // Not `application/grpc-web`, which is plain HTTP.
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// From trailers, or from the headers of a response without a body.
pub(crate) fn status(headers: &HeaderMap) -> Option<u16> {
    headers.get(STATUS)?.to_str().ok()?.parse().ok()
}

/// Whether a status is the fault of the server, like 5xx in HTTP.
pub(crate) fn is_server_error(status: u16) -> bool {
    matches!(
        status,
        UNKNOWN
            | DEADLINE_EXCEEDED
            | RESOURCE_EXHAUSTED
            | UNIMPLEMENTED
            | INTERNAL
            | UNAVAILABLE
            | DATA_LOSS
    )
}

/// An uncompressed message without fields.
pub(crate) const EMPTY_MESSAGE: [u8; PREFIX_LENGTH] = [0; PREFIX_LENGTH];

/// The first message of a body, if it is complete and uncompressed.
pub(crate) fn first_message(body: &[u8]) -> Option<&[u8]> {
    let (prefix, rest) = body.split_first_chunk::<PREFIX_LENGTH>()?;
    let [0, length @ ..] = *prefix else { return None };
    rest.get(..usize::try_from(u32::from_be_bytes(length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_only_complete_uncompressed_messages() {
        assert_eq!(first_message(&[0, 0, 0, 0, 2, 8, 1]), Some(&[8, 1][..]));
        assert_eq!(first_message(&EMPTY_MESSAGE), Some(&[][..]));
        assert_eq!(first_message(&[0, 0, 0, 0, 2, 8]), None);
        assert_eq!(first_message(&[1, 0, 0, 0, 0]), None);
        assert_eq!(first_message(&[0, 0]), None);
    }

    #[test]
    fn recognises_grpc_by_its_content_type() {
        let headers = |value| {
            HeaderMap::from_iter([(CONTENT_TYPE, hyper::http::HeaderValue::from_static(value))])
        };
        assert!(is_grpc(&headers("application/grpc+proto")));
        assert!(!is_grpc(&headers("application/json")));
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
