//! Certificates of the nodes.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Issues the certificate that all nodes share, and publishes it as the kubelet does: files are links into a
/// folder that a link names, and the link is replaced.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
    issued: AtomicU64,
}

impl Authority {
    pub(crate) fn new(folder: PathBuf) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::create_dir_all(&folder).unwrap();
        for name in ["ca.crt", "tls.crt", "tls.key"] {
            symlink(format!("..data/{name}"), folder.join(name)).unwrap();
        }
        Self { folder, issuer, issued: AtomicU64::new(0) }
    }

    /// Issues a certificate for these hosts.
    pub(crate) fn issue(&self, hosts: Vec<String>) {
        let (key, params) = (KeyPair::generate().unwrap(), CertificateParams::new(hosts).unwrap());
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let version = format!("..version-{}", self.issued.fetch_add(1, Ordering::Relaxed));
        let folder = self.folder.join(&version);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("ca.crt"), self.issuer.pem()).unwrap();
        fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
        fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
        symlink(version, self.folder.join("..data_tmp")).unwrap();
        fs::rename(self.folder.join("..data_tmp"), self.folder.join("..data")).unwrap();
    }
}
