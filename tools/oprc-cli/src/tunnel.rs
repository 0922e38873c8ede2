//! A way to a service of a cluster through its API server, for as long as a command runs: a port of
//! this machine whose connections are carried to a pod of the service.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, Client, api::ListParams};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    contexts::Tunnel,
    failure::Failure,
    kube::{self as cluster, within},
    output::{clean, say},
};

/// Opens a tunnel; gives the address that stands for the service.
pub(crate) async fn open(tunnel: &Tunnel) -> Result<String> {
    let Tunnel { kube, namespace, service } = tunnel;
    let client = cluster::open(kube.kubeconfig.as_ref(), kube.context.as_deref()).await?;
    // What is wrong is told now, and not with each connection.
    find(&client, namespace, service).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("opening a port")?;
    let address = listener.local_addr()?;
    let (namespace, service) = (namespace.clone(), service.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, namespace, service) = (client.clone(), namespace.clone(), service.clone());
            tokio::spawn(async move {
                if let Err(error) = carry(&client, &namespace, &service, stream).await {
                    say(&clean(&format!("the way through the cluster broke: {error:#}")));
                }
            });
        }
    });
    Ok(format!("http://{address}"))
}

/// Where a tunnel ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    pod: String,
    port: u16,
}

/// A pod of a service that is ready, and the port that it serves on.
async fn find(client: &Client, namespace: &str, name: &str) -> Result<End> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let spec = within(services.get(name)).await?.spec.unwrap_or_default();
    let selector = spec.selector.unwrap_or_default();
    let selector: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = within(pods.list(&ListParams::default().labels(&selector.join(",")))).await?;
    let end =
        found.items.iter().find_map(|pod| Some(End { pod: ready(pod)?, port: port_of(pod)? }));
    let none = || Failure::Away(format!("no pod of {namespace}/{name} is ready")).into();
    end.ok_or_else(none)
}

fn ready(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
    is_ready.then(|| pod.metadata.name.clone()).flatten()
}

fn port_of(pod: &Pod) -> Option<u16> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let port = container.ports.as_ref()?.first()?.container_port;
    u16::try_from(port).ok()
}

async fn carry(
    client: &Client,
    namespace: &str,
    service: &str,
    mut stream: TcpStream,
) -> Result<()> {
    // Another pod may have taken the place of the one before.
    let end = find(client, namespace, service).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut way = within(pods.portforward(&end.pod, &[end.port])).await?;
    let mut far = way.take_stream(end.port).context("there is no stream")?;
    // Either end may close it: that is how connections end.
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
    Ok(())
}
