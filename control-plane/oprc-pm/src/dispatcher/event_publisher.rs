//! Publishes an event for each change of a cluster's health, a deployment's or unit's condition, and
//! for each orphan.

use std::collections::{BTreeMap, BTreeSet};

use oprc_rest::{Condition, Contact, DeploymentCondition, Event, Health};
use serde::Serialize;
use serde_json::Value;

use super::{Dispatcher, status};
use crate::{planner::parse_unit_id, rollout::UnitKey};

/// The state that was published last.
#[derive(Default)]
pub(super) struct Published {
    deployments: BTreeMap<String, (DeploymentCondition, String)>,
    units: BTreeMap<UnitKey, (Condition, bool)>,
    clusters: BTreeMap<String, Health>,
    orphans: BTreeSet<UnitKey>,
}

impl Dispatcher {
    /// `connecting`: clusters that have not connected yet are not reported as unreachable.
    pub(super) fn publish_changes(&self, published: &mut Published, connecting: bool) {
        self.publish_clusters(published);
        self.publish_orphans(published);
        for stored in self.cache.deployments() {
            self.publish_deployment(&stored.record.deployment.key, published, connecting);
        }
        self.publish_deleted(published);
    }

    fn publish_deployment(&self, key: &str, published: &mut Published, connecting: bool) {
        let (Some(stored), units) = self.cache.deployment_with_units(key) else { return };
        let status = status(&stored.record, &units, &self.clusters, &self.call_backoff);
        if connecting && status.units.iter().any(|unit| unit.contact == Contact::Unknown) {
            return;
        }
        let correlation_id = &stored.record.correlation_id;
        for unit in &status.units {
            let now = (unit.condition, unit.current);
            let before = published.units.insert((unit.cluster.clone(), unit.id.clone()), now);
            if before != Some(now) {
                let event = event("unit.condition", &unit.id, &unit.condition, &unit.message);
                self.events.publish(Event { correlation_id: correlation_id.clone(), ..event });
            }
        }
        let now = (status.condition, status.message);
        let before = published.deployments.insert(key.to_owned(), now.clone());
        if before.as_ref() != Some(&now) {
            let event = event("deployment.condition", key, &now.0, &now.1);
            self.events.publish(Event { correlation_id: correlation_id.clone(), ..event });
        }
    }

    fn publish_deleted(&self, published: &mut Published) {
        published.deployments.retain(|key, _| {
            let exists = self.cache.deployment(key).is_some();
            if !exists {
                self.events.publish(event("deployment.deleted", key, &"DELETED", ""));
            }
            exists
        });
        published.units.retain(|key, _| self.cache.unit(key).is_some());
    }

    fn publish_orphans(&self, published: &mut Published) {
        let mut orphans = BTreeSet::new();
        for client in self.clusters.clients() {
            let cache = client.class_cache();
            // A stale report may include units that were adopted or deleted meanwhile.
            if !cache.is_fresh() {
                let known =
                    published.orphans.iter().filter(|(cluster, _)| cluster == client.name());
                orphans.extend(known.cloned());
                continue;
            }
            for class in cache.classes().filter(|class| !class.deleting) {
                let key = (client.name().to_owned(), class.deployment_id.clone());
                let ours = parse_unit_id(&key.1).is_some_and(|unit| unit.cluster == key.0);
                if ours && self.cache.unit(&key).is_none() {
                    orphans.insert(key);
                }
            }
        }
        for (cluster, id) in orphans.difference(&published.orphans) {
            let message = format!("on {cluster}: adopt it or delete it");
            self.events.publish(event("orphan.found", id, &"", &message));
        }
        published.orphans = orphans;
    }

    fn publish_clusters(&self, published: &mut Published) {
        for (cluster, health, message) in self.clusters.health() {
            if published.clusters.insert(cluster.to_owned(), health) != Some(health) {
                self.events.publish(event("cluster.health", cluster, &health, &message));
            }
        }
    }
}

/// `condition` is text, or an enum whose variant is named as in documents.
fn event(kind: &str, subject: &str, condition: &impl Serialize, message: &str) -> Event {
    let condition = serde_json::to_value(condition).ok();
    Event {
        kind: kind.to_owned(),
        subject: subject.to_owned(),
        condition: condition.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
        message: message.to_owned(),
        ..Event::default()
    }
}
