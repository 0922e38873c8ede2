//! CRMs for tests: each manages only the namespace of its test, with the permissions of `k8s/rbac`.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::{
    Api,
    api::PostParams,
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use oprc_crm::{
    cache::{ApiHealth, client},
    config::{Config, SCHEMA},
    run::{Crm as Process, wall_clock},
};
use oprc_grpc::deployment::deployment_service_client::DeploymentServiceClient;
use oprc_sandbox::{Cluster, within};
use serde_json::json;
use tokio::{sync::oneshot, task::JoinHandle};
use tonic::transport::{Channel, Endpoint};

use crate::{TestNamespace, manifest, program, workspace};

/// The image of the data grid on the nodes.
pub const ODGM: &str = "oprc.local/oprc-odgm:dev";
const PROXY: &str = "oprc.local/oprc-proxy:dev";
const READY_TIMEOUT: Duration = Duration::from_secs(90);

pub type Client = DeploymentServiceClient<Channel>;

/// Runs kubectl in this repository.
pub fn apply(cluster: &Cluster, arguments: &[&str]) {
    let mut kubectl = cluster.kubectl();
    let done = kubectl.args(arguments).current_dir(workspace()).output().expect("kubectl");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Installs the CRD in the shared cluster.
pub(crate) async fn install_crd(cluster: &Cluster) {
    let client = cluster.client().await.expect("a client");
    manifest::apply(&client, "default", "k8s/crds/classruntimes.gen.yaml").await;
    let crds = Api::all(client);
    let known = await_condition(crds, "classruntimes.oaas.io", is_crd_established());
    within("the CRD to be established", READY_TIMEOUT, known).await.expect("the CRD");
}

/// Installs the CRD.
pub fn install(cluster: &Cluster) {
    apply(cluster, &["apply", "--server-side", "-f", "k8s/crds"]);
    let crd = "crd/classruntimes.oaas.io";
    apply(cluster, &["wait", "--for=condition=Established", crd, "--timeout=90s"]);
}

/// The configuration of a CRM.
#[derive(Clone)]
pub struct Options {
    /// The Kubernetes user; different CRMs need different ones.
    pub user: String,
    /// The URL of a proxy for the API server.
    pub api: Option<String>,
    /// Additional environment variables.
    pub variables: Vec<(String, String)>,
    /// Whether it manages the whole cluster.
    pub everywhere: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { user: "crm".to_owned(), api: None, variables: Vec::new(), everywhere: false }
    }
}

impl Options {
    pub fn user(user: &str) -> Self {
        Self { user: user.to_owned(), ..Self::default() }
    }

    /// Reads metrics of the cluster's Prometheus, which scrapes every 5 s, or of another with its series.
    #[must_use]
    pub fn measuring(prometheus: &str) -> Self {
        Self::default()
            .with("OPRC_CRM_FEATURES_PROMETHEUS", "true")
            .with("OPRC_CRM_PROM_URL", prometheus)
            .with("OPRC_CRM_PROM_SCRAPE_INTERVAL", "5s")
    }

    /// Like [`Self::measuring`], and enforces requirements.
    #[must_use]
    pub fn enforcing(prometheus: &str) -> Self {
        Self::measuring(prometheus).with("OPRC_CRM_FEATURES_NFR_ENFORCEMENT", "true")
    }

    #[must_use]
    pub fn through(mut self, url: &str) -> Self {
        self.api = Some(url.to_owned());
        self
    }

    #[must_use]
    pub fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn environment(&self, namespace: &str) -> BTreeMap<String, String> {
        let scope = if self.everywhere { "cluster" } else { "namespace" };
        let defaults = [
            ("HTTP_PORT", "0"),
            ("OPRC_CRM_SERVER_HOST", "127.0.0.1"),
            ("OPRC_CRM_K8S_SCOPE", scope),
            ("OPRC_CRM_K8S_NAMESPACE", namespace),
            ("OPRC_CRM_FEATURES_ODGM", "true"),
            ("OPRC_CRM_ODGM_IMAGE", ODGM),
            ("OPRC_CRM_PROXY_IMAGE", PROXY),
            ("OPRC_CRM_TEMPLATES_DRAIN", "2s"),
        ];
        let defaults = defaults.map(|(name, value)| (name.to_owned(), value.to_owned()));
        defaults.into_iter().chain(self.variables.iter().cloned()).collect()
    }
}

/// Grants a user the permissions of CRM's service account.
pub async fn allow(ns: &TestNamespace, options: &Options) {
    let subject = json!({
        "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": options.user,
    });
    let name = format!("oprc-crm-{}", options.user);
    let create = PostParams::default();
    if options.everywhere {
        manifest::apply(&ns.client, &ns.name, "k8s/rbac/crm-rbac.yaml").await;
        let all: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oprc-crm"},
            "subjects": [subject],
        }))
        .unwrap();
        let api: Api<ClusterRoleBinding> = Api::all(ns.client.clone());
        ignore_existing(api.create(&create, &all).await);
        let lease = role_binding(&name, "oprc-crm-lease", &subject);
        let api: Api<RoleBinding> = Api::namespaced(ns.client.clone(), "oaas-system");
        ignore_existing(api.create(&create, &lease).await);
    } else {
        let file = "k8s/rbac/crm-rbac-namespaced.yaml";
        manifest::apply(&ns.client, &ns.name, file).await;
        let api: Api<RoleBinding> = Api::namespaced(ns.client.clone(), &ns.name);
        ignore_existing(api.create(&create, &role_binding(&name, "oprc-crm", &subject)).await);
    }
}

fn role_binding(name: &str, role: &str, subject: &serde_json::Value) -> RoleBinding {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [subject],
    }))
    .unwrap()
}

fn ignore_existing<T>(created: Result<T, kube::Error>) {
    match created {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("{error}"),
    }
}

fn kubeconfig(ns: &TestNamespace, options: &Options) -> String {
    let identity = ns.cluster.pki().client(&options.user, None).expect("a certificate");
    let own = ns.cluster.spec().api_url();
    let url = options.api.as_deref().unwrap_or(&own);
    ns.cluster.kubeconfig_at(url, &identity).expect("a kubeconfig")
}

fn lease_namespace(ns: &TestNamespace, options: &Options) -> String {
    if options.everywhere { "oaas-system".to_owned() } else { ns.name.clone() }
}

/// A CRM in the test's process, which may not be ready yet and may require certificates and tokens.
/// It is aborted on drop, without a shutdown.
pub struct CrmTask {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Drop for CrmTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl CrmTask {
    pub async fn start(ns: &TestNamespace, options: &Options) -> Self {
        let config = kube_config(ns, options).await;
        let api_health = ApiHealth::default();
        Self::with_client(ns, options, client(config, &api_health).unwrap(), api_health).await
    }

    async fn with_client(
        ns: &TestNamespace,
        options: &Options,
        client: kube::Client,
        api_health: ApiHealth,
    ) -> Self {
        allow(ns, options).await;
        let matches = SCHEMA.command().get_matches_from(["oprc-crm"]);
        let settings = SCHEMA.resolve(&matches, &options.environment(&ns.name)).unwrap();
        let config = Config::of(&settings).unwrap();
        let process = Process::bind(config, client, api_health, wall_clock(), None).await.unwrap();
        let address = process.address();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stopped = async {
                // If the sender is dropped, it runs until it is aborted.
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            process.run(stopped).await.unwrap();
        });
        Self { address, stop: Some(stop), task }
    }
}

/// The client configuration of a CRM.
pub async fn kube_config(ns: &TestNamespace, options: &Options) -> kube::Config {
    let config: kube::config::Kubeconfig = serde_json::from_str(&kubeconfig(ns, options)).unwrap();
    let defaults = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(config, &defaults).await.unwrap();
    config.proxy_url = None;
    config.default_namespace = lease_namespace(ns, options);
    config
}

/// A CRM in the test's process. It is aborted on drop, without a shutdown.
pub struct Crm {
    pub url: String,
    pub client: Client,
    task: CrmTask,
}

impl Crm {
    /// Starts a CRM and waits until it is ready.
    pub async fn start(ns: &TestNamespace, options: &Options) -> Self {
        Self::ready(CrmTask::start(ns, options).await).await
    }

    /// Starts a CRM with the test's Kubernetes client.
    pub async fn with_client(
        ns: &TestNamespace,
        options: &Options,
        client: kube::Client,
        api_health: ApiHealth,
    ) -> Self {
        Self::ready(CrmTask::with_client(ns, options, client, api_health).await).await
    }

    async fn ready(task: CrmTask) -> Self {
        let url = format!("http://{}", task.address);
        let client = connect(&url).await;
        Self { url, client, task }
    }

    /// Shuts it down as on SIGTERM, and waits until it has stopped.
    pub async fn stop(mut self) {
        let _ = self.task.stop.take().unwrap().send(());
        (&mut self.task.task).await.unwrap();
    }
}

/// Waits until a CRM is ready, and returns a client.
pub async fn connect(url: &str) -> Client {
    crate::eventually("CRM to be ready", READY_TIMEOUT, || async {
        crate::http::get_ok(&format!("{url}/health/ready")).await
    })
    .await;
    let channel = Endpoint::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
    DeploymentServiceClient::new(channel)
}

/// The address in a log line, if it is about listening.
pub(crate) fn listening_address(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let field = |name: &str| line.get(name).and_then(serde_json::Value::as_str);
    field("address").filter(|_| field("message") == Some("listening")).map(str::to_owned)
}

/// Kills the process on drop, unless it is released.
struct KillOnDrop(Option<Child>);

impl KillOnDrop {
    fn release(mut self) -> Child {
        self.0.take().expect("a process")
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A CRM process, killed on drop.
pub struct CrmProcess {
    pub url: String,
    pub client: Client,
    pub child: Child,
    log: Arc<Mutex<String>>,
    _kubeconfig: tempfile::NamedTempFile,
}

impl Drop for CrmProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl CrmProcess {
    /// Starts a CRM and waits until it is ready.
    pub async fn start(ns: &TestNamespace, options: &Options) -> Self {
        allow(ns, options).await;
        let mut config: serde_json::Value = serde_json::from_str(&kubeconfig(ns, options)).unwrap();
        let context = config.pointer_mut("/contexts/0/context").expect("a context");
        context
            .as_object_mut()
            .expect("a context")
            .insert("namespace".to_owned(), lease_namespace(ns, options).into());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config.to_string()).unwrap();
        let mut command = Command::new(program("oprc-crm"));
        command
            .env("RUST_LOG", "info")
            .envs(options.environment(&ns.name))
            .env("KUBECONFIG", file.path())
            .env("OPRC_CRM_LOG_FORMAT", "json")
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("oprc-crm");
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // From here on it is killed on every error.
        let guard = KillOnDrop(Some(child));
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        let reading = tokio::task::spawn_blocking(move || {
            let keep = move |line: &String| {
                let mut kept = kept.lock().unwrap();
                kept.push_str(line);
                kept.push('\n');
            };
            let mut lines = lines.map_while(Result::ok).inspect(keep);
            let address = lines.find_map(|line| listening_address(&line));
            // The process would block on a full pipe.
            std::thread::spawn(move || lines.for_each(drop));
            address.ok_or("it exited")
        });
        let reading = async { reading.await.map_err(|_| "its log can't be read")? };
        let address = within("CRM to log its address", READY_TIMEOUT, reading).await.unwrap();
        let url = format!("http://{address}");
        let client = connect(&url).await;
        let child = guard.release();
        Self { url, client, child, log, _kubeconfig: file }
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}
