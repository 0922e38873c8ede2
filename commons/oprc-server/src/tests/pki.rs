//! Authorities and what they issue.

use std::{fs, path::Path};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::TlsFiles;

pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

pub(super) struct Issued {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = params("authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a server named `localhost`.
    pub(super) fn server(&self) -> Issued {
        self.issue("server", &["localhost"], ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(super) fn client(&self, name: &str) -> Issued {
        self.issue(name, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, name: &str, hosts: &[&str], usage: ExtendedKeyUsagePurpose) -> Issued {
        let mut params = params(name, hosts);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        Issued { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }
}

impl Issued {
    pub(super) fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub(super) fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.serialize_pem().as_bytes()).unwrap()
    }

    /// Puts the certificate and its key where a server finds them, one after the other.
    pub(super) fn store(&self, files: &TlsFiles) {
        replace(&files.certificate, &self.certificate.pem());
        replace(&files.key, &self.key.serialize_pem());
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Replaces a file in one step.
pub(super) fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(&new, path).unwrap();
}

/// Files of a server in a folder, with an authority of clients if there is one.
pub(super) fn files(folder: &Path, server: &Issued, clients: Option<&Authority>) -> TlsFiles {
    let client_ca = clients.map(|clients| {
        let path = folder.join("clients.pem");
        replace(&path, &clients.pem());
        path
    });
    let files = TlsFiles {
        certificate: folder.join("server.pem"),
        key: folder.join("server.key"),
        client_ca,
    };
    server.store(&files);
    files
}
