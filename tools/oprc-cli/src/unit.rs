//! `oprc unit`: speaks to a class runtime manager directly.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use oprc_grpc::deployment::{
    ClassRuntime, DeleteDeploymentRequest, DeployRequest, GetDeploymentStatusRequest,
    ListClassRuntimesRequest, WatchClassRuntimesRequest,
    deployment_service_client::DeploymentServiceClient, unit::ClassSpec, watch_event::Kind,
};
use serde::Deserialize;
use tonic::transport::{Channel, Endpoint};

/// How long a single answer may take.
const ANSWER: Duration = Duration::from_secs(15);

/// Speaks to a class runtime manager directly, without a package manager.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Deploy a unit, and wait until it is Available.
    #[command(after_help = "Example:\n  oprc unit deploy examples/hello-class/unit.yaml")]
    Deploy {
        #[command(flatten)]
        crm: Crm,
        /// The unit: a YAML file with deployment_id, namespace and spec.
        file: PathBuf,
        /// How many seconds to wait until it is Available; 0 doesn't wait.
        #[arg(long, default_value_t = 120)]
        wait: u64,
    },
    /// Tell how a unit is.
    #[command(after_help = "Example:\n  oprc unit status hello")]
    Status {
        #[command(flatten)]
        crm: Crm,
        /// The unit's id.
        id: String,
        /// Its namespace, CRM's own default where left out.
        #[arg(long, short, default_value = "")]
        namespace: String,
    },
    /// List units.
    #[command(after_help = "Example:\n  oprc unit list --crm http://127.0.0.1:8088")]
    List {
        #[command(flatten)]
        crm: Crm,
    },
    /// Delete a unit, and wait until it is gone.
    #[command(after_help = "Example:\n  oprc unit delete hello")]
    Delete {
        #[command(flatten)]
        crm: Crm,
        /// The unit's id.
        id: String,
        /// Its namespace, CRM's own default where left out.
        #[arg(long, short, default_value = "")]
        namespace: String,
        /// How many seconds to wait until it is gone; 0 doesn't wait.
        #[arg(long, default_value_t = 120)]
        wait: u64,
    },
}

/// Which class runtime manager.
#[derive(Debug, Args)]
pub(crate) struct Crm {
    /// Where it answers.
    #[arg(long = "crm", env = "OPRC_CRM_URL", default_value = "http://127.0.0.1:8088")]
    url: String,
}

type Client = DeploymentServiceClient<Channel>;

impl Crm {
    async fn connect(&self) -> anyhow::Result<Client> {
        let endpoint = Endpoint::from_shared(self.url.clone())
            .with_context(|| format!("{:?} is no address", self.url))?;
        let channel = endpoint.connect_timeout(ANSWER).connect().await;
        let channel = channel.with_context(|| format!("no CRM answers at {}", self.url))?;
        Ok(DeploymentServiceClient::new(channel))
    }
}

/// A file with a unit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    deployment_id: String,
    #[serde(default)]
    namespace: String,
    spec: ClassSpec,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Deploy { crm, file, wait } => deploy(&crm, &file, wait).await,
        Command::Status { crm, id, namespace } => {
            let request =
                GetDeploymentStatusRequest { deployment_id: id, namespace, ..Default::default() };
            let answer = crm.connect().await?.get_deployment_status(within(request)).await;
            show(&answer.map_err(told)?.into_inner().class_runtime.unwrap_or_default());
            Ok(ExitCode::SUCCESS)
        }
        Command::List { crm } => list(&crm).await,
        Command::Delete { crm, id, namespace, wait } => delete(&crm, id, namespace, wait).await,
    }
}

async fn deploy(crm: &Crm, file: &PathBuf, wait: u64) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{} can't be read", file.display()))?;
    let unit: File = serde_saphyr::from_str(&text)
        .with_context(|| format!("{} isn't a unit", file.display()))?;
    let mut client = crm.connect().await?;
    let request = DeployRequest {
        deployment_id: unit.deployment_id.clone(),
        namespace: unit.namespace,
        spec: Some(unit.spec),
    };
    let answer = client.deploy(within(request)).await.map_err(told)?.into_inner();
    let Some(class) = answer.class_runtime else { bail!("CRM said nothing about the class") };
    if wait == 0 {
        show(&class);
        return Ok(ExitCode::SUCCESS);
    }
    let generation = class.generation;
    let done = |class: &ClassRuntime| {
        let Some(status) = &class.status else { return false };
        status.observed_generation >= generation
            && matches!(status.phase.as_str(), "Available" | "Degraded")
    };
    let class = wait_for(&mut client, &class, Duration::from_secs(wait), done).await?;
    let Some(class) = class else { bail!("{} was deleted meanwhile", unit.deployment_id) };
    show(&class);
    let status = class.status.unwrap_or_default();
    if status.phase == "Available" {
        Ok(ExitCode::SUCCESS)
    } else {
        bail!("{}: {}", status.reason, status.message)
    }
}

async fn list(crm: &Crm) -> anyhow::Result<ExitCode> {
    let mut client = crm.connect().await?;
    let mut page_token = String::new();
    loop {
        let request =
            ListClassRuntimesRequest { page_token, ..ListClassRuntimesRequest::default() };
        let page = client.list_class_runtimes(within(request)).await.map_err(told)?.into_inner();
        page.class_runtimes.iter().for_each(show);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

async fn delete(crm: &Crm, id: String, namespace: String, wait: u64) -> anyhow::Result<ExitCode> {
    let mut client = crm.connect().await?;
    let of = GetDeploymentStatusRequest {
        deployment_id: id.clone(),
        namespace: namespace.clone(),
        ..Default::default()
    };
    let class = client.get_deployment_status(within(of)).await.map_err(told)?.into_inner();
    let class = class.class_runtime.unwrap_or_default();
    let request = DeleteDeploymentRequest { deployment_id: id, namespace };
    client.delete_deployment(within(request)).await.map_err(told)?;
    if wait > 0 {
        wait_for(&mut client, &class, Duration::from_secs(wait), |_| false).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Follows a class until it is as wanted; nothing, where it is gone.
async fn wait_for(
    client: &mut Client,
    wanted: &ClassRuntime,
    limit: Duration,
    done: impl Fn(&ClassRuntime) -> bool,
) -> anyhow::Result<Option<ClassRuntime>> {
    let request = WatchClassRuntimesRequest {
        namespace: wanted.namespace.clone(),
        resume_token: String::new(),
    };
    let follow = async {
        let mut seen = false;
        let mut events = client.watch_class_runtimes(request).await.map_err(told)?.into_inner();
        while let Some(event) = events.message().await.map_err(told)? {
            let kind = event.kind();
            if kind == Kind::SnapshotEnd && !seen {
                return Ok(None);
            }
            let Some(class) = event.class_runtime.filter(|it| it.uid == wanted.uid) else {
                continue;
            };
            seen = true;
            if kind == Kind::Deleted {
                return Ok(None);
            }
            if done(&class) {
                return Ok(Some(class));
            }
        }
        bail!("CRM ended the stream")
    };
    tokio::time::timeout(limit, follow)
        .await
        .with_context(|| format!("not within {} s", limit.as_secs()))?
}

fn within<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(ANSWER);
    request
}

// Taken by value, so that it can stand where errors are mapped.
#[allow(clippy::needless_pass_by_value)]
fn told(status: tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{:?}: {}", status.code(), status.message())
}

fn show(class: &ClassRuntime) {
    let status = class.status.clone().unwrap_or_default();
    println!("{}/{}  {}  {}", class.namespace, class.deployment_id, status.phase, status.ready);
    if status.phase == "Degraded" {
        println!("  {}: {}", status.reason, status.message);
    }
    for function in &status.functions {
        let what = if function.ready { "ready" } else { "not ready" };
        println!("  {}  {what}  {}", function.key, function.invocation_url);
    }
}
