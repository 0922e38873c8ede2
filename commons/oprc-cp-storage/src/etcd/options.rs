use std::{fmt, path::PathBuf, time::Duration};

use tonic::codegen::http::uri::{Authority, Uri};

use crate::{DEFAULT_DEADLINE, Error, Result, key::check_key};

const DEFAULT_LEASE_TTL: Duration = Duration::from_secs(10);

/// Debug output never shows a password.
#[derive(Clone)]
pub struct EtcdOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT`. One is used at a time, the others on failure.
    pub endpoints: Vec<String>,
    /// The prefix of all keys, because an etcd may have other users.
    pub root: String,
    /// For `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// For password authentication; a client certificate can authenticate, too.
    pub login: Option<Login>,
    /// Of each call.
    pub deadline: Duration,
    /// Time until a lease expires whose holder is dead or disconnected.
    pub lease_ttl: Duration,
}

/// PEM files for TLS. They are read for every new connection, so they can be rotated.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// The authorities of etcd's certificate.
    pub ca: PathBuf,
    /// Client certificate and key, if etcd requires them.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name in etcd's certificate, if it differs from the endpoint's host.
    pub server_name: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Login {
    pub user: String,
    pub password: Password,
}

/// Debug output never shows the password.
#[derive(Clone)]
pub enum Password {
    Value(String),
    /// Read for every login. A trailing newline is ignored.
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

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, root, tls, login, deadline, lease_ttl } = self;
        // Invalid endpoints may contain a password, too.
        let shown = |it: &String| if it.contains('@') { "…".to_owned() } else { it.clone() };
        formatter
            .debug_struct("EtcdOptions")
            .field("endpoints", &endpoints.iter().map(shown).collect::<Vec<_>>())
            .field("root", root)
            .field("tls", tls)
            .field("login", login)
            .field("deadline", deadline)
            .field("lease_ttl", lease_ttl)
            .finish()
    }
}

impl EtcdOptions {
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            root: "oprc".to_owned(),
            tls: None,
            login: None,
            deadline: DEFAULT_DEADLINE,
            lease_ttl: DEFAULT_LEASE_TTL,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.endpoints.is_empty() {
            return Err(Error::invalid("no etcd endpoint is configured"));
        }
        if self.deadline.is_zero() || self.lease_ttl < Duration::from_secs(1) {
            return Err(Error::invalid("the deadline must be above 0 and the lease at least 1 s"));
        }
        check_key(&self.root)
    }

    /// Each endpoint, and whether it uses TLS.
    pub(super) fn addresses(&self) -> Result<Vec<(Authority, bool)>> {
        let parse = |endpoint: &String| {
            // Checked first, because the other errors show the endpoint.
            if endpoint.contains('@') {
                return Err(Error::invalid(
                    "an etcd endpoint must not contain a user: use the login settings",
                ));
            }
            let invalid =
                |reason: &str| Error::invalid(format!("the endpoint {endpoint:?} {reason}"));
            let uri: Uri = endpoint.parse().map_err(|_| invalid("is not a URL"))?;
            let Some(address) = uri.authority().filter(|it| it.port().is_some()).cloned() else {
                return Err(invalid("has no host and port"));
            };
            match uri.scheme_str() {
                Some("http") => Ok((address, false)),
                Some("https") if self.tls.is_some() => Ok((address, true)),
                Some("https") => {
                    Err(invalid("needs TLS: set the file of its certificate authority"))
                }
                _ => Err(invalid("is neither http nor https")),
            }
        };
        self.endpoints.iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_passwords() {
        let password = Password::Value("hunter2".to_owned());
        let mut options = EtcdOptions::new(["http://localhost:2379"]);
        options.login = Some(Login { user: "pm".to_owned(), password });
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[test]
    fn validates_endpoints() {
        let error = |endpoint: &str| EtcdOptions::new([endpoint]).addresses().unwrap_err();
        for bad in ["localhost:2379", "http://localhost", "https://localhost:2379", "ftp://a:1", ""]
        {
            assert!(matches!(error(bad), Error::Invalid { .. }), "{bad}");
        }
        for secret in [
            "http://root:hunter2@localhost:2379",
            "https://root:hunter2@localhost:2379",
            "http://root:hunter2@localhost",
            "root:hunter2@localhost:2379",
            "http://root:hunter2@local host:x",
        ] {
            let message = error(secret).to_string();
            assert!(message.contains("must not contain a user"), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
            assert!(!format!("{:?}", EtcdOptions::new([secret])).contains("hunter2"), "{secret}");
        }
        EtcdOptions::new(["http://[::1]:2379"]).addresses().unwrap();
        assert!(EtcdOptions::new([""; 0]).check().is_err());
    }
}
