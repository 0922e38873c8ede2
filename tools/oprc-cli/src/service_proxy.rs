//! Calls to a Service through the proxy of the API server.

use std::time::Duration;

use anyhow::Result;
use hyper::Uri;
use k8s_openapi::api::core::v1;
use kube::Api;
use oprc_rest::FunctionStatus;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    contexts::Context,
    error::CliError,
    kube::{KubeArgs, connect, with_timeout},
};

/// For the public URL of a function.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) fn join_url(url: &str, path: &str) -> String {
    format!("{}/{}", url.trim_end_matches('/'), path.trim_start_matches('/'))
}

/// The Service proxy of an API server.
pub(crate) struct ServiceProxy {
    pub(crate) cluster: kube::Client,
    pub(crate) path: String,
    /// Host header, if the Service is a gateway for several hosts.
    pub(crate) host: Option<String>,
}

/// `None` if the public URL is reachable and no kubeconfig option is given.
pub(crate) async fn service_proxy(
    access: &KubeArgs,
    context: &Context,
    function: &FunctionStatus,
    path: &str,
) -> Result<Option<ServiceProxy>> {
    let inside = function.cluster_url.as_deref().and_then(Service::from_url);
    let Some(service) = inside else { return Ok(None) };
    let public = function.invocation_url.as_ref();
    let public = public.filter(|_| function.invocation_url != function.cluster_url);
    let explicit = access.kubeconfig.is_some() || access.kube_context.is_some();
    if let Some(public) = public.filter(|_| !explicit)
        && is_reachable(public).await
    {
        return Ok(None);
    }
    let cluster = connect(access, context, &function.cluster).await?;
    // An ExternalName Service, as Knative creates for its gateway, has no pods of its own.
    let services: Api<v1::Service> = Api::namespaced(cluster.clone(), &service.namespace);
    let named = match with_timeout(services.get(&service.name)).await {
        Ok(found) => found.spec.and_then(|spec| spec.external_name),
        // Callers may lack permission to get Services; most are no ExternalName.
        Err(error) if matches!(error.downcast_ref(), Some(CliError::Rejected(_))) => None,
        Err(error) => return Err(error),
    };
    let other =
        named.and_then(|name| Service::from_url(&format!("http://{name}:{}", service.port)));
    let host = other.as_ref().map(|_| service.host.clone());
    let path = other.as_ref().unwrap_or(&service).proxy_path(&join_url(&service.base, path));
    Ok(Some(ServiceProxy { cluster, path, host }))
}

/// Fails for names that DNS here doesn't know, such as those of cluster domains.
async fn is_reachable(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let connecting = TcpStream::connect((uri.host().unwrap_or_default(), port));
    matches!(timeout(CONNECT_TIMEOUT, connecting).await, Ok(Ok(_)))
}

/// A Service by its URL inside the cluster.
#[derive(Debug)]
struct Service {
    name: String,
    namespace: String,
    port: u16,
    host: String,
    base: String,
}

impl Service {
    /// `None` for other URLs.
    fn from_url(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.host()?;
        let bare = host.strip_suffix(".cluster.local").unwrap_or(host).strip_suffix(".svc")?;
        let (name, namespace) = bare.split_once('.')?;
        Some(Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            port: uri.port_u16().unwrap_or(80),
            host: host.to_owned(),
            base: uri.path().to_owned(),
        })
    }

    /// Path of the API server's proxy for it.
    fn proxy_path(&self, path: &str) -> String {
        let base = proxy_base(&self.namespace, &self.name, self.port);
        format!("{base}/{}", path.trim_start_matches('/'))
    }
}

/// Path of the API server's proxy for a Service, without a slash at the end.
pub(crate) fn proxy_base(namespace: &str, name: &str, port: u16) -> String {
    format!("/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_service_proxy_paths() {
        let path = |url: &str, path: &str| {
            Service::from_url(url).map(|service| service.proxy_path(&join_url(&service.base, path)))
        };
        assert_eq!(
            path("http://hello--greet.default.svc", "/?name=you").unwrap(),
            "/api/v1/namespaces/default/services/hello--greet:80/proxy/?name=you"
        );
        assert_eq!(
            path("http://a.b.svc.cluster.local:8080/base", "x").unwrap(),
            "/api/v1/namespaces/b/services/a:8080/proxy/base/x"
        );
        assert_eq!(path("https://greet.example.org", "/"), None);
    }
}
