//! The conformance suite on an etcd with TLS and users, and rejected credentials.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use oprc_cp_storage::{
    Error, EtcdOptions, EtcdTls, Login, Password, Store, Transaction, conformance::histories,
};
use tempfile::TempDir;
use tokio::{sync::Mutex, time::timeout};

use oprc_tests::{certificate_authority::Authority, etcd::Etcd};

use crate::admin;

const PASSWORD: &str = "correct horse battery staple";
/// Bound on resuming a watch.
const RESUME_TIMEOUT: Duration = Duration::from_secs(90);

/// An etcd with certificates and users.
struct Secured {
    etcd: Etcd,
    folder: TempDir,
    authority: Authority,
}

impl Secured {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(&folder.path().join("authority"));
        let (certificate, key) = authority.issue("server", &["127.0.0.1", "localhost"]);
        // Users are created before TLS is enabled, by calls that the store doesn't have.
        let etcd = Etcd::start();
        admin::enable_users(&etcd, "of root", PASSWORD).await;
        let flag = |name: &str, file: &PathBuf| format!("--{name}={}", file.display());
        let flags = vec![
            flag("cert-file", &certificate),
            flag("key-file", &key),
            flag("trusted-ca-file", &authority.certificate()),
            "--client-cert-auth".to_owned(),
            // Tokens expire during a test.
            "--auth-token-ttl=1".to_owned(),
        ];
        Self { etcd: etcd.with_flags("https", flags), folder, authority }
    }

    /// An instance that is shared while one of the tests runs.
    async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Secured>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(secured) = shared.upgrade() {
            return secured;
        }
        let secured = Arc::new(Self::start().await);
        *shared = Arc::downgrade(&secured);
        secured
    }

    /// Valid options.
    fn options(&self, root: &str) -> EtcdOptions {
        let tls = EtcdTls {
            ca: self.authority.certificate(),
            client: Some(
                self.authority.issue(&format!("client of {}", root.replace('/', " ")), &[]),
            ),
            server_name: None,
        };
        EtcdOptions {
            tls: Some(tls),
            login: Some(login(Password::Value(PASSWORD.to_owned()))),
            ..self.etcd.options(root)
        }
    }
}

fn login(password: Password) -> Login {
    Login { user: "pm".to_owned(), password }
}

async fn open(test: &str) -> (Store, Arc<Secured>) {
    let secured = Secured::shared().await;
    (Store::etcd(secured.options(&format!("pm/{test}"))).await.unwrap(), secured)
}

oprc_cp_storage::conformance_tests!(open);

#[test]
fn histories() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    histories::agree_with_a_map(8, &runtime, &open);
}

/// Opens a store, which must be denied without retries, and returns the error message.
async fn open_denied(options: EtcdOptions) -> String {
    let (started, deadline) = (std::time::Instant::now(), options.deadline);
    let error = Store::etcd(options).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert!(started.elapsed() < deadline / 2, "a rejection was retried: {error}");
    let message = error.to_string();
    assert!(!message.contains("staple") && !message.contains("hunter2"), "{message}");
    message
}

#[tokio::test]
async fn rejects_invalid_credentials_with_the_reason() {
    let secured = Secured::shared().await;
    let valid = || secured.options("pm/rejections");
    // It responds: the time of a rejection is measured.
    Store::etcd(valid()).await.unwrap().close().await;
    let others = Authority::new(&secured.folder.path().join("others"));
    let with = |change: &dyn Fn(&mut EtcdTls)| {
        let mut options = valid();
        change(options.tls.as_mut().unwrap());
        options
    };

    let message = open_denied(with(&|tls| tls.ca = others.certificate())).await;
    assert!(message.contains("UnknownIssuer"), "{message}");
    let message = open_denied(with(&|tls| tls.server_name = Some("example.org".to_owned()))).await;
    assert!(message.contains("not valid for"), "{message}");
    let message = open_denied(with(&|tls| tls.client = None)).await;
    assert!(message.to_lowercase().contains("certificate"), "{message}");
    open_denied(with(&|tls| tls.client = Some(others.issue("other", &[])))).await;

    let wrong = Some(login(Password::Value("hunter2".to_owned())));
    let message = open_denied(EtcdOptions { login: wrong, ..valid() }).await;
    assert!(message.contains("invalid user ID or password"), "{message}");
    let unknown =
        Login { user: "nobody".to_owned(), ..login(Password::Value(PASSWORD.to_owned())) };
    open_denied(EtcdOptions { login: Some(unknown), ..valid() }).await;
    open_denied(EtcdOptions { login: None, ..valid() }).await;
    // The user may only use its own keys.
    let message = open_denied(EtcdOptions { root: "of-others".to_owned(), ..valid() }).await;
    assert!(message.contains("permission denied"), "{message}");
    let missing = Some(login(Password::File("/nonexistent/password".into())));
    let message = open_denied(EtcdOptions { login: missing, ..valid() }).await;
    assert!(message.contains("/nonexistent/password"), "{message}");

    let plain = EtcdOptions {
        endpoints: vec![secured.etcd.endpoint().replace("https", "http")],
        deadline: Duration::from_secs(1),
        ..valid()
    };
    assert!(Store::etcd(plain).await.is_err());
    let mut without = valid();
    without.tls = None;
    assert!(matches!(Store::etcd(without).await, Err(Error::Invalid { .. })));
}

#[tokio::test]
async fn reloads_files_on_reconnect() {
    // Not shared, because it is restarted.
    let secured = Secured::start().await;
    let password = secured.folder.path().join("password");
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let mut options = secured.options("pm/rotation");
    options.login = Some(login(Password::File(password)));
    let (certificate, key) = options.tls.clone().unwrap().client.unwrap();
    let store = Store::etcd(options.clone()).await.unwrap();
    let mut watch = store.watch("", None).await.unwrap();
    store.commit(Transaction::new().put("a", "1")).await.unwrap();
    assert_eq!(watch.next().await.unwrap().changes.len(), 1);
    // Another certificate at the same path, and no valid connection or token.
    let (next_certificate, next_key) = secured.authority.issue("next", &[]);
    fs::rename(next_certificate, certificate).unwrap();
    fs::rename(next_key, key).unwrap();
    secured.etcd.kill();
    secured.etcd.restart();
    // The watch recovers by itself: no call of its store renews the token.
    let other = Store::etcd(options).await.unwrap();
    assert_eq!(other.get("a").await.unwrap().unwrap().value, "1");
    let next = other.commit(Transaction::new().put("a", "2")).await.unwrap();
    let event = timeout(RESUME_TIMEOUT, watch.next()).await.expect("the watch did not resume");
    assert_eq!(event.unwrap().revision, next);
    assert_eq!(store.get("a").await.unwrap().unwrap().value, "2");
}
