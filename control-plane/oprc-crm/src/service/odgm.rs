//! Queries the data grid of a class on request.

use std::time::{Duration, Instant};

use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    GetCollectionStatusResponse,
};
use oprc_unit::names;
use tokio::time::timeout;
use tonic::Request;

use super::{Error, Service};
use crate::{grid_client::connect, reason::Reason};

/// Bound on one request to the data grid; the deadline of the call may be sooner.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

impl Service {
    /// The state of the data grid of a class and of each of its collections.
    pub async fn odgm(
        &self,
        namespace: &str,
        id: &str,
        correlation_id: &str,
        end: Instant,
    ) -> Result<(GetClusterInfoResponse, Vec<GetCollectionStatusResponse>), Error> {
        let (class, _) = self.get(namespace, id).await?;
        let Some(odgm) = class.status.as_ref().and_then(|status| status.odgm.as_ref()) else {
            let message = format!("class {id} has no data grid");
            return Err(Error::precondition(Reason::DataGridNotEnabled, "deployment_id", message));
        };
        let name = names::odgm_service(&names::base(&class.name));
        let address = self.service_address(&class.namespace, &name).await?;
        let unavailable = |error: &dyn std::fmt::Display| Error::Unavailable {
            reason: Reason::OdgmUnavailable,
            message: format!("the data grid of {id} does not respond: {error}"),
        };
        let connected = timeout(remaining(end), connect(&address, &odgm.service)).await;
        let connected = connected.map_err(|_| unavailable(&"it accepts no connection in time"))?;
        let mut client = connected.map_err(|error| unavailable(&error))?;
        let info = client
            .get_cluster_info(request(GetClusterInfoRequest {}, correlation_id, end))
            .await
            .map_err(|status| unavailable(&status.message()))?
            .into_inner();
        let mut collections = Vec::new();
        for collection in &odgm.collections {
            let message = GetCollectionStatusRequest { collection_name: collection.name.clone() };
            let response = client
                .get_collection_status(request(message, correlation_id, end))
                .await
                .map_err(|status| unavailable(&status.message()))?;
            collections.push(response.into_inner());
        }
        Ok((info, collections))
    }
}

fn remaining(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).min(REQUEST_TIMEOUT)
}

/// A request with the correlation id and the deadline of the call that it serves.
fn request<T>(message: T, correlation_id: &str, end: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(remaining(end));
    if let Ok(id) = correlation_id.parse() {
        request.metadata_mut().insert(oprc_grpc::CORRELATION, id);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_deadline_and_correlation_id() {
        let deadline = |request: &Request<()>| {
            let text = request.metadata().get("grpc-timeout").unwrap().to_str().unwrap();
            let micros = text.strip_suffix('u').unwrap_or_else(|| panic!("{text}"));
            Duration::from_micros(micros.parse().unwrap())
        };
        let now = Instant::now();
        let long = request((), "call-4711", now + Duration::from_mins(1));
        assert_eq!(deadline(&long), REQUEST_TIMEOUT);
        assert_eq!(long.metadata().get(oprc_grpc::CORRELATION).unwrap(), "call-4711");
        let short = request((), "call-4711", now + Duration::from_secs(1));
        assert!(deadline(&short) <= Duration::from_secs(1));
        assert_eq!(remaining(now), Duration::ZERO);
    }
}
