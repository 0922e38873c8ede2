//! The clusters themselves, for what the package manager can't tell: pods, their logs, and services
//! that only the cluster reaches.

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

use crate::{contexts::Context, failure::Failure, output::clean};

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(15);
/// The id that a class was deployed under, in full.
const DEPLOYMENT_ID: &str = "oaas.io/deployment-id";
/// The class that a pod belongs to.
const OWNER: &str = "oaas.io/owner";
/// The function that a pod belongs to.
const FUNCTION: &str = "oaas.io/function";
/// As many as one looks at.
const MOST: u32 = 500;

/// How clusters are reached.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Access {
    /// The kubeconfig file of the cluster, whatever the context says.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig file.
    #[arg(long, value_name = "NAME")]
    pub(crate) kube_context: Option<String>,
}

/// A client of a cluster that the package manager calls `cluster`: by what was said, by the context,
/// by a sandbox of that name, or by a context of that name in the usual kubeconfig file. No other
/// cluster is ever asked in its place.
pub(crate) async fn connect(access: &Access, context: &Context, cluster: &str) -> Result<Client> {
    if access.kubeconfig.is_some() || access.kube_context.is_some() {
        return open(access.kubeconfig.as_ref(), access.kube_context.as_deref()).await;
    }
    if let Some(kube) = context.clusters.get(cluster) {
        return open(kube.kubeconfig.as_ref(), kube.context.as_deref()).await;
    }
    if let Ok(sandbox) = oprc_sandbox::Cluster::open(cluster) {
        return open(Some(&sandbox.kubeconfig()), None).await;
    }
    let usual = Kubeconfig::read().unwrap_or_default();
    if usual.contexts.iter().any(|it| it.name == cluster) {
        return open(None, Some(cluster)).await;
    }
    let told = format!(
        "it isn't known how cluster {cluster:?} is reached: say --kubeconfig or --kube-context, or \
         `oprc context set NAME --cluster {cluster} --kubeconfig FILE`"
    );
    Err(Failure::Wrong(told).into())
}

/// A client of a cluster, by a context of a kubeconfig file; the usual ones where left out.
pub(crate) async fn open(file: Option<&PathBuf>, context: Option<&str>) -> Result<Client> {
    let named = match file {
        Some(file) => format!("kubeconfig {}", file.display()),
        None => "the usual kubeconfig".to_owned(),
    };
    let wrong = |error: &dyn Display| Failure::Wrong(format!("{named}: {error}"));
    let config = file.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let config = config.map_err(|error| wrong(&error))?;
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(config, &options).await;
    let mut config = config.map_err(|error| wrong(&error))?;
    config.connect_timeout = Some(ANSWER);
    Ok(Client::try_from(config).map_err(|error| wrong(&error))?)
}

/// Waits for an answer of a cluster, though not for ever.
pub(crate) async fn within<T>(work: impl Future<Output = Result<T, kube::Error>>) -> Result<T> {
    let timed = tokio::time::timeout(ANSWER, work).await;
    let timed = timed.map_err(|_| Failure::Away("the cluster doesn't answer".to_owned()))?;
    timed.map_err(|error| failure(&error).into())
}

/// What an error of a cluster is to whoever called.
pub(crate) fn failure(error: &kube::Error) -> Failure {
    let told = error.to_string();
    match error {
        kube::Error::Api(status) if status.code == 404 => Failure::Missing(told),
        kube::Error::Api(_) => Failure::Refused(told),
        _ => Failure::Away(told),
    }
}

/// A pod of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodLine {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// The function that it serves; empty for the data grid's.
    pub(crate) function: String,
    phase: String,
    ready: bool,
    restarts: i32,
    /// Why it waits, where it does.
    waiting: String,
}

impl PodLine {
    /// A pod in a line.
    pub(crate) fn tell(&self) -> String {
        let Self { name, phase, restarts, .. } = self;
        let ready = if self.ready { "ready" } else { "not ready" };
        let mut line = format!("pod {name}  {phase}, {ready}");
        if *restarts > 0 {
            let _ = write!(line, ", {restarts} restart(s)");
        }
        if !self.waiting.is_empty() {
            let _ = write!(line, ": {}", self.waiting);
        }
        clean(&line)
    }
}

impl From<&Pod> for PodLine {
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
            function: labels.get(FUNCTION).cloned().unwrap_or_default(),
            phase: status.phase.unwrap_or_default(),
            ready: !containers.is_empty() && containers.iter().all(|it| it.ready),
            restarts: containers.iter().map(|it| it.restart_count).sum(),
            waiting: waiting.unwrap_or_default(),
        }
    }
}

/// The pods of a unit.
pub(crate) async fn pods(
    access: &Access,
    context: &Context,
    unit: &UnitStatus,
) -> Result<Vec<PodLine>> {
    let client = connect(access, context, &unit.cluster).await?;
    pods_of(&client, unit).await
}

/// The pods of a unit, by a client of its cluster.
pub(crate) async fn pods_of(client: &Client, unit: &UnitStatus) -> Result<Vec<PodLine>> {
    let resource = ApiResource {
        group: "oaas.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "oaas.io/v1alpha1".to_owned(),
        kind: "ClassRuntime".to_owned(),
        plural: "classruntimes".to_owned(),
    };
    let classes: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &unit.namespace, &resource);
    let limit = ListParams::default().limit(MOST);
    let mut page = limit.clone();
    // A class that carries a package manager's id is called as its children are labelled.
    let name = loop {
        let classes = within(classes.list_metadata(&page)).await?;
        // The label has only a hash of an id such as ours; the annotation has all of it.
        let ours = |class: &&PartialObjectMeta<DynamicObject>| {
            class.annotations().get(DEPLOYMENT_ID) == Some(&unit.id)
        };
        if let Some(class) = classes.items.iter().find(ours) {
            break class.name_any();
        }
        let Some(more) = classes.metadata.continue_.filter(|it| !it.is_empty()) else {
            let (cluster, id) = (&unit.cluster, &unit.id);
            return Err(Failure::Missing(format!("cluster {cluster} has no class {id}")).into());
        };
        page = limit.clone().continue_token(&more);
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &unit.namespace);
    let found = within(pods.list(&limit.labels(&format!("{OWNER}={name}")))).await?;
    Ok(found.items.iter().map(PodLine::from).collect())
}

/// Whether a label stands for a function: it is its key, or what is left of it with a hash.
pub(crate) fn is_of_function(label: &str, key: &str) -> bool {
    if label == key {
        return true;
    }
    let Some((head, hash)) = label.rsplit_once('-') else { return false };
    let plain = |text: &str| -> String {
        let letters = text.chars().map(|it| it.to_ascii_lowercase());
        letters.map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect()
    };
    hash.len() == 10
        && hash.bytes().all(|it| it.is_ascii_hexdigit())
        && plain(key).trim_matches('-').starts_with(head.trim_start_matches("x-"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_say_why_they_wait() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "hello-1", "labels": {FUNCTION: "greet"}},
            "status": {"phase": "Pending", "containerStatuses": [{
                "name": "a", "image": "x", "imageID": "", "ready": false, "restartCount": 2,
                "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
        }))
        .unwrap();
        let pod = PodLine::from(&pod);
        assert_eq!(pod.function, "greet");
        assert_eq!(pod.tell(), "pod hello-1  Pending, not ready, 2 restart(s): ImagePullBackOff");
    }

    #[test]
    fn functions_are_told_by_their_label() {
        assert!(is_of_function("greet", "greet"));
        assert!(is_of_function("greet-all-0123456789", "Greet_All"));
        assert!(!is_of_function("greet", "other"));
        assert!(!is_of_function("greet-more", "greet"));
    }
}
