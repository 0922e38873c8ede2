//! Direct access to Kubernetes clusters, for what the package manager doesn't provide: pods, logs and
//! the Service proxy.

use std::{
    fmt::{Display, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{DynamicObject, ListParams, PartialObjectMeta},
    config::{KubeConfigOptions, Kubeconfig},
    discovery::ApiResource,
};
use oprc_rest::UnitStatus;

use crate::{contexts::Context, error::CliError, output::sanitize};

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
    if access.kubeconfig.is_some() || access.kube_context.is_some() {
        return open(access.kubeconfig.as_ref(), access.kube_context.as_deref()).await;
    }
    if let Some(kube) = context.clusters.get(cluster) {
        return open(kube.kubeconfig.as_ref(), kube.context.as_deref()).await;
    }
    if let Ok(sandbox) = oprc_sandbox::Cluster::open(cluster) {
        return open(Some(&sandbox.kubeconfig()), None).await;
    }
    let default = Kubeconfig::read().unwrap_or_default();
    if default.contexts.iter().any(|it| it.name == cluster) {
        return open(None, Some(cluster)).await;
    }
    Err(CliError::InvalidInput(format!(
        "no kubeconfig for cluster {cluster:?}; use --kubeconfig or --kube-context, or \
         `oprc context set NAME --cluster {cluster} --kubeconfig FILE`"
    ))
    .into())
}

/// Uses the default kubeconfig and its current context for arguments that are `None`.
pub(crate) async fn open(file: Option<&PathBuf>, context: Option<&str>) -> Result<Client> {
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
    Ok(Client::try_from(config).map_err(|error| invalid(&error))?)
}

pub(crate) async fn with_timeout<T>(
    work: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T> {
    let timed = tokio::time::timeout(REQUEST_TIMEOUT, work).await;
    let timed = timed.map_err(|_| {
        CliError::Unavailable(format!(
            "the Kubernetes API did not respond within {} s",
            REQUEST_TIMEOUT.as_secs()
        ))
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
        if !self.waiting.is_empty() {
            let _ = write!(line, ": {}", self.waiting);
        }
        sanitize(&line)
    }
}

impl From<&Pod> for PodSummary {
    fn from(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let waiting = containers.iter().find_map(|it| {
            let waiting = it.state.as_ref()?.waiting.as_ref()?;
            let why = [waiting.reason.as_deref(), waiting.message.as_deref()];
            Some(why.into_iter().flatten().collect::<Vec<_>>().join(": "))
        });
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            function: labels.get(FUNCTION_LABEL).cloned().unwrap_or_default(),
            phase: status.phase.unwrap_or_default(),
            ready: !containers.is_empty() && containers.iter().all(|it| it.ready),
            restarts: containers.iter().map(|it| it.restart_count).sum(),
            waiting: waiting.unwrap_or_default(),
        }
    }
}

pub(crate) async fn list_pods(
    access: &KubeArgs,
    context: &Context,
    unit: &UnitStatus,
) -> Result<Vec<PodSummary>> {
    let client = connect(access, context, &unit.cluster).await?;
    list_pods_with(&client, unit).await
}

pub(crate) async fn list_pods_with(client: &Client, unit: &UnitStatus) -> Result<Vec<PodSummary>> {
    let resource = ApiResource {
        group: "oaas.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "oaas.io/v1alpha1".to_owned(),
        kind: "ClassRuntime".to_owned(),
        plural: "classruntimes".to_owned(),
    };
    let classes: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &unit.namespace, &resource);
    let limit = ListParams::default().limit(PAGE_SIZE);
    let mut page = limit.clone();
    // Pods are labelled with the name of their ClassRuntime.
    let name = loop {
        let classes = with_timeout(classes.list_metadata(&page)).await?;
        let matches = |class: &&PartialObjectMeta<DynamicObject>| {
            class.annotations().get(DEPLOYMENT_ID) == Some(&unit.id)
        };
        if let Some(class) = classes.items.iter().find(matches) {
            break class.name_any();
        }
        let Some(more) = classes.metadata.continue_.filter(|it| !it.is_empty()) else {
            let (cluster, id) = (&unit.cluster, &unit.id);
            return Err(CliError::NotFound(format!(
                "no ClassRuntime for unit {id} in cluster {cluster}"
            ))
            .into());
        };
        page = limit.clone().continue_token(&more);
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &unit.namespace);
    let found = with_timeout(pods.list(&limit.labels(&format!("{OWNER_LABEL}={name}")))).await?;
    Ok(found.items.iter().map(PodSummary::from).collect())
}

/// A label value is the function's key, or its sanitized prefix with a hash.
pub(crate) fn label_matches_function(label: &str, key: &str) -> bool {
    if label == key {
        return true;
    }
    let Some((head, hash)) = label.rsplit_once('-') else { return false };
    let sanitized = |text: &str| -> String {
        let letters = text.chars().map(|it| it.to_ascii_lowercase());
        letters.map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect()
    };
    hash.len() == 10
        && hash.bytes().all(|it| it.is_ascii_hexdigit())
        && sanitized(key).trim_matches('-').starts_with(head.trim_start_matches("x-"))
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
    }

    #[test]
    fn matches_functions_by_label() {
        assert!(label_matches_function("greet", "greet"));
        assert!(label_matches_function("greet-all-0123456789", "Greet_All"));
        assert!(!label_matches_function("greet", "other"));
        assert!(!label_matches_function("greet-more", "greet"));
    }
}
