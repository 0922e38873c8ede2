//! Port forwarding to a Service through the API server of its cluster, while a command runs.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, Client, api::ListParams};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    contexts::Tunnel,
    error::CliError,
    kube::{self as cluster, with_timeout},
    output::note,
};

/// Listens on a local port and returns its URL.
pub(crate) async fn open(tunnel: &Tunnel) -> Result<String> {
    let Tunnel { kube, namespace, service } = tunnel;
    let client = cluster::open(kube.kubeconfig.as_ref(), kube.context.as_deref()).await?;
    open_to(&client, namespace, service, None).await
}

/// Like [`open`], to a port of the pods of a Service [default: their first].
pub(crate) async fn open_to(
    client: &Client,
    namespace: &str,
    service: &str,
    port: Option<u16>,
) -> Result<String> {
    // Fails here rather than on each connection.
    find_endpoint(client, namespace, service).await?;
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("opening a local port")?;
    let address = listener.local_addr()?;
    let (client, namespace, service) = (client.clone(), namespace.to_owned(), service.to_owned());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, namespace, service) = (client.clone(), namespace.clone(), service.clone());
            tokio::spawn(async move {
                if let Err(error) = forward(&client, &namespace, &service, port, stream).await {
                    note(&format!("port forwarding failed: {error:#}"));
                }
            });
        }
    });
    Ok(format!("http://{address}"))
}

/// A ready pod of the Service, and its first port.
async fn find_endpoint(client: &Client, namespace: &str, name: &str) -> Result<(String, u16)> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let spec = with_timeout(services.get(name)).await?.spec.unwrap_or_default();
    let selector = spec.selector.unwrap_or_default();
    let selector: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = with_timeout(pods.list(&ListParams::default().labels(&selector.join(",")))).await?;
    let endpoint = found.items.iter().find_map(|pod| Some((ready(pod)?, port_of(pod)?)));
    endpoint.ok_or_else(|| {
        CliError::Unavailable(format!(
            "Service {namespace}/{name} has no ready pod; see `kubectl get pods -n {namespace}`"
        ))
        .into()
    })
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

async fn forward(
    client: &Client,
    namespace: &str,
    service: &str,
    port: Option<u16>,
    mut stream: TcpStream,
) -> Result<()> {
    // The pod may have been replaced since the last connection.
    let (pod, first) = find_endpoint(client, namespace, service).await?;
    let port = port.unwrap_or(first);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut forwarder = with_timeout(pods.portforward(&pod, &[port])).await?;
    let mut remote = forwarder.take_stream(port).context("port forwarding returned no stream")?;
    // Either side may close the connection at any time.
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut remote).await;
    Ok(())
}
