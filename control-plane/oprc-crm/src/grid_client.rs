//! Connections to the data grids of classes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use oprc_grpc::odgm::data_service_client::DataServiceClient;
use tonic::transport::{Channel, Endpoint, Error};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A dead connection is detected after the interval and the timeout.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_MESSAGE_BYTES: usize = 1 << 20;
const DEFAULT_PORT: &str = "8081";

pub type GridClient = DataServiceClient<Channel>;

/// The cluster IP of a Service. None if there is none yet.
pub async fn cluster_ip(
    client: &Client,
    namespace: &str,
    name: &str,
) -> kube::Result<Option<String>> {
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = api.get_opt(name).await?;
    Ok(service.and_then(|it| it.spec?.cluster_ip).filter(|it| it != "None"))
}

/// Connects to the port of a Service, given as host and port.
pub async fn connect(cluster_ip: &str, service: &str) -> Result<GridClient, Error> {
    let port = service.rsplit_once(':').map_or(DEFAULT_PORT, |(_, port)| port);
    let host =
        if cluster_ip.contains(':') { format!("[{cluster_ip}]") } else { cluster_ip.to_owned() };
    let endpoint = Endpoint::from_shared(format!("http://{host}:{port}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let channel = endpoint.connect().await?;
    Ok(DataServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES))
}
