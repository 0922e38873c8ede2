//! Properties of all plans.

use std::collections::BTreeMap;

use oprc_models::{Member, OClassDeployment, Requirements, ResolvedPackage, StateSpec};
use proptest::prelude::*;

use super::{cluster, planned, platform, shop, spec};
use oprc_unit::{Capacity, Profile, availability, spec::FunctionSpec};

use crate::planner::ClusterFacts;

fn facts() -> impl Strategy<Value = ClusterFacts> {
    let availability = proptest::option::of(0.6..1.0f64);
    let profile = prop_oneof![Just("dev"), Just("edge"), Just("full"), Just("")];
    (
        any::<bool>(),
        any::<bool>(),
        availability,
        profile,
        0u64..4000,
        0u64..(1 << 30),
        0usize..6,
        1u64..5,
    )
        .prop_map(
            |(
                default,
                reachable,
                node_availability,
                profile,
                cpu_millis,
                memory_bytes,
                ready_nodes,
                part,
            )| ClusterFacts {
                default,
                reachable,
                node_availability,
                ready_nodes,
                platform: Profile::parse(profile).map(platform),
                capacity: Some(Capacity { cpu_millis, memory_bytes }),
                requested: Capacity {
                    cpu_millis: cpu_millis / part,
                    memory_bytes: memory_bytes / part,
                },
                ..cluster()
            },
        )
}

fn any_clusters() -> impl Strategy<Value = BTreeMap<String, ClusterFacts>> {
    proptest::collection::btree_map("[abc]", facts(), 1..4)
}

#[derive(Clone, Debug)]
struct Case {
    clusters: BTreeMap<String, ClusterFacts>,
    availability: f64,
    function: Option<f64>,
    grid: bool,
    replica_count: Option<i32>,
    members: usize,
    targets: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let any_of = (any::<bool>(), proptest::option::of(1..5i32), 0..4usize, any::<bool>());
    (any_clusters(), 0.0..0.9999f64, proptest::option::of(0.0..0.9999f64), any_of).prop_map(
        |(clusters, availability, function, (grid, replica_count, members, targets))| Case {
            clusters,
            availability,
            function,
            grid,
            replica_count,
            members,
            targets,
        },
    )
}

impl Case {
    fn read(&self) -> (ResolvedPackage, OClassDeployment) {
        let (mut package, mut deployment) = shop("", "");
        let class = &mut package.classes[0];
        class.requirements =
            Some(Requirements { availability: Some(self.availability), ..Requirements::default() });
        class.state_spec = self.grid.then(StateSpec::default);
        if let Some(availability) = self.function {
            let function = std::sync::Arc::make_mut(&mut class.functions[0].function);
            let availability = Some(availability);
            function.requirements = Some(Requirements { availability, ..Requirements::default() });
        }
        deployment.replica_count = self.replica_count;
        if self.targets {
            deployment.target_clusters = self.clusters.keys().cloned().collect();
        }
        let member = |id| Member { id, ..Member::default() };
        deployment.members =
            (0..self.members).map(|id| member(i32::try_from(id).unwrap())).collect();
        (package, deployment)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn plans_are_deterministic_and_stable(case in case()) {
        let (package, deployment) = case.read();
        let first = planned(&package, &deployment, &case.clusters);
        prop_assert_eq!(&first, &planned(&package, &deployment, &case.clusters));
        if let Ok(plan) = first {
            // Planning again with the plan as the current one changes nothing.
            let again = crate::planner::plan(&crate::planner::Request {
                deployment: &deployment,
                package: &package,
                clusters: &case.clusters,
                defaults: &crate::planner::Defaults::default(),
                current: Some(&plan),
            });
            let specs = |plan: &oprc_rest::Plan| {
                plan.units.iter().map(|it| it.spec.clone()).collect::<Vec<_>>()
            };
            prop_assert_eq!(specs(&again.unwrap()), specs(&plan));
        }
    }

    #[test]
    fn min_scale_is_never_below_the_minimum_or_the_requested_number(case in case()) {
        let (package, deployment) = case.read();
        let Ok(plan) = planned(&package, &deployment, &case.clusters) else { return Ok(()) };
        let demanded = case.availability.max(case.function.unwrap_or_default()).max(0.99);
        for unit in &plan.units {
            let spec = spec(unit);
            let factor = spec.resource_allocation.unwrap().replication_factor.unwrap();
            prop_assert!(factor >= availability::floor(demanded));
            prop_assert!(factor >= case.replica_count.unwrap_or(1));
            for function in &spec.functions {
                let own = if function.key == "sell" { Some(0.99) } else { case.function };
                let min = availability::floor(own.unwrap_or(case.availability));
                let provision = function.body.provision.clone().unwrap();
                let instances = provision.min_scale.unwrap();
                prop_assert!(instances >= min, "{} {}", instances, min);
                prop_assert!(provision.max_scale.is_none_or(|most| most >= instances));
                prop_assert!(case.grid || instances >= case.replica_count.unwrap_or(1));
            }
        }
    }

    #[test]
    fn higher_availability_never_has_fewer_copies(case in case(), more in 0.0..0.9999f64) {
        let higher = Case { availability: case.availability.max(more), ..case.clone() };
        let (package, deployment) = case.read();
        let (higher, _) = higher.read();
        let Ok(more) = planned(&higher, &deployment, &case.clusters) else { return Ok(()) };
        let less = planned(&package, &deployment, &case.clusters).unwrap();
        prop_assert_eq!(less.units.len(), more.units.len());
        for (less, more) in less.units.iter().zip(&more.units) {
            let (less, more) = (spec(less), spec(more));
            prop_assert!(
                less.resource_allocation.unwrap().replication_factor
                    <= more.resource_allocation.unwrap().replication_factor
            );
            for (less, more) in less.functions.iter().zip(&more.functions) {
                let min = |it: &FunctionSpec| {
                    it.body.provision.as_ref().and_then(|it| it.min_scale)
                };
                prop_assert!(min(less) <= min(more));
            }
        }
    }

    #[test]
    fn warns_of_every_plan_above_the_capacity(case in case()) {
        let (package, deployment) = case.read();
        let Ok(plan) = planned(&package, &deployment, &case.clusters) else { return Ok(()) };
        for (name, facts) in &case.clusters {
            let own = plan.units.iter().filter(|it| it.cluster == *name);
            let (mut cpu, mut memory) = (facts.requested.cpu_millis, facts.requested.memory_bytes);
            for unit in own {
                cpu += unit.requested.cpu_millis;
                memory += unit.requested.memory_bytes;
            }
            let capacity = facts.capacity.unwrap();
            let warned = |what: &str| {
                let begin = format!("{name}: the plan requests");
                plan.warnings.iter().any(|it| it.starts_with(&begin) && it.contains(what))
            };
            let any = plan.units.iter().any(|it| it.cluster == *name);
            prop_assert_eq!(any && cpu > capacity.cpu_millis, warned("m CPU and"));
            prop_assert_eq!(any && memory > capacity.memory_bytes, warned("Mi memory and"));
        }
    }
}
