//! Direct access to Kubernetes clusters, for what the package manager doesn't provide: pods, logs and
//! the Service proxy.

use std::{
    fmt::{Display, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use oprc_rest::UnitStatus;

use crate::{
    contexts::Context,
    error::CliError,
    output::{join_non_empty, sanitize},
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Annotation with the full deployment id; the label has only a hash of it.
const DEPLOYMENT_ID: &str = "oaas.io/deployment-id";
const OWNER_LABEL: &str = "oaas.io/owner";
const FUNCTION_LABEL: &str = "oaas.io/function";
const PAGE_SIZE: u32 = 500;

#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct KubeArgs {
    /// Kubeconfig file of the cluster; overrides the context.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig file.
    #[arg(long, value_name = "NAME")]
    pub(crate) kube_context: Option<String>,
}

/// Connects to the cluster that the package manager calls `cluster`: by options, by the context, by a
/// sandbox of that name, or by a kubeconfig context of that name. Never falls back to another cluster.
pub(crate) async fn connect(access: &KubeArgs, context: &Context, cluster: &str) -> Result<Client> {
    client(find_config(access, context, cluster).await?)
}

/// Like [`connect`], for requests that must not be repeated: by default, the client repeats each that
/// is answered with 429, 503 or 504.
pub(crate) async fn connect_without_retries(
    access: &KubeArgs,
    context: &Context,
    cluster: &str,
) -> Result<Client> {
    let mut config = find_config(access, context, cluster).await?;
    config.default_retry = false;
    client(config)
}

async fn find_config(access: &KubeArgs, context: &Context, cluster: &str) -> Result<Config> {
    if access.kubeconfig.is_some() || access.kube_context.is_some() {
        return read_config(access.kubeconfig.as_ref(), access.kube_context.as_deref()).await;
    }
    if let Some(kube) = context.clusters.get(cluster) {
        return read_config(kube.kubeconfig.as_ref(), kube.context.as_deref()).await;
    }
    if let Ok(sandbox) = oprc_sandbox::Cluster::open(cluster) {
        return read_config(Some(&sandbox.kubeconfig()), None).await;
    }
    let default = Kubeconfig::read().unwrap_or_default();
    if default.contexts.iter().any(|it| it.name == cluster) {
        return read_config(None, Some(cluster)).await;
    }
    bail!(CliError::InvalidInput(format!(
        "no kubeconfig for cluster {cluster:?}; use --kubeconfig or --kube-context, or \
         `oprc context set NAME --cluster {cluster} --kubeconfig FILE`"
    )))
}

/// Uses the default kubeconfig and its current context for arguments that are `None`.
pub(crate) async fn open(file: Option<&PathBuf>, context: Option<&str>) -> Result<Client> {
    client(read_config(file, context).await?)
}

fn client(config: Config) -> Result<Client> {
    let url = config.cluster_url.to_string();
    let invalid = |error| CliError::InvalidInput(format!("cannot connect to {url}: {error}"));
    Ok(Client::try_from(config).map_err(invalid)?)
}

async fn read_config(file: Option<&PathBuf>, context: Option<&str>) -> Result<Config> {
    let named = match file {
        Some(file) => format!("kubeconfig {}", file.display()),
        None => "default kubeconfig".to_owned(),
    };
    let invalid = |error: &dyn Display| CliError::InvalidInput(format!("{named}: {error}"));
    let config = file.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let config = config.map_err(|error| invalid(&error))?;
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(config, &options).await;
    let mut config = config.map_err(|error| invalid(&error))?;
    config.connect_timeout = Some(REQUEST_TIMEOUT);
    Ok(config)
}

pub(crate) async fn with_timeout<T>(
    work: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T> {
    let timed = tokio::time::timeout(REQUEST_TIMEOUT, work).await.map_err(|_| {
        let seconds = REQUEST_TIMEOUT.as_secs();
        CliError::Unavailable(format!("the Kubernetes API did not respond within {seconds} s"))
    })?;
    timed.map_err(|error| to_cli_error(&error).into())
}

pub(crate) fn to_cli_error(error: &kube::Error) -> CliError {
    let message = error.to_string();
    match error {
        kube::Error::Api(status) if status.code == 404 => CliError::NotFound(message),
        kube::Error::Api(_) => CliError::Rejected(message),
        _ => CliError::Unavailable(message),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodSummary {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// Empty for pods of the data grid.
    pub(crate) function: String,
    phase: String,
    ready: bool,
    restarts: i32,
    /// Reason and message of the first waiting container.
    waiting: String,
}

impl PodSummary {
    /// One line, sanitized.
    pub(crate) fn describe(&self) -> String {
        let Self { name, phase, restarts, .. } = self;
        let ready = if self.ready { "ready" } else { "not ready" };
        let mut line = format!("pod {name}  {phase}, {ready}");
        if *restarts > 0 {
            let plural = if *restarts == 1 { "" } else { "s" };
            let _ = write!(line, ", {restarts} restart{plural}");
        }
        sanitize(&join_non_empty(&[&line, &self.waiting], ": "))
    }
}

impl From<&Pod> for PodSummary {
    fn from(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let waiting = containers.iter().find_map(|it| {
            let waiting = it.state.as_ref()?.waiting.as_ref()?;
            let why =
                [&waiting.reason, &waiting.message].map(|it| it.as_deref().unwrap_or_default());
            Some(join_non_empty(&why, ": "))
        });
        Self {
            name: pod.name_any(),
            namespace: pod.namespace().unwrap_or_default(),
            function: pod.labels().get(FUNCTION_LABEL).cloned().unwrap_or_default(),
            // As kubectl shows it: a terminating pod may still be ready.
            phase: match pod.metadata.deletion_timestamp {
                Some(_) => "Terminating".to_owned(),
                None => status.phase.unwrap_or_default(),
            },
            ready: !containers.is_empty() && containers.iter().all(|it| it.ready),
            restarts: containers.iter().map(|it| it.restart_count).sum(),
            waiting: waiting.unwrap_or_default(),
        }
    }
}

pub(crate) async fn list_pods(client: &Client, unit: &UnitStatus) -> Result<Vec<PodSummary>> {
    let kind = GroupVersionKind::gvk("oaas.io", "v1alpha1", "ClassRuntime");
    let resource = ApiResource::from_gvk(&kind);
    let classes: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &unit.namespace, &resource);
    let limit = ListParams::default().limit(PAGE_SIZE);
    let mut page = limit.clone();
    // Pods are labelled with the name of their ClassRuntime.
    let name = loop {
        let classes = with_timeout(classes.list_metadata(&page)).await?;
        let mut all = classes.items.iter();
        if let Some(class) = all.find(|it| it.annotations().get(DEPLOYMENT_ID) == Some(&unit.id)) {
            break class.name_any();
        }
        let Some(more) = classes.metadata.continue_.filter(|it| !it.is_empty()) else {
            let UnitStatus { cluster, id, .. } = unit;
            let message = format!("no ClassRuntime for unit {id} in cluster {cluster}");
            bail!(CliError::NotFound(message));
        };
        page = limit.clone().continue_token(&more);
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &unit.namespace);
    let found = with_timeout(pods.list(&limit.labels(&format!("{OWNER_LABEL}={name}")))).await?;
    Ok(found.items.iter().map(PodSummary::from).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn describes_why_a_pod_waits() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "hello-1", "labels": {FUNCTION_LABEL: "greet"}},
            "status": {"phase": "Pending", "containerStatuses": [{
                "name": "a", "image": "x", "imageID": "", "ready": false, "restartCount": 2,
                "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
        }))
        .unwrap();
        let pod = PodSummary::from(&pod);
        assert_eq!(pod.function, "greet");
        assert_eq!(pod.describe(), "pod hello-1  Pending, not ready, 2 restarts: ImagePullBackOff");
        let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let terminating: Pod = serde_json::from_value(terminating).unwrap();
        assert_eq!(PodSummary::from(&terminating).phase, "Terminating");
    }
}
