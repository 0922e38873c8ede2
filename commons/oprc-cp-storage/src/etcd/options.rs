//! Where an etcd is and how it lets us in.

use std::{fmt, path::PathBuf, time::Duration};

use tonic::transport::Uri;

use crate::{DEADLINE, Error, Result, key::check_key};

/// An owner that is cut off or dead stays the owner for so long.
const LEASE: Duration = Duration::from_secs(10);

/// Where an etcd is and how it lets us in.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT`; any of them will do, others are for when it fails.
    pub endpoints: Vec<String>,
    /// What all keys begin with, since an etcd may have other users.
    pub root: String,
    /// For `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// Where etcd asks for a user; a client certificate may say the same.
    pub login: Option<Login>,
    /// How long a call may take.
    pub deadline: Duration,
    /// How long an owner that is cut off or dead stays the owner.
    pub lease: Duration,
}

/// PEM files for TLS. They are read again for every new connection, so they can be replaced.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// Authorities that etcd's certificate is by.
    pub ca: PathBuf,
    /// Our own certificate and its key, where etcd asks for one.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name in etcd's certificate, if it isn't the host of the endpoint.
    pub server_name: Option<String>,
}

/// A user of etcd.
#[derive(Debug, Clone)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: Password,
}

/// A password, which is never shown.
#[derive(Clone)]
pub enum Password {
    /// As it is.
    Value(String),
    /// In a file, which is read whenever it is needed. A line's end behind it doesn't count.
    File(PathBuf),
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => formatter.write_str("Value(…)"),
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
        }
    }
}

impl EtcdOptions {
    /// With what suits most.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            root: "oprc".to_owned(),
            tls: None,
            login: None,
            deadline: DEADLINE,
            lease: LEASE,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.endpoints.is_empty() {
            return Err(Error::invalid("no endpoint of etcd is given"));
        }
        if self.deadline.is_zero() || self.lease < Duration::from_secs(1) {
            return Err(Error::invalid("a deadline is above 0 and a lease at least 1 s"));
        }
        check_key(&self.root)
    }

    /// Endpoints, and whether each has TLS.
    pub(super) fn addresses(&self) -> Result<Vec<(Uri, bool)>> {
        let parse = |endpoint: &String| {
            let wrong =
                |reason: &str| Error::invalid(format!("the endpoint {endpoint:?} {reason}"));
            let uri: Uri = endpoint.parse().map_err(|_| wrong("isn't a URL"))?;
            if uri.host().is_none() || uri.port().is_none() {
                return Err(wrong("has no host and port"));
            }
            if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
                return Err(Error::invalid(
                    "an endpoint of etcd names a user: that is for a login",
                ));
            }
            match uri.scheme_str() {
                Some("http") => Ok((uri, false)),
                Some("https") if self.tls.is_some() => Ok((uri, true)),
                Some("https") => Err(wrong("needs a file with the authority of its certificate")),
                _ => Err(wrong("is neither http nor https")),
            }
        };
        self.endpoints.iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let password = Password::Value("hunter2".to_owned());
        let mut options = EtcdOptions::new(["http://localhost:2379"]);
        options.login = Some(Login { user: "pm".to_owned(), password });
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[test]
    fn endpoints_are_checked() {
        let error = |endpoint: &str| EtcdOptions::new([endpoint]).addresses().unwrap_err();
        for bad in ["localhost:2379", "http://localhost", "https://localhost:2379", "ftp://a:1", ""]
        {
            assert!(matches!(error(bad), Error::Invalid { .. }), "{bad}");
        }
        let secret = error("http://root:hunter2@localhost:2379").to_string();
        assert!(!secret.contains("hunter2"), "{secret}");
        EtcdOptions::new(["http://[::1]:2379"]).addresses().unwrap();
        assert!(EtcdOptions::new([""; 0]).check().is_err());
    }
}
