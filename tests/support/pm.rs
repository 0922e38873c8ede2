//! PM processes for tests.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use oprc_sandbox::within;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{HELLO, eventually, peak_memory, program};

/// Includes the expiry of the lease of a killed process.
const READY_TIMEOUT: Duration = Duration::from_mins(2);
/// Bound on one request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// The token with the role admin.
pub const ADMIN: &str = "an-admin-of-the-tests";
/// Bound on a rollout.
pub const ROLLOUT_TIMEOUT: Duration = Duration::from_mins(4);
/// Idle connections are closed before PM closes them, which could race with a request.
const IDLE: Duration = Duration::from_secs(5);

/// The configuration of a PM.
#[derive(Clone, Default)]
pub struct Setup {
    /// Clusters by name, with their configuration.
    pub clusters: Vec<(String, Value)>,
    /// The endpoint and root of an etcd; without one the store is a file.
    pub etcd: Option<(String, String)>,
    /// Additional environment variables.
    pub variables: Vec<(String, String)>,
}

impl Setup {
    pub fn of<'a>(clusters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let plain = |(name, url): (&str, &str)| (name.to_owned(), json!({"url": url}));
        Self { clusters: clusters.into_iter().map(plain).collect(), ..Self::default() }
    }

    #[must_use]
    pub fn cluster(mut self, name: &str, cluster: Value) -> Self {
        self.clusters.push((name.to_owned(), cluster));
        self
    }

    #[must_use]
    pub fn in_etcd(mut self, endpoint: &str, root: &str) -> Self {
        self.etcd = Some((endpoint.to_owned(), root.to_owned()));
        self
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }
}

type Http = legacy::Client<HttpConnector, Full<Bytes>>;

/// A PM process, killed on drop.
pub struct Pm {
    pub url: String,
    setup: Setup,
    folder: Arc<TempDir>,
    child: Arc<Mutex<Child>>,
    log: Arc<Mutex<String>>,
    http: Http,
}

impl Drop for Pm {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let last: Vec<_> = log.lines().rev().take(30).collect();
            println!("The end of PM's log:");
            last.iter().rev().for_each(|line| println!("{line}"));
        }
    }
}

impl Pm {
    /// Starts a PM and waits until it is ready.
    pub async fn start(setup: &Setup) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("tokens"), format!("admin {ADMIN} role=admin\n"))
            .unwrap();
        Self::in_folder(setup.clone(), folder, Arc::default()).await
    }

    async fn in_folder(setup: Setup, folder: Arc<TempDir>, log: Arc<Mutex<String>>) -> Self {
        let clusters: serde_json::Map<String, Value> = setup.clusters.iter().cloned().collect();
        let mut command = Command::new(program("oprc-pm"));
        command
            .env("HTTP_PORT", "0")
            .env("OPRC_PM_SERVER_HOST", "127.0.0.1")
            .env("OPRC_PM_STORE_PATH", folder.path().join("store.redb"))
            .env("OPRC_PM_SECURITY_TOKEN_FILE", folder.path().join("tokens"))
            .env("OPRC_PM_CRM_CLUSTERS", Value::from(clusters).to_string())
            .env("OPRC_PM_LOG_FORMAT", "json")
            .env("RUST_LOG", "info,oprc_pm=debug")
            .envs(setup.variables.iter().cloned())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some((endpoint, root)) = &setup.etcd {
            command
                .env("OPRC_PM_STORE_KIND", "etcd")
                .env("OPRC_PM_STORE_ETCD_ENDPOINTS", endpoint)
                .env("OPRC_PM_STORE_ETCD_ROOT", root);
        }
        // The lease of a killed process may not have expired yet.
        let starting = async {
            loop {
                if let Some(started) = Self::spawn(&mut command, &log).await {
                    return Ok::<_, String>(started);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let (child, address) = match within("PM to listen", READY_TIMEOUT, starting).await {
            Ok(started) => started,
            Err(error) => panic!("{error}: {}", log.lock().unwrap()),
        };
        let url = format!("http://{address}");
        let http =
            legacy::Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).build_http();
        let child = Arc::new(Mutex::new(child));
        let pm = Self { url, setup, folder, child, log, http };
        eventually("PM to be ready", READY_TIMEOUT, || async {
            crate::http::get_ok(&format!("{}/health/ready", pm.url)).await
        })
        .await;
        pm
    }

    /// Starts a process; `None` if it exits before it listens.
    async fn spawn(command: &mut Command, log: &Arc<Mutex<String>>) -> Option<(Child, String)> {
        let mut child = command.spawn().expect("oprc-pm");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::clone(log);
        let reading = tokio::task::spawn_blocking(move || {
            let keep = |line: &String| {
                let mut log = log.lock().unwrap();
                log.push_str(line);
                log.push('\n');
            };
            let mut all = lines.by_ref().map_while(Result::ok).inspect(keep);
            let address = all.find_map(|line| crate::crm::listening_address(&line));
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    let mut log = log.lock().unwrap();
                    log.push_str(&line);
                    log.push('\n');
                }
            });
            address
        });
        if let Some(address) = reading.await.unwrap() {
            return Some((child, address));
        }
        let _ = child.wait();
        None
    }

    /// The log, including that of former processes.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Kills the process.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// A closure that kills the process.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        let child = Arc::clone(&self.child);
        move || {
            let mut child = child.lock().unwrap();
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until the process has exited.
    pub async fn ended(&self) {
        while matches!(self.child.lock().unwrap().try_wait(), Ok(None)) {
            // `wait` needs exclusive access, so this polls.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Kills it and starts it on the same store.
    pub async fn restart(self) -> Self {
        let setup = self.setup.clone();
        self.restart_as(setup).await
    }

    /// Like [`Self::restart`], with another configuration.
    pub async fn restart_as(self, setup: Setup) -> Self {
        self.kill();
        let (folder, log) = (Arc::clone(&self.folder), Arc::clone(&self.log));
        drop(self);
        Self::in_folder(setup, folder, log).await
    }

    /// Kills it, deletes its store and starts it.
    pub async fn restart_without_store(self) -> Self {
        self.kill();
        std::fs::remove_file(self.folder.path().join("store.redb")).unwrap();
        self.restart().await
    }

    pub fn peak_memory(&self) -> f64 {
        peak_memory(self.child.lock().unwrap().id())
    }

    /// The folder with its store and tokens.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Sends a request, with a token if one is given.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        token: Option<&str>,
    ) -> Result<(StatusCode, Value), String> {
        self.ask_with(method, path, body.map(|it| ("application/json", it.to_string())), token)
            .await
    }

    async fn ask_with(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
        token: Option<&str>,
    ) -> Result<(StatusCode, Value), String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some((kind, _)) = &body {
            request = request.header("content-type", *kind);
        }
        let body = body.map(|(_, body)| body).unwrap_or_default();
        let request = request.body(Full::from(body)).unwrap();
        let exchange = async {
            let response = self.http.request(request).await.map_err(|error| error.to_string())?;
            let status = response.status();
            let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
            let body = body.to_bytes();
            let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
            Ok((status, serde_json::from_slice(&body).unwrap_or_else(|_| text())))
        };
        let timed_out = |_| "no response".to_owned();
        tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await.map_err(timed_out)?
    }

    /// Sends a request as admin; a status other than success is an error.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let (status, response) =
            self.ask(method, &format!("/api/v1{path}"), body, Some(ADMIN)).await?;
        if status.is_success() { Ok(response) } else { Err(format!("{status}: {response}")) }
    }

    pub async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, None).await.unwrap()
    }

    pub async fn publish(&self, package: &Value) {
        self.call(Method::POST, "/packages", Some(package)).await.unwrap();
    }

    /// Publishes a YAML file of packages.
    pub async fn publish_text(&self, text: &str) -> Result<(), String> {
        let (path, body) = ("/api/v1/packages", Some(("application/yaml", text.to_owned())));
        match self.ask_with(Method::POST, path, body, Some(ADMIN)).await? {
            (status, _) if status.is_success() => Ok(()),
            (status, response) => Err(format!("{status}: {response}")),
        }
    }

    /// Creates or updates a deployment.
    pub async fn deploy(&self, deployment: &Value) -> Result<Value, String> {
        let path =
            format!("/deployments/{}", deployment.get("key").and_then(Value::as_str).unwrap());
        self.call(Method::PUT, &path, Some(deployment)).await
    }

    /// Waits for a status of a deployment.
    pub async fn wait_for(&self, key: &str, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/deployments/{key}/status");
        eventually(&format!("{key} to be {what}"), ROLLOUT_TIMEOUT, || async {
            let status = self.call(Method::GET, &path, None).await?;
            if matches(&status) { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }

    pub async fn wait_for_condition(&self, key: &str, condition: &str) -> Value {
        self.wait_for(key, condition, |status| {
            status.get("condition").is_some_and(|it| it == condition)
        })
        .await
    }

    pub async fn wait_deleted(&self, key: &str) {
        let path = format!("/api/v1/deployments/{key}");
        eventually(&format!("{key} to be deleted"), ROLLOUT_TIMEOUT, || async {
            match self.ask(Method::GET, &path, None, Some(ADMIN)).await? {
                (StatusCode::NOT_FOUND, _) => Ok(()),
                (status, response) => Err(format!("{status}: {response}")),
            }
        })
        .await;
    }

    /// Waits until a cluster has this health.
    pub async fn wait_for_cluster(&self, name: &str, health: &str) {
        let path = format!("/clusters/{name}");
        eventually(&format!("{name} to be {health}"), ROLLOUT_TIMEOUT, || async {
            let cluster = self.call(Method::GET, &path, None).await?;
            if cluster.get("health").is_some_and(|it| it == health) {
                Ok(())
            } else {
                Err(cluster.to_string())
            }
        })
        .await;
    }
}

/// A package of one class with one function, whose variable `MARK` is the version.
pub fn package(version: &str) -> Value {
    json!({
        "name": "sample",
        "version": version,
        "functions": [{
            "key": "greet",
            "provision": {"deployment": {
                "image": HELLO,
                "pullPolicy": "Never",
                "requestsCpu": "10m",
                "requestsMemory": "16Mi",
                "env": {"DRAIN_MS": "0", "MARK": version},
                // A busy node must not cause restarts.
                "healthCheck": {
                    "path": "/healthz", "periodSeconds": 1,
                    "timeoutSeconds": 3, "failureThreshold": 100,
                },
            }},
        }],
        "classes": [{
            "key": "Sample",
            "functions": [{"name": "greet", "function": "greet", "defaultRoute": true}],
        }],
    })
}

/// A deployment of [`package`].
pub fn deployment(key: &str, version: &str) -> Value {
    json!({"key": key, "package": "sample", "version": format!("={version}"), "class": "Sample"})
}
