//! Certificates of a cluster. It has three CAs: for the cluster, for etcd and for front proxies.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::{Error, Result, spec::write_private};

/// CA of the cluster's servers and clients.
pub(crate) const CLUSTER: &str = "ca";
/// CA of etcd and its only client.
pub(crate) const ETCD: &str = "etcd-ca";
/// CA of front proxies, which may impersonate users.
pub(crate) const FRONT: &str = "front-ca";

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

#[derive(Debug, Clone)]
pub struct Pki {
    folder: PathBuf,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed("Creating certificates", error.to_string())
}

impl Pki {
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    pub(crate) fn create_authority(&self, name: &str) -> Result<()> {
        let mut params = params(name, None, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        self.store(name, &Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Creates a key pair that signs service account tokens.
    pub(crate) fn create_token_key(&self, name: &str) -> Result<()> {
        let key = KeyPair::generate().map_err(failed)?;
        write_private(&self.folder.join(format!("{name}.pub")), key.public_key_pem().as_bytes())?;
        write_private(&self.key(name), key.serialize_pem().as_bytes())
    }

    /// Issues a certificate and stores it.
    pub(crate) fn create(
        &self,
        authority: &str,
        name: &str,
        request: &Request<'_>,
    ) -> Result<Identity> {
        let identity = self.issue(authority, request)?;
        self.store(name, &identity)?;
        Ok(identity)
    }

    /// Issues a client certificate for a user with at most one group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        self.issue(CLUSTER, &Request { common_name: user, group, names: &[] })
    }

    pub fn server(&self, names: &[&str]) -> Result<Identity> {
        let common_name = names.first().copied().unwrap_or_default();
        self.issue(CLUSTER, &Request { common_name, group: None, names })
    }

    fn issue(&self, authority: &str, request: &Request<'_>) -> Result<Identity> {
        let read = |path: PathBuf| {
            fs::read_to_string(&path).map_err(Error::io(format!("reading {}", path.display())))
        };
        let ca_key = KeyPair::from_pem(&read(self.key(authority))?).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(&read(self.certificate(authority))?, ca_key)
            .map_err(failed)?;
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(request.common_name, request.group, request.names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !request.names.is_empty() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    fn store(&self, name: &str, identity: &Identity) -> Result<()> {
        write_private(&self.certificate(name), identity.certificate.as_bytes())?;
        write_private(&self.key(name), identity.key.as_bytes())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The subject of a certificate. Without names it can't be used by a server.
pub(crate) struct Request<'a> {
    pub(crate) common_name: &'a str,
    pub(crate) group: Option<&'a str>,
    pub(crate) names: &'a [&'a str],
}

fn params(common_name: &str, group: Option<&str>, names: &[&str]) -> Result<CertificateParams> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(failed)?;
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(3650);
    params.use_authority_key_identifier_extension = true;
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, common_name);
    params.distinguished_name = subject;
    Ok(params)
}
