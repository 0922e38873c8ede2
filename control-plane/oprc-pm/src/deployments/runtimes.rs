//! The classes that clusters have: those of deployments, those that nobody knows, and those of
//! others.

use std::collections::BTreeMap;

use oprc_grpc::deployment::{ClassRuntime, Status};
use oprc_rest::{Contact, Page};

use super::{Deployments, PAGE, status};
use crate::{error::Error, planner::parse_unit_id, states};

/// Which classes are listed.
#[derive(Clone, Debug, Default)]
pub struct RuntimeFilter {
    /// On this cluster.
    pub cluster: Option<String>,
    /// Of this package.
    pub package: Option<String>,
    /// In this environment.
    pub environment: Option<String>,
    /// Of this deployment.
    pub deployment: Option<String>,
    /// `driven`, `orphan` or `foreign`.
    pub ownership: Option<String>,
}

impl Deployments {
    /// Classes by cluster and id, those after `cursor`, a page of them.
    pub fn class_runtimes(
        &self,
        filter: &RuntimeFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Page<oprc_rest::ClassRuntime> {
        let limit = limit.clamp(1, PAGE);
        let is =
            |wanted: &Option<String>, it: &str| wanted.as_ref().is_none_or(|wanted| wanted == it);
        // By its parts: as a text `a-2/…` would come before `a/…`.
        let cursor = cursor.map(read);
        let mut items: Vec<oprc_rest::ClassRuntime> = Vec::new();
        let mut last = None;
        for link in self.clusters.links().filter(|link| is(&filter.cluster, link.name())) {
            let observed = link.observed();
            let contact = observed.contact();
            for class in observed.classes() {
                let at = position(link.name(), class);
                if cursor.as_ref().is_some_and(|cursor| at <= *cursor) {
                    continue;
                }
                let document = self.class_document(link.name(), class, contact);
                let of = document.deployment.as_deref().unwrap_or_default();
                if !is(&filter.package, &document.package_name)
                    || !is(&filter.environment, &document.environment)
                    || !is(&filter.deployment, of)
                    || !is(&filter.ownership, &document.ownership)
                {
                    continue;
                }
                if items.len() == limit {
                    return Page { items, next: last.as_ref().map(written) };
                }
                items.push(document);
                last = Some(at);
            }
        }
        Page { items, next: None }
    }

    /// A class, by its id, on that cluster or on whichever it is.
    pub fn class_runtime(
        &self,
        id: &str,
        cluster: Option<&str>,
    ) -> Result<oprc_rest::ClassRuntime, Error> {
        let links = self.clusters.links();
        let mut links = links.filter(|link| cluster.is_none_or(|cluster| cluster == link.name()));
        let found = links.find_map(|link| {
            let observed = link.observed();
            let class = observed.class(id, "")?;
            Some(self.class_document(link.name(), class, observed.contact()))
        });
        found.ok_or_else(|| Error::not_found("class runtime", id))
    }

    pub(super) fn class_document(
        &self,
        cluster: &str,
        class: &ClassRuntime,
        contact: Contact,
    ) -> oprc_rest::ClassRuntime {
        let key = (cluster.to_owned(), class.deployment_id.clone());
        let driven = self.book.unit(&key);
        let parsed = parse_unit_id(&class.deployment_id).filter(|unit| unit.cluster == cluster);
        let unit = match &driven {
            Some(kept) => status::unit(&key, &kept.record, &self.clusters, &self.troubles),
            None => status::of_class(cluster, class, contact),
        };
        let ownership = match (&driven, &parsed) {
            (Some(_), _) => "driven",
            (None, Some(_)) if !class.deleting => "orphan",
            (None, _) => "foreign",
        };
        let status = class.status.as_ref();
        oprc_rest::ClassRuntime {
            id: class.deployment_id.clone(),
            cluster: cluster.to_owned(),
            package_name: class.package.clone(),
            package_version: class.package_version.clone(),
            environment: class.environment.clone(),
            status: states::record(status.map(Status::state).unwrap_or_default()).to_owned(),
            ownership: ownership.to_owned(),
            deployment: driven
                .map(|kept| kept.record.deployment.clone())
                // An orphan that goes is none's.
                .filter(|deployment| !deployment.is_empty())
                .or_else(|| parsed.map(|unit| unit.deployment.to_owned())),
            unit,
            details: details(class),
        }
    }
}

/// Cluster, id and namespace.
type Position = (String, String, String);

/// Where a class is in the list.
fn position(cluster: &str, class: &ClassRuntime) -> Position {
    (cluster.to_owned(), class.deployment_id.clone(), class.namespace.clone())
}

/// A place in the list, as a page tells where the next begins.
fn written((cluster, id, namespace): &Position) -> String {
    format!("{cluster}/{id}/{namespace}")
}

/// The same, read again. Names of clusters and namespaces have no slash, and ids may have some.
fn read(cursor: &str) -> Position {
    let (cluster, rest) = cursor.split_once('/').unwrap_or((cursor, ""));
    let (id, namespace) = rest.rsplit_once('/').unwrap_or((rest, ""));
    (cluster.to_owned(), id.to_owned(), namespace.to_owned())
}

/// What CRM tells beside what has a field.
fn details(class: &ClassRuntime) -> BTreeMap<String, serde_json::Value> {
    let mut details = BTreeMap::new();
    let mut put = |name: &str, value: serde_json::Value| details.insert(name.to_owned(), value);
    put("name", class.name.clone().into());
    put("uid", class.uid.clone().into());
    put("generation", class.generation.into());
    put("created_at", class.created_at.clone().into());
    let Some(status) = &class.status else { return details };
    put("ready", status.ready.clone().into());
    put("observed_generation", status.observed_generation.into());
    let stable = status.stable_since.iter().map(|(name, at)| (name.clone(), at.clone().into()));
    put("stable_since", serde_json::Value::Object(stable.collect()));
    let wishes = status.nfr_recommendations.iter().map(|it| {
        serde_json::json!({
            "component": it.component,
            "dimension": it.dimension,
            "target": it.target,
            "basis": it.basis,
            "confidence": it.confidence,
        })
    });
    put("nfr_recommendations", wishes.collect());
    let conditions = status.conditions.iter().map(|it| {
        serde_json::json!({
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
    fn a_page_goes_on_behind_an_id_with_slashes() {
        for id in ["shop.Cart.dev.east", "team/shop", "a/b/c", "/", ""] {
            let at = ("east".to_owned(), id.to_owned(), "default".to_owned());
            assert_eq!(read(&written(&at)), at);
        }
        assert_eq!(read("east"), ("east".to_owned(), String::new(), String::new()));
    }
}
