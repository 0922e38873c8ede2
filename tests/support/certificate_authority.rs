//! A certificate authority with files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose,
};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    pub fn new(folder: &Path) -> Self {
        let mut params = params(&folder.display().to_string(), &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder: folder.to_owned() }
    }

    /// The path of the CA certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Paths of a new certificate and its key.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let certificate = params(name, hosts).signed_by(&key, &self.issuer).unwrap();
        let files =
            (self.folder.join(format!("{name}.pem")), self.folder.join(format!("{name}.key")));
        fs::write(&files.0, certificate.pem()).unwrap();
        fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
