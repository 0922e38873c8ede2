//! Publishes an event for each change of a cluster's health, a deployment's or unit's condition, and
//! for each orphan.

use std::collections::{BTreeMap, BTreeSet};

use oprc_rest::{Condition, Contact, DeploymentCondition, Event, Health};

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
                self.events.publish(Event {
                    kind: "unit.condition".to_owned(),
                    subject: unit.id.clone(),
                    condition: name(&unit.condition),
                    message: unit.message.clone(),
                    correlation_id: correlation_id.clone(),
                    ..Event::default()
                });
            }
        }
        let now = (status.condition, status.message);
        if published.deployments.get(key) != Some(&now) {
            self.events.publish(Event {
                kind: "deployment.condition".to_owned(),
                subject: key.to_owned(),
                condition: name(&now.0),
                message: now.1.clone(),
                correlation_id: correlation_id.clone(),
                ..Event::default()
            });
            published.deployments.insert(key.to_owned(), now);
        }
    }

    fn publish_deleted(&self, published: &mut Published) {
        published.deployments.retain(|key, _| {
            let exists = self.cache.deployment(key).is_some();
            if !exists {
                self.events.publish(Event {
                    kind: "deployment.deleted".to_owned(),
                    subject: key.clone(),
                    condition: "DELETED".to_owned(),
                    ..Event::default()
                });
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
            self.events.publish(Event {
                kind: "orphan.found".to_owned(),
                subject: id.clone(),
                message: format!("on {cluster}: adopt it or delete it"),
                ..Event::default()
            });
        }
        published.orphans = orphans;
    }

    fn publish_clusters(&self, published: &mut Published) {
        for cluster in self.clusters.view(|_| 0) {
            let before = published.clusters.insert(cluster.name.clone(), cluster.health);
            if before != Some(cluster.health) {
                self.events.publish(Event {
                    kind: "cluster.health".to_owned(),
                    subject: cluster.name,
                    condition: name(&cluster.health),
                    message: cluster.message,
                    ..Event::default()
                });
            }
        }
    }
}

/// The name of an enum's variant as documents contain it.
fn name(of: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(of).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
