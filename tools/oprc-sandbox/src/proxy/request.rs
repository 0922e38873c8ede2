//! Verb and resource of a request to the API server, derived from its method and path.

use hyper::{Method, Uri};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo {
    /// get, list, watch, create, update, patch, delete or deletecollection; the lower-case method if
    /// the path is not that of a resource.
    pub verb: String,
    /// Plural name with group and subresource, such as `pods`, `deployments.apps` or
    /// `deployments.apps/status`; otherwise the path.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
}

impl RequestInfo {
    pub(super) fn parse(method: &Method, uri: &Uri) -> Self {
        let path = uri.path();
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let prefix = match parts.first() {
            Some(&"api") => 2,
            Some(&"apis") => 3,
            _ => usize::MAX,
        };
        if parts.len() <= prefix {
            let verb = method.as_str().to_ascii_lowercase();
            return Self { verb, resource: path.to_owned(), namespace: None, name: None };
        }
        let group = parts.drain(..prefix).nth(1).filter(|_| prefix == 3).map(str::to_owned);
        let mut namespace = None;
        // In /namespaces/NAME/status the third part is a subresource, not a resource.
        let subresources = ["status", "finalize"];
        if let [first, within, resource, ..] = parts.as_slice()
            && *first == "namespaces"
            && !subresources.contains(resource)
        {
            namespace = Some((*within).to_owned());
            parts.drain(..2);
        }
        let mut parts = parts.into_iter();
        let plural = parts.next().unwrap_or_default();
        let mut resource = group.map_or(plural.to_owned(), |group| format!("{plural}.{group}"));
        let name = parts.next().map(str::to_owned);
        if let Some(subresource) = parts.next() {
            resource = format!("{resource}/{subresource}");
        }
        let watching = uri.query().is_some_and(|query| {
            query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
        });
        let verb = match (method.as_str(), &name) {
            ("GET" | "HEAD", _) if watching => "watch",
            ("GET" | "HEAD", Some(_)) => "get",
            ("GET" | "HEAD", None) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", Some(_)) => "delete",
            ("DELETE", None) => "deletecollection",
            (other, _) => other,
        };
        Self { verb: verb.to_owned(), resource, namespace, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, uri: &str) -> (String, String, Option<String>, Option<String>) {
        let info = RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap());
        (info.verb, info.resource, info.namespace, info.name)
    }

    #[test]
    fn derives_verb_and_resource_like_the_api_server() {
        let some = |text: &str| Some(text.to_owned());
        for (method, uri, verb, resource, namespace, name) in [
            ("GET", "/api/v1/pods?watch=true&limit=5", "watch", "pods", None, None),
            ("GET", "/api/v1/namespaces/a/pods", "list", "pods", some("a"), None),
            ("GET", "/api/v1/namespaces/a", "get", "namespaces", None, some("a")),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "update",
                "namespaces/finalize",
                None,
                some("a"),
            ),
            ("POST", "/api/v1/namespaces", "create", "namespaces", None, None),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/a/deployments/b/status",
                "patch",
                "deployments.apps/status",
                some("a"),
                some("b"),
            ),
            (
                "DELETE",
                "/apis/oaas.io/v1alpha1/namespaces/a/classruntimes/b",
                "delete",
                "classruntimes.oaas.io",
                some("a"),
                some("b"),
            ),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection", "pods", some("a"), None),
            ("GET", "/apis/apps/v1", "get", "/apis/apps/v1", None, None),
            ("GET", "/healthz", "get", "/healthz", None, None),
        ] {
            assert_eq!(
                info(method, uri),
                (verb.to_owned(), resource.to_owned(), namespace, name),
                "{method} {uri}"
            );
        }
    }
}
