//! Index of all deployments and units.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use oprc_cp_storage::Revision;
use oprc_unit::Capacity;

use super::schema::decode_or_skip;
use crate::{
    id,
    rollout::{DeploymentRecord, UnitKey, UnitRecord, Units},
};

const DEPLOYMENT: &str = "deployment/";
const UNIT: &str = "deployment-unit/";

/// A record and the store revision that it was written at.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    pub version: Revision,
    pub record: Arc<T>,
}

pub type VersionedUnit = (UnitKey, Versioned<UnitRecord>);
pub type DeploymentWithUnits = (Option<Versioned<DeploymentRecord>>, Vec<VersionedUnit>);

pub fn records_of(units: &[VersionedUnit]) -> Units {
    units.iter().map(|(key, stored)| (key.clone(), stored.record.as_ref().clone())).collect()
}

#[derive(Debug, Default)]
pub(super) struct DeploymentIndex {
    pub(super) deployments: BTreeMap<String, Versioned<DeploymentRecord>>,
    pub(super) units: BTreeMap<UnitKey, Versioned<UnitRecord>>,
    by_deployment: BTreeMap<String, BTreeSet<UnitKey>>,
}

impl DeploymentIndex {
    pub(super) fn put(&mut self, key: &str, value: &[u8], version: Revision) {
        if let Some(name) = key.strip_prefix(DEPLOYMENT) {
            if let Some(record) = decode_or_skip::<DeploymentRecord>(key, value) {
                id::observe(&record.revision);
                let record = Arc::new(record);
                self.deployments.insert(name.to_owned(), Versioned { version, record });
            }
        } else if let Some(unit) = parse_unit_key(key)
            && let Some(record) = decode_or_skip::<UnitRecord>(key, value)
        {
            self.remove(key);
            let of = record.deployment.clone();
            self.by_deployment.entry(of).or_default().insert(unit.clone());
            self.units.insert(unit, Versioned { version, record: Arc::new(record) });
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Some(name) = key.strip_prefix(DEPLOYMENT) {
            self.deployments.remove(name);
        } else if let Some(unit) = parse_unit_key(key)
            && let Some(stored) = self.units.remove(&unit)
            && let Some(of) = self.by_deployment.get_mut(&stored.record.deployment)
        {
            of.remove(&unit);
            if of.is_empty() {
                self.by_deployment.remove(&stored.record.deployment);
            }
        }
    }

    pub(super) fn version(&self, key: &str) -> Option<Revision> {
        match key.strip_prefix(DEPLOYMENT) {
            Some(name) => self.deployments.get(name).map(|stored| stored.version),
            None => self.units.get(&parse_unit_key(key)?).map(|stored| stored.version),
        }
    }

    pub(super) fn with_units(&self, key: &str) -> DeploymentWithUnits {
        let keys = self.by_deployment.get(key).into_iter().flatten();
        let units = keys.filter_map(|key| Some((key.clone(), self.units.get(key)?.clone())));
        (self.deployments.get(key).cloned(), units.collect())
    }

    pub(super) fn units_on(&self, cluster: &str) -> Vec<VersionedUnit> {
        let first = (cluster.to_owned(), String::new());
        let units = self.units.range(first..).take_while(|((on, _), _)| on == cluster);
        units.map(|(key, stored)| (key.clone(), stored.clone())).collect()
    }

    pub(super) fn requested(&self, except: &str) -> BTreeMap<String, Capacity> {
        let mut requested: BTreeMap<String, Capacity> = BTreeMap::new();
        let others = self.deployments.iter().filter(|(key, _)| *key != except);
        let plans = others.filter_map(|(_, stored)| stored.record.desired());
        for unit in plans.flat_map(|(_, plan)| &plan.units) {
            let sum = requested.entry(unit.cluster.clone()).or_default();
            *sum = sum.plus(unit.requested, 1);
        }
        requested
    }
}

fn parse_unit_key(key: &str) -> Option<UnitKey> {
    let (cluster, id) = key.strip_prefix(UNIT)?.split_once('/')?;
    Some((cluster.to_owned(), id.to_owned()))
}
