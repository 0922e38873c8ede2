//! Hop-by-hop headers of HTTP/1 (RFC 9110, section 7.6.1). HTTP/2 has none.

use hyper::{
    HeaderMap, StatusCode,
    header::{
        CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
    },
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Removes hop-by-hop headers except for `te: trailers` and those of an upgrade. Returns whether the
/// client asks for an upgrade.
pub(crate) fn prepare_request(headers: &mut HeaderMap) -> bool {
    let upgrade = requested_upgrade(headers);
    let trailers = accepts_trailers(headers);
    remove_hop_by_hop(headers);
    let is_upgrade = upgrade.is_some();
    if let Some(protocol) = upgrade {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else if trailers {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    is_upgrade
}

/// Removes hop-by-hop headers except for those of an upgrade.
pub(crate) fn prepare_response(status: StatusCode, headers: &mut HeaderMap) {
    let keeps_upgrade =
        matches!(status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED);
    let upgrade = if keeps_upgrade { headers.get(UPGRADE).cloned() } else { None };
    remove_hop_by_hop(headers);
    if let Some(protocol) = upgrade {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// An upgrade to h2c is not forwarded: its calls would not be limited or counted. A client has to
/// continue with HTTP/1 if the server ignores the header.
fn requested_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let is_listed = tokens(headers, &CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"));
    let is_h2c = protocol.to_str().is_ok_and(|text| text.trim().eq_ignore_ascii_case("h2c"));
    (is_listed && !is_h2c).then(|| protocol.clone())
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    tokens(headers, &TE).any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> =
            tokens(headers, &CONNECTION).filter_map(|name| name.parse().ok()).collect();
        for name in named {
            // A client must not remove these.
            if name != HOST && name != CONTENT_LENGTH {
                headers.remove(name);
            }
        }
        headers.remove(CONNECTION);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, HTTP2_SETTINGS, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter();
        lines
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn removes_headers_of_the_connection() {
        let mut request = headers(&[
            ("connection", "keep-alive, X-Secret, host"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip"),
            ("x-secret", "1"),
            ("host", "hello.example"),
            ("x-kept", "2"),
        ]);
        assert!(!prepare_request(&mut request));
        assert_eq!(request, headers(&[("host", "hello.example"), ("x-kept", "2")]));
    }

    #[test]
    fn keeps_trailers() {
        let mut request = headers(&[("connection", "te"), ("te", "gzip, trailers")]);
        assert!(!prepare_request(&mut request));
        assert_eq!(request, headers(&[("connection", "te"), ("te", "trailers")]));
    }

    #[test]
    fn keeps_upgrades_but_not_to_h2c() {
        let websocket = headers(&[("connection", "upgrade"), ("upgrade", "websocket")]);
        let mut request =
            headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert!(prepare_request(&mut request));
        assert_eq!(request, websocket);
        prepare_response(StatusCode::SWITCHING_PROTOCOLS, &mut request);
        assert_eq!(request, websocket);
        prepare_response(StatusCode::OK, &mut request);
        assert_eq!(request, HeaderMap::new());

        let mut request = headers(&[
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQAoAAA"),
        ]);
        assert!(!prepare_request(&mut request));
        assert_eq!(request, HeaderMap::new());
        // Without `connection: upgrade` it is no request for an upgrade.
        assert!(!prepare_request(&mut headers(&[("upgrade", "websocket")])));
    }
}
