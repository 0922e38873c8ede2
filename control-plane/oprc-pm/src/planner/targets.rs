//! Selects the environments and clusters of a deployment.

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{Member, OClassDeployment};
use oprc_rest::Reason;
use oprc_unit::{Identity, UnitSpec};

use super::{ClusterFacts, Request, findings::Findings, parse_unit_id};

/// An environment of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) cluster: &'a str,
    pub(super) facts: &'a ClusterFacts,
    /// Empty: no environment.
    pub(super) environment: &'a str,
    pub(super) member: Option<&'a Member>,
}

impl Place<'_> {
    /// The identity under which CRM would admit a unit here.
    pub(super) fn identity(&self, spec: &UnitSpec) -> Identity {
        let id = spec.deployment_unit.as_ref().map(|unit| unit.id.as_str()).unwrap_or_default();
        let environment = Some(self.environment).filter(|it| !it.is_empty());
        Identity::for_unit(id, "", environment)
    }
}

/// The places of a deployment, sorted by cluster and environment, and why.
pub(super) fn places<'a>(
    request: &Request<'a>,
    needs_grid: bool,
    findings: &mut Findings,
) -> (Vec<Place<'a>>, Vec<Reason>) {
    let (taken, places, reasons) = Default::default();
    let mut search = Search { request: *request, needs_grid, findings, taken, places, reasons };
    if request.deployment.members.is_empty() {
        search.by_lists();
    } else {
        search.by_members();
    }
    let Search { mut places, reasons, .. } = search;
    for Place { cluster, facts, environment, .. } in &places {
        if !facts.has_environment(environment) {
            let known = facts.environments.join(", ");
            let message =
                format!("cluster {cluster} has no environment {environment:?}; it has: {known}");
            findings.reject("targetEnvs", message, None);
        }
    }
    places.sort_by_key(|it| (it.cluster, it.environment));
    (places, reasons)
}

/// The field of the reason for the cluster of a member.
fn member_field(member: &Member) -> String {
    format!("clusters (member {})", member.id)
}

struct Search<'a, 'f> {
    request: Request<'a>,
    needs_grid: bool,
    findings: &'f mut Findings,
    /// Clusters and environments that are in use by the deployment.
    taken: BTreeSet<(&'a str, &'a str)>,
    places: Vec<Place<'a>>,
    reasons: Vec<Reason>,
}

impl<'a> Search<'a, '_> {
    fn default_environment(&self) -> &'a str {
        let default = self.request.defaults.environment.as_deref();
        self.request.deployment.target_envs.first().map(String::as_str).or(default).unwrap_or("")
    }

    fn by_lists(&mut self) {
        let OClassDeployment { target_clusters, target_envs, .. } = self.request.deployment;
        let environments: Vec<&str> = if target_envs.is_empty() {
            vec![self.default_environment()]
        } else {
            target_envs.iter().map(String::as_str).collect()
        };
        if target_clusters.is_empty() {
            for environment in environments {
                self.choose("targetClusters", environment, None);
            }
            return;
        }
        for (at, name) in target_clusters.iter().enumerate() {
            let found = self.known(&format!("targetClusters[{at}]"), name);
            let Some((cluster, facts)) = found else { continue };
            let place = |&environment| Place { cluster, facts, environment, member: None };
            self.places.extend(environments.iter().map(place));
        }
        self.reasons.push(reason(
            "clusters",
            target_clusters.join(", "),
            "set in the deployment (targetClusters)",
        ));
    }

    fn by_members(&mut self) {
        let mut members: Vec<_> = self.request.deployment.members.iter().enumerate().collect();
        // Members that name their cluster come first; the others get the remaining clusters.
        members.sort_by_key(|(_, member)| member.cluster.is_none());
        for (at, member) in members {
            let path = format!("members[{at}].cluster");
            let environment = member.env.as_deref().unwrap_or_else(|| self.default_environment());
            let Some(name) = &member.cluster else {
                self.choose(&path, environment, Some(member));
                continue;
            };
            let Some((cluster, facts)) = self.known(&path, name) else { continue };
            if !self.taken.insert((cluster, environment)) {
                let message = "another member has the same environment and cluster";
                self.findings.reject(path, message, None);
                continue;
            }
            self.places.push(Place { cluster, facts, environment, member: Some(member) });
            self.reasons.push(reason(
                member_field(member),
                cluster,
                "set in the deployment (member)",
            ));
        }
    }

    fn known(&mut self, path: &str, name: &str) -> Option<(&'a str, &'a ClusterFacts)> {
        let clusters = self.request.clusters;
        let found = clusters.get_key_value(name).map(|(name, facts)| (name.as_str(), facts));
        if found.is_none() {
            let hint = if clusters.is_empty() {
                "no cluster is configured".to_owned()
            } else {
                format!("configured: {}", names(clusters))
            };
            self.findings.reject(path, format!("there is no cluster {name:?}"), Some(&hint));
        }
        found
    }

    /// Selects a cluster for a part of the deployment that names none.
    fn choose(&mut self, path: &str, environment: &'a str, member: Option<&'a Member>) {
        let Request { clusters, deployment, current, .. } = self.request;
        let listed = &deployment.target_clusters;
        let only_one = clusters.len() == 1;
        let allowed = |name: &String, facts: &ClusterFacts| {
            if listed.is_empty() { facts.default || only_one } else { listed.contains(name) }
        };
        let candidates: Vec<(&'a str, &'a ClusterFacts)> = clusters
            .iter()
            .filter(|(name, facts)| allowed(name, facts))
            .map(|(name, facts)| (name.as_str(), facts))
            .collect();
        let is_free = |(name, facts): &(&'a str, &ClusterFacts)| {
            !self.taken.contains(&(*name, environment)) && facts.has_environment(environment)
        };
        let free: Vec<_> = candidates.iter().copied().filter(is_free).collect();
        let field = member.map_or_else(|| "clusters".to_owned(), member_field);
        let was_there = |name: &str| {
            current.is_some_and(|plan| {
                // The cluster of another member doesn't count.
                let chosen = plan.reasons.iter().any(|it| it.field == field && it.value == name);
                let ids = plan.units.iter().filter_map(|unit| parse_unit_id(&unit.id));
                let mut here = ids.filter(|id| id.environment == environment);
                chosen && here.any(|id| id.cluster == name)
            })
        };
        // Units stay in their cluster, because their data is there.
        let stays = free.iter().copied().find(|(name, _)| was_there(name));
        let chosen = stays.or_else(|| {
            let lacks_grid = |facts: &ClusterFacts| self.needs_grid && facts.lacks_grid();
            free.iter().copied().min_by_key(|(name, facts)| {
                let free = facts.free();
                let least_first = (u64::MAX - free.memory_bytes, u64::MAX - free.cpu_millis);
                (lacks_grid(facts), !facts.reachable, least_first, *name)
            })
        });
        let Some((cluster, facts)) = chosen else {
            let message = match (clusters.is_empty(), candidates.is_empty()) {
                (true, _) => "no cluster is configured".to_owned(),
                (false, true) => {
                    "no target cluster specified, and no cluster is a default".to_owned()
                }
                (false, false) => format!("no cluster is left for environment {environment:?}"),
            };
            let hint = format!("set one of: {}", names(clusters));
            self.findings.reject(path, message, Some(&hint));
            return;
        };
        self.taken.insert((cluster, environment));
        let because = if stays.is_some() {
            "no target cluster specified; current placement kept".to_owned()
        } else if free.len() == 1 {
            "no target cluster specified; only one candidate".to_owned()
        } else {
            format!(
                "no target cluster specified; most free memory of the suitable, reachable ones of {}",
                free.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
            )
        };
        self.reasons.push(reason(field, cluster, because));
        self.places.push(Place { cluster, facts, environment, member });
    }
}

fn names(clusters: &BTreeMap<String, ClusterFacts>) -> String {
    clusters.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

pub(super) fn reason(
    field: impl Into<String>,
    value: impl Into<String>,
    because: impl Into<String>,
) -> Reason {
    Reason { field: field.into(), value: value.into(), because: because.into() }
}
