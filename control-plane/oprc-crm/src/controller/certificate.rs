//! Certificates with which the nodes of a data grid recognise each other.

use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Two thirds of the lifetime.
const RENEWAL: SignedDuration = SignedDuration::from_hours(60 * 24);
/// The authority of a grid stays, so that old and new certificates are valid at once while its nodes
/// read the new one.
const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(20 * 365 * 24);
/// Clocks of nodes may be slow.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(24);

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

pub(super) struct Issued {
    pub(super) authority: Pair,
    pub(super) node: Pair,
    pub(super) renew_after: Timestamp,
}

/// Issues a certificate for servers and clients with a DNS name, by the existing authority if that can
/// be read.
pub(super) fn issue(
    existing: Option<Pair>,
    dns_name: &str,
    now: Timestamp,
) -> Result<Issued, Error> {
    let (authority, issuer) = match existing.and_then(reuse) {
        Some(reused) => reused,
        None => new_authority(now)?,
    };
    let key = KeyPair::generate()?;
    let mut params = params(vec![dns_name.to_owned()], now, LIFETIME)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    let node = Pair { certificate, key: key.serialize_pem() };
    Ok(Issued { authority, node, renew_after: after(now, RENEWAL) })
}

fn reuse(authority: Pair) -> Option<(Pair, Issuer<'static, KeyPair>)> {
    let key = KeyPair::from_pem(&authority.key).ok()?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, key).ok()?;
    Some((authority, issuer))
}

fn new_authority(now: Timestamp) -> Result<(Pair, Issuer<'static, KeyPair>), Error> {
    let key = KeyPair::generate()?;
    let mut params = params(Vec::new(), now, AUTHORITY_LIFETIME)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = params.self_signed(&key)?.pem();
    let pair = Pair { certificate, key: key.serialize_pem() };
    Ok((pair, Issuer::new(params, key)))
}

fn params(
    names: Vec<String>,
    now: Timestamp,
    lifetime: SignedDuration,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "oprc-odgm");
    let date = |at: Timestamp| {
        let date = at.to_zoned(TimeZone::UTC).date();
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        rcgen::date_time_ymd(date.year().into(), month, day)
    };
    params.not_before = date(now.checked_sub(CLOCK_SKEW).unwrap_or(now));
    params.not_after = date(after(now, lifetime));
    Ok(params)
}

fn after(now: Timestamp, time: SignedDuration) -> Timestamp {
    now.checked_add(time).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
        server::WebPkiClientVerifier,
    };

    use super::*;

    const NAME: &str = "*.shop-odgm-peers.ns.svc";

    fn time(at: Timestamp) -> UnixTime {
        let seconds = u64::try_from(at.as_second()).unwrap();
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
    }

    /// Whether a node with the certificates of `trusted` accepts that of `presented`, as server and
    /// as client.
    fn is_accepted(trusted: &Issued, presented: &Issued, host: &str, at: Timestamp) -> bool {
        let mut roots = RootCertStore::empty();
        let authority = trusted.authority.certificate.as_bytes();
        roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
        let server =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let client = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let certificate =
            CertificateDer::from_pem_slice(presented.node.certificate.as_bytes()).unwrap();
        PrivateKeyDer::from_pem_slice(presented.node.key.as_bytes()).unwrap();
        let host = ServerName::try_from(host.to_owned()).unwrap();
        let served =
            server.build().unwrap().verify_server_cert(&certificate, &[], &host, &[], time(at));
        let called = client.build().unwrap().verify_client_cert(&certificate, &[], time(at));
        served.is_ok() && called.is_ok()
    }

    #[test]
    fn renewed_certificates_and_former_ones_are_accepted_by_all_nodes() {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let host = "shop-odgm-2.shop-odgm-peers.ns.svc";
        let first = issue(None, NAME, now).unwrap();
        assert_eq!(first.renew_after, "2026-03-02T12:00:00Z".parse().unwrap());
        assert!(is_accepted(&first, &first, host, now));
        assert!(!is_accepted(&first, &first, "other.ns.svc", now));
        let second = issue(Some(first.authority.clone()), NAME, first.renew_after).unwrap();
        assert!(first.authority == second.authority && first.node != second.node);
        assert!(is_accepted(&first, &second, host, first.renew_after));
        assert!(is_accepted(&second, &first, host, first.renew_after));
        let end = after(now, LIFETIME) + SignedDuration::from_hours(24);
        assert!(!is_accepted(&second, &first, host, end), "it has expired");
        assert!(is_accepted(&second, &second, host, end));
    }

    #[test]
    fn certificates_of_other_grids_are_refused() {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let (one, other) = (issue(None, NAME, now).unwrap(), issue(None, NAME, now).unwrap());
        assert!(!is_accepted(&one, &other, "a.shop-odgm-peers.ns.svc", now));
        let damaged = Pair { key: "no key".to_owned(), ..one.authority.clone() };
        assert!(issue(Some(damaged), NAME, now).unwrap().authority != one.authority);
    }
}
