//! Asks the data grid of a class how it is, when somebody wants to know.

use std::time::{Duration, Instant};

use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    GetCollectionStatusResponse, data_service_client::DataServiceClient,
};
use oprc_unit::names;
use tonic::{Request, transport::Endpoint};

use super::{Error, Service};

/// How long the data grid may take to answer, where whoever asks us doesn't want to know sooner.
const ANSWER: Duration = Duration::from_secs(3);

impl Service {
    /// What the data grid of a class tells of itself and of each of its collections, for a call of
    /// that id which ends then.
    pub async fn odgm(
        &self,
        namespace: &str,
        id: &str,
        correlation_id: &str,
        end: Instant,
    ) -> Result<(GetClusterInfoResponse, Vec<GetCollectionStatusResponse>), Error> {
        let (class, _) = self.get(namespace, id).await?;
        let odgm = class.status.as_ref().and_then(|status| status.odgm.as_ref());
        let Some(odgm) = odgm else {
            return Err(Error::Precondition(oprc_unit::Rejection::precondition(
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
            .connect_timeout(left(end))
            .timeout(ANSWER);
        let channel = endpoint.connect().await.map_err(|error| silent(&error))?;
        let mut client = DataServiceClient::new(channel).max_decoding_message_size(1 << 20);
        let info = client
            .get_cluster_info(asked(GetClusterInfoRequest {}, correlation_id, end))
            .await
            .map_err(|status| silent(&status.message()))?
            .into_inner();
        let mut collections = Vec::new();
        for collection in &odgm.collections {
            let request = GetCollectionStatusRequest { collection_name: collection.name.clone() };
            let answer = client.get_collection_status(asked(request, correlation_id, end)).await;
            collections.push(answer.map_err(|status| silent(&status.message()))?.into_inner());
        }
        Ok((info, collections))
    }
}

/// How long one answer may take.
fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).min(ANSWER)
}

/// A request that tells what it is for and how long its answer is waited for.
fn asked<T>(message: T, correlation_id: &str, end: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(left(end));
    if let Ok(id) = correlation_id.parse() {
        request.metadata_mut().insert(oprc_grpc::CORRELATION, id);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_grid_is_told_what_is_left_and_who_asks() {
        let deadline = |request: &Request<()>| {
            let text = request.metadata().get("grpc-timeout").unwrap().to_str().unwrap();
            let micros = text.strip_suffix('u').unwrap_or_else(|| panic!("{text}"));
            Duration::from_micros(micros.parse().unwrap())
        };
        let now = Instant::now();
        let request = asked((), "call-4711", now + Duration::from_mins(1));
        assert_eq!(deadline(&request), ANSWER);
        assert_eq!(request.metadata().get(oprc_grpc::CORRELATION).unwrap(), "call-4711");
        let request = asked((), "call-4711", now + Duration::from_secs(1));
        assert!(deadline(&request) <= Duration::from_secs(1));
        assert_eq!(left(now), Duration::ZERO);
    }
}
