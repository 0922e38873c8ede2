//! Asks the data grid of a class how it is, when somebody wants to know.

use std::time::Duration;

use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    GetCollectionStatusResponse, data_service_client::DataServiceClient,
};
use tonic::transport::Endpoint;

use super::{Error, Service};
use crate::names;

/// How long the data grid may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

impl Service {
    /// What the data grid of a class tells of itself and of each of its collections.
    pub async fn odgm(
        &self,
        namespace: &str,
        id: &str,
    ) -> Result<(GetClusterInfoResponse, Vec<GetCollectionStatusResponse>), Error> {
        let (class, _) = self.get(namespace, id).await?;
        let odgm = class.status.as_ref().and_then(|status| status.odgm.as_ref());
        let Some(odgm) = odgm else {
            return Err(Error::Precondition(crate::class::Refusal::precondition(
                "NoOdgm",
                "deployment_id",
                format!("{id} has no data grid"),
            )));
        };
        let name = names::odgm_service(&names::base(&class.name));
        let address = self.service_address(&class.namespace, &name).await?;
        let port = odgm.service.rsplit_once(':').map_or("8081", |(_, port)| port);
        let host = if address.contains(':') { format!("[{address}]") } else { address };
        let silent = |error: &dyn std::fmt::Display| Error::Unavailable {
            reason: "ODGM_UNAVAILABLE",
            message: format!("the data grid of {id} doesn't answer: {error}"),
        };
        let endpoint = Endpoint::from_shared(format!("http://{host}:{port}"))
            .map_err(|error| Error::Internal(error.to_string()))?
            .connect_timeout(ANSWER)
            .timeout(ANSWER);
        let channel = endpoint.connect().await.map_err(|error| silent(&error))?;
        let mut client = DataServiceClient::new(channel).max_decoding_message_size(1 << 20);
        let info = client
            .get_cluster_info(GetClusterInfoRequest {})
            .await
            .map_err(|status| silent(&status.message()))?
            .into_inner();
        let mut collections = Vec::new();
        for collection in &odgm.collections {
            let request = GetCollectionStatusRequest { collection_name: collection.name.clone() };
            let answer = client.get_collection_status(request).await;
            collections.push(answer.map_err(|status| silent(&status.message()))?.into_inner());
        }
        Ok((info, collections))
    }
}
