//! Classes on clusters: those of deployments, orphans, and those of others.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;
use oprc_grpc::deployment::{ClassRuntime, DeploymentState, Status};
use oprc_rest::{Contact, Page};
use serde_json::{Value, json};

use super::DeploymentService;
use crate::{
    dispatcher::{NFR_OBSERVED, class_status, unit_status},
    error::Error,
    paging::MAX_PAGE_SIZE,
    planner::parse_unit_id,
};

/// All criteria must hold.
#[derive(Clone, Debug, Default)]
pub struct RuntimeFilter {
    pub cluster: Option<String>,
    pub package: Option<String>,
    pub environment: Option<String>,
    pub deployment: Option<String>,
    /// `managed`, `orphan` or `unmanaged`.
    pub ownership: Option<String>,
}

impl DeploymentService {
    /// Classes after `cursor`, sorted by cluster and id.
    pub fn class_runtimes(
        &self,
        filter: &RuntimeFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Page<oprc_rest::ClassRuntime> {
        let limit = limit.clamp(1, MAX_PAGE_SIZE);
        let is = |filter: &Option<String>, it: &str| filter.as_ref().is_none_or(|is| is == it);
        // Compared by parts: as text `a-2/…` would sort before `a/…`.
        let cursor = cursor.map(parse_cursor);
        let mut items: Vec<oprc_rest::ClassRuntime> = Vec::new();
        let mut last = None;
        for client in self.clusters.clients().filter(|client| is(&filter.cluster, client.name())) {
            let cache = client.class_cache();
            let contact = cache.contact();
            for class in cache.classes() {
                let at = (client.name(), class.deployment_id.as_str(), class.namespace.as_str());
                if cursor.is_some_and(|cursor| at <= cursor) {
                    continue;
                }
                let document = self.class_document(client.name(), class, contact);
                let of = document.deployment.as_deref().unwrap_or_default();
                if !is(&filter.package, &document.package_name)
                    || !is(&filter.environment, &document.environment)
                    || !is(&filter.deployment, of)
                    || !is(&filter.ownership, &document.ownership)
                {
                    continue;
                }
                if items.len() == limit {
                    return Page { items, next: last };
                }
                items.push(document);
                last = Some(format_cursor(at));
            }
        }
        Page { items, next: None }
    }

    /// A class on a cluster, or on the first that has it, with its latest measurements.
    pub async fn class_runtime(
        &self,
        id: &str,
        cluster: Option<&str>,
    ) -> Result<oprc_rest::ClassRuntime, Error> {
        let clients = self.clusters.clients();
        let mut clients =
            clients.filter(|client| cluster.is_none_or(|cluster| cluster == client.name()));
        let found = clients.find_map(|client| {
            let class = client.class_cache().class(id, "").map(Arc::clone)?;
            Some((client, class))
        });
        let (client, class) = found.ok_or_else(|| Error::not_found("class runtime", id))?;
        client.refresh_measurements(vec![Arc::clone(&class)]).await;
        let cache = client.class_cache();
        let class = cache.class(id, &class.namespace).unwrap_or(&class);
        Ok(self.class_document(client.name(), class, cache.contact()))
    }

    /// Reads the measurements of a deployment's units again, if they are measured.
    pub async fn refresh_measurements(&self, key: &str) {
        let (_, units) = self.cache.deployment_with_units(key);
        let mut by_cluster: BTreeMap<String, Vec<Arc<ClassRuntime>>> = BTreeMap::new();
        for ((cluster, id), stored) in &units {
            let cache = self.clusters.client(cluster).map(|client| client.class_cache());
            let namespace = stored.record.object_namespace();
            let class = cache.as_ref().and_then(|cache| cache.class(id, namespace));
            if let Some(class) = class.filter(|class| is_measured(class)) {
                by_cluster.entry(cluster.clone()).or_default().push(Arc::clone(class));
            }
        }
        let refreshes = by_cluster.into_iter().filter_map(|(cluster, classes)| {
            let client = self.clusters.client(&cluster)?;
            Some(client.refresh_measurements(classes))
        });
        join_all(refreshes).await;
    }

    pub(super) fn class_document(
        &self,
        cluster: &str,
        class: &ClassRuntime,
        contact: Contact,
    ) -> oprc_rest::ClassRuntime {
        let key = (cluster.to_owned(), class.deployment_id.clone());
        let stored = self.cache.unit(&key);
        let parsed = parse_unit_id(&class.deployment_id).filter(|unit| unit.cluster == cluster);
        let unit = match &stored {
            Some(stored) => unit_status(&key, &stored.record, &self.clusters, &self.call_backoff),
            None => class_status(cluster, class, contact),
        };
        let ownership = match (&stored, &parsed) {
            (Some(_), _) => "managed",
            (None, Some(_)) if !class.deleting => "orphan",
            (None, _) => "unmanaged",
        };
        let status = class.status.as_ref();
        oprc_rest::ClassRuntime {
            id: class.deployment_id.clone(),
            cluster: cluster.to_owned(),
            package_name: class.package.clone(),
            package_version: class.package_version.clone(),
            environment: class.environment.clone(),
            status: record_state(status.map(Status::state).unwrap_or_default()).to_owned(),
            ownership: ownership.to_owned(),
            deployment: stored
                .map(|stored| stored.record.deployment.clone())
                // Empty for an orphan that is being deleted.
                .filter(|deployment| !deployment.is_empty())
                .or_else(|| parsed.map(|unit| unit.deployment.to_owned())),
            unit,
            details: details(class),
        }
    }
}

/// Whether CRM has reported measurements of the class, or that it tries to.
fn is_measured(class: &ClassRuntime) -> bool {
    class.status.as_ref().is_some_and(|status| {
        status.conditions.iter().any(|it| it.r#type == NFR_OBSERVED)
            || status.functions.iter().any(|it| it.nfr_compliance.is_some())
    })
}

fn record_state(state: DeploymentState) -> &'static str {
    match state {
        DeploymentState::Active => "ACTIVE",
        DeploymentState::Failed => "FAILED",
        DeploymentState::Deleted => "DELETED",
        DeploymentState::Pending | DeploymentState::Unspecified => "PENDING",
    }
}

/// Cluster, id and namespace.
type Position<'a> = (&'a str, &'a str, &'a str);

fn format_cursor((cluster, id, namespace): Position<'_>) -> String {
    format!("{cluster}/{id}/{namespace}")
}

/// Names of clusters and namespaces contain no slash, ids may.
fn parse_cursor(cursor: &str) -> Position<'_> {
    let (cluster, rest) = cursor.split_once('/').unwrap_or((cursor, ""));
    let (id, namespace) = rest.rsplit_once('/').unwrap_or((rest, ""));
    (cluster, id, namespace)
}

/// Reported values that have no field of their own.
fn details(class: &ClassRuntime) -> BTreeMap<String, Value> {
    let mut details = BTreeMap::new();
    let mut put = |name: &str, value: Value| details.insert(name.to_owned(), value);
    put("name", json!(class.name));
    put("uid", json!(class.uid));
    put("generation", json!(class.generation));
    put("created_at", json!(class.created_at));
    let Some(status) = &class.status else { return details };
    put("ready", json!(status.ready));
    put("observed_generation", json!(status.observed_generation));
    put("stable_since", json!(status.stable_since));
    let conditions = status.conditions.iter().map(|it| {
        json!({
            "type": it.r#type,
            "status": it.status,
            "reason": it.reason,
            "message": it.message,
            "lastTransitionTime": it.last_transition_time,
        })
    });
    put("conditions", conditions.collect());
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_of_an_id_with_slashes_round_trips() {
        for id in ["shop.Cart.dev.east", "team/shop", "a/b/c", "/", ""] {
            let at = ("east", id, "default");
            assert_eq!(parse_cursor(&format_cursor(at)), at);
        }
        assert_eq!(parse_cursor("east"), ("east", "", ""));
    }
}
