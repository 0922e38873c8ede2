//! Selects the environments and clusters of a deployment.

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{Diagnostics, Member};
use oprc_rest::Reason;
use oprc_unit::{Identity, UnitSpec};

use super::{ClusterFacts, Request, diagnostics, parse_unit_id};

/// An environment of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) cluster: &'a str,
    pub(super) facts: &'a ClusterFacts,
    /// Empty for the cluster's default environment.
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
    diagnostics: &mut Diagnostics,
) -> (Vec<Place<'a>>, Vec<Reason>) {
    let mut search = Search { request: *request, needs_grid, taken: BTreeSet::new() };
    let mut reasons = Vec::new();
    let mut places = if request.deployment.members.is_empty() {
        search.by_lists(diagnostics, &mut reasons)
    } else {
        search.by_members(diagnostics, &mut reasons)
    };
    for place in &places {
        if !place.facts.has_environment(place.environment) {
            let message = format!(
                "cluster {} has no environment {:?}; it has: {}",
                place.cluster,
                place.environment,
                place.facts.environments.join(", ")
            );
            diagnostics::add(diagnostics, "targetEnvs", message);
        }
    }
    places.sort_by_key(|it| (it.cluster, it.environment));
    (places, reasons)
}

/// A part of the deployment that names no cluster.
struct Unplaced<'a> {
    path: String,
    environment: &'a str,
    member: Option<&'a Member>,
}

/// The field of the reason for the cluster of a member.
fn member_field(member: &Member) -> String {
    format!("clusters (member {})", member.id)
}

struct Search<'a> {
    request: Request<'a>,
    needs_grid: bool,
    /// Clusters and environments that are in use by the deployment.
    taken: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Search<'a> {
    fn default_environment(&self) -> &'a str {
        let default = self.request.defaults.environment.as_deref();
        self.request.deployment.target_envs.first().map(String::as_str).or(default).unwrap_or("")
    }

    fn environment_of(&self, member: &'a Member) -> &'a str {
        member.env.as_deref().unwrap_or_else(|| self.default_environment())
    }

    fn by_lists(
        &mut self,
        diagnostics: &mut Diagnostics,
        reasons: &mut Vec<Reason>,
    ) -> Vec<Place<'a>> {
        let deployment = self.request.deployment;
        let environments: Vec<&str> = if deployment.target_envs.is_empty() {
            vec![self.default_environment()]
        } else {
            deployment.target_envs.iter().map(String::as_str).collect()
        };
        let mut places = Vec::new();
        for (at, name) in deployment.target_clusters.iter().enumerate() {
            let found = self.known(diagnostics, &format!("targetClusters[{at}]"), name);
            let Some((cluster, facts)) = found else { continue };
            let each = environments.iter().copied();
            places.extend(each.map(|environment| Place {
                cluster,
                facts,
                environment,
                member: None,
            }));
        }
        if deployment.target_clusters.is_empty() {
            for environment in environments {
                let unplaced =
                    Unplaced { path: "targetClusters".to_owned(), environment, member: None };
                let chosen = self.choose(diagnostics, &unplaced, reasons);
                places.extend(chosen.map(|(cluster, facts)| Place {
                    cluster,
                    facts,
                    environment,
                    member: None,
                }));
            }
        } else {
            let names = deployment.target_clusters.join(", ");
            reasons.push(reason("clusters", names, "set by targetClusters"));
        }
        places
    }

    fn by_members(
        &mut self,
        diagnostics: &mut Diagnostics,
        reasons: &mut Vec<Reason>,
    ) -> Vec<Place<'a>> {
        let deployment = self.request.deployment;
        // Members that name their cluster come first; the others get the remaining clusters.
        let mut places = Vec::new();
        for (at, member) in deployment.members.iter().enumerate() {
            let Some(name) = &member.cluster else { continue };
            let path = format!("members[{at}].cluster");
            let environment = self.environment_of(member);
            let Some((cluster, facts)) = self.known(diagnostics, &path, name) else { continue };
            if !self.taken.insert((cluster, environment)) {
                diagnostics::add(
                    diagnostics,
                    path,
                    "another member has the same environment and cluster",
                );
                continue;
            }
            places.push(Place { cluster, facts, environment, member: Some(member) });
            reasons.push(reason(member_field(member), cluster, "set by the member"));
        }
        for (at, member) in deployment.members.iter().enumerate() {
            if member.cluster.is_some() {
                continue;
            }
            let path = format!("members[{at}].cluster");
            let environment = self.environment_of(member);
            let unplaced = Unplaced { path, environment, member: Some(member) };
            if let Some((cluster, facts)) = self.choose(diagnostics, &unplaced, reasons) {
                places.push(Place { cluster, facts, environment, member: Some(member) });
            }
        }
        places
    }

    fn known(
        &self,
        diagnostics: &mut Diagnostics,
        path: &str,
        name: &str,
    ) -> Option<(&'a str, &'a ClusterFacts)> {
        let clusters = self.request.clusters;
        let found = clusters.get_key_value(name).map(|(name, facts)| (name.as_str(), facts));
        if found.is_none() {
            let hint = if clusters.is_empty() {
                "no cluster is configured".to_owned()
            } else {
                format!("configured: {}", names(clusters))
            };
            diagnostics::add_with_hint(
                diagnostics,
                path,
                format!("there is no cluster {name:?}"),
                hint,
            );
        }
        found
    }

    /// Selects a cluster for a part that names none.
    fn choose(
        &mut self,
        diagnostics: &mut Diagnostics,
        unplaced: &Unplaced<'a>,
        reasons: &mut Vec<Reason>,
    ) -> Option<(&'a str, &'a ClusterFacts)> {
        let Request { clusters, deployment, current, .. } = self.request;
        let environment = unplaced.environment;
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
        let free: Vec<_> = candidates
            .iter()
            .copied()
            .filter(|(name, facts)| {
                !self.taken.contains(&(*name, environment)) && facts.has_environment(environment)
            })
            .collect();
        let field = unplaced.member.map_or_else(|| "clusters".to_owned(), member_field);
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
        let Some(chosen) = chosen else {
            let message = match (clusters.is_empty(), candidates.is_empty()) {
                (true, _) => "no cluster is configured".to_owned(),
                (false, true) => "no cluster is set, and none is a default".to_owned(),
                (false, false) => format!("no cluster is left for environment {environment:?}"),
            };
            let hint = format!("set one of: {}", names(clusters));
            diagnostics::add_with_hint(diagnostics, unplaced.path.as_str(), message, hint);
            return None;
        };
        self.taken.insert((chosen.0, environment));
        let because = if stays.is_some() {
            "no cluster is set; the units already run there".to_owned()
        } else if free.len() == 1 {
            "no cluster is set; the only candidate".to_owned()
        } else {
            format!(
                "no cluster is set; most free memory of the suitable, reachable ones of {}",
                free.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
            )
        };
        reasons.push(reason(field, chosen.0, because));
        Some(chosen)
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
