//! Certificates of a cluster. It has three CAs: for the cluster, for etcd and for front proxies.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::{
    Error, Result,
    files::{self, write_private},
};

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
    pub(crate) folder: PathBuf,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed("Creating certificates", error)
}

impl Pki {
    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    /// The file with the public key of a key pair without a certificate.
    pub(crate) fn public_key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pub"))
    }

    /// The certificate of the cluster's CA, as PEM.
    pub(crate) fn authority(&self) -> Result<String> {
        files::read(&self.certificate(CLUSTER))
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
        write_private(&self.public_key(name), key.public_key_pem())?;
        write_private(&self.key(name), key.serialize_pem())
    }

    /// Issues a client certificate for a user with at most one group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        self.issue(CLUSTER, user, group, &[])
    }

    pub fn server(&self, names: &[&str]) -> Result<Identity> {
        self.issue(CLUSTER, names.first().copied().unwrap_or_default(), None, names)
    }

    /// Issues a certificate for a client, and for a server if it has host names.
    pub(crate) fn issue(
        &self,
        authority: &str,
        common_name: &str,
        group: Option<&str>,
        names: &[&str],
    ) -> Result<Identity> {
        let ca = self.load(authority)?;
        let ca_key = KeyPair::from_pem(&ca.key).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(&ca.certificate, ca_key).map_err(failed)?;
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(common_name, group, names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !names.is_empty() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    pub(crate) fn store(&self, name: &str, identity: &Identity) -> Result<()> {
        write_private(&self.certificate(name), &identity.certificate)?;
        write_private(&self.key(name), &identity.key)
    }

    pub(crate) fn load(&self, name: &str) -> Result<Identity> {
        let key = files::read(&self.key(name))?;
        Ok(Identity { certificate: files::read(&self.certificate(name))?, key })
    }
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
