//! Members that divide the partitions of a class among them.

use std::collections::BTreeMap;

use oprc_models::{Diagnostics, Member};
use oprc_rest::Plan;
use oprc_unit::partition_owners;
use proptest::prelude::*;

use super::{ClusterFacts, Defaults, Request, because, cluster, clusters, plan, planned, shop};

const GRID: &str = "    stateSpec: {}";

fn three() -> BTreeMap<String, ClusterFacts> {
    clusters([("a", cluster()), ("b", cluster()), ("c", cluster())])
}

/// The member of each partition, as all units of the plan have them.
fn owners(plan: &Plan) -> Vec<i32> {
    let mut all = plan.units.iter().map(|unit| {
        let config = unit.spec.odgm_config.as_ref().unwrap();
        let members = config.members.iter().map(|it| it.id).collect();
        let partitions = config.partition_count.unwrap();
        partition_owners(&config.shard_assignments, partitions, &members).unwrap()
    });
    let first = all.next().unwrap();
    assert!(all.all(|it| it == first));
    first
}

fn planned_with(more: &str, current: Option<&Plan>) -> Result<Plan, Diagnostics> {
    let (package, deployment) = shop(GRID, more);
    let (defaults, clusters) = (Defaults::default(), three());
    let (package, deployment, defaults) = (&package, &deployment, &defaults);
    plan(&Request { deployment, package, clusters: &clusters, defaults, current })
}

fn rejection(more: &str) -> (String, String, String) {
    let diagnostics = planned_with(more, None).unwrap_err();
    let first = diagnostics.all.into_iter().next().unwrap();
    (first.path, first.message, first.hint.unwrap_or_default())
}

#[test]
fn each_partition_has_one_member() {
    let members = "    partitionCount: 6\n    replicaCount: 2\n    members: \
        [{id: 1, cluster: a, gridUrl: \"http://a:8083\"}, {id: 2, cluster: b, maxShards: 1}, {id: 3, cluster: c}]";
    let plan = planned_with(members, None).unwrap();
    assert_eq!(owners(&plan), [1, 2, 3, 1, 3, 1]);
    let ids: Vec<_> =
        plan.units.iter().map(|it| it.spec.odgm_config.as_ref().unwrap().member_id).collect();
    assert_eq!(ids, [Some(1), Some(2), Some(3)]);
    let members = serde_json::to_value(&plan.units[1].spec.odgm_config.as_ref().unwrap().members);
    let expected = serde_json::json!([
        {"id": 1, "cluster": "a", "url": "http://a:8083"},
        {"id": 2, "cluster": "b"},
        {"id": 3, "cluster": "c"},
    ]);
    assert_eq!(members.unwrap(), expected);
    // Replicas are in the cluster of the member.
    let why = because(&plan.units[0], "odgm_config.shard_assignments");
    assert!(why.starts_with("member 1 has 3 of 6 partitions, and 3 copies of each in a:"), "{why}");
}

#[test]
fn rejects_replicas_of_a_partition_in_several_members() {
    let members = "    members: [{id: 1, cluster: a}, {id: 2, cluster: b}]";
    let (path, message, hint) =
        rejection(&format!("{members}\n    assignments: [{{owners: [1, 2], shardIds: [0]}}]"));
    assert_eq!(path, "assignments[0].owners");
    assert_eq!(message, "a partition has one member, but 1, 2 are listed");
    assert!(hint.starts_with("list one of: 1, 2; replicas"), "{hint}");
    let collection = "{name: c, assignments: [{owners: [1, 2], shardIds: [0]}]}";
    let (path, ..) = rejection(&format!("{members}\n    odgm: {{collections: [{collection}]}}"));
    assert_eq!(path, "odgm.collections[0].assignments[0].owners");
}

#[test]
fn one_member_can_have_all_partitions() {
    let members = |more: &str| {
        format!(
            "    members: [{{id: 1, cluster: a}}, {{id: 2, cluster: b, allPartitions: true{more}}}]"
        )
    };
    let plan = planned_with(&members(""), None).unwrap();
    assert_eq!(owners(&plan), [2, 2, 2, 2]);
    let idle = "Cart: member 1 has no partition, and serves no object";
    assert!(plan.warnings.contains(&idle.to_owned()), "{:?}", plan.warnings);
    assert_eq!(rejection(&members(", maxShards: 3")).0, "members[1].maxShards");
    let both = "    members: [{id: 1, allPartitions: true}, {id: 2, allPartitions: true}]\n    \
                targetClusters: [a, b]";
    let (path, message, _) = rejection(both);
    assert_eq!(path, "members[1].allPartitions");
    assert!(message.contains("member 1 has all partitions of Cart already"), "{message}");
    let (path, ..) =
        rejection(&format!("{}\n    assignments: [{{owners: [1], shardIds: [0]}}]", members("")));
    assert_eq!(path, "members[1].allPartitions");
}

#[test]
fn partitions_that_assignments_leave_out_are_spread() {
    let plan = planned_with(
        "    members: [{id: 1, cluster: a}, {id: 2, cluster: b}]\n    assignments: [{owners: [2], shardIds: [0, 1]}]\n    \
         odgm: {collections: [{name: x}, {name: y, partitionCount: 2}, {name: z, assignments: [{owners: [1], shardIds: [3]}]}]}",
        None,
    );
    let plan = plan.unwrap();
    assert_eq!(owners(&plan), [2, 2, 1, 1]);
    let collections = serde_json::to_value(&plan.units[0].spec.odgm_config).unwrap();
    let assigned = |at: usize| collections["collections"][at]["shard_assignments"].clone();
    assert_eq!(assigned(0), serde_json::Value::Null, "those of the grid");
    let y = serde_json::json!([{"primary": 2, "owners": [2], "shard_ids": [0, 1]}]);
    assert_eq!(assigned(1), y);
    let z = serde_json::json!([
        {"primary": 1, "owners": [1], "shard_ids": [1, 3]},
        {"primary": 2, "owners": [2], "shard_ids": [0, 2]},
    ]);
    assert_eq!(assigned(2), z);
}

#[test]
fn partitions_stay_at_their_members() {
    let two = "    members: [{id: 1, cluster: a}, {id: 2, cluster: b}]";
    let first = planned_with(two, None).unwrap();
    assert_eq!(owners(&first), [1, 2, 1, 2]);
    // Members are known by their cluster and environment.
    let three = "    members: [{id: 7, cluster: c}, {id: 2, cluster: a}, {id: 1, cluster: b}]";
    let second = planned_with(three, Some(&first)).unwrap();
    assert_eq!(owners(&second), [2, 1, 2, 1]);
    assert!(second.warnings.iter().any(|it| it.contains("member 7 has no partition")));
    // What a former member had is spread, if its objects may be lost.
    let fewer = "    members: [{id: 1, cluster: a}, {id: 3, cluster: c}]";
    let loses = "\n    odgm: {allowDataLoss: true}";
    let spread = planned_with(&format!("{fewer}{loses}"), Some(&first)).unwrap();
    assert_eq!(owners(&spread), [1, 3, 1, 3]);
    let refused = |more: &str| {
        let rejected =
            planned_with(more, Some(&first)).unwrap_err().all.into_iter().next().unwrap();
        (rejected.path, rejected.message)
    };
    let (path, message) = refused(fewer);
    assert_eq!(path, "members");
    assert_eq!(
        message,
        "partition 1 of Cart would move from a former member to member 3 without its objects"
    );
    // The only data grid has all objects.
    let single = planned_with("    targetClusters: [b]", None).unwrap();
    assert_eq!(single.units[0].spec.odgm_config.as_ref().unwrap().member_id, None);
    assert_eq!(owners(&planned_with(two, Some(&single)).unwrap()), [2, 2, 2, 2]);
    // Assignments of the deployment take precedence.
    let moved = format!("{two}\n    assignments: [{{owners: [1], shardIds: [1]}}]");
    let (path, message) = refused(&moved);
    assert_eq!(path, "assignments");
    assert_eq!(
        message,
        "partition 1 of Cart would move from member 2 to member 1 without its objects"
    );
    let moved = planned_with(&format!("{moved}{loses}"), Some(&first)).unwrap();
    assert_eq!(owners(&moved), [1, 1, 1, 2]);
}

#[test]
fn warns_of_data_grids_that_know_nothing_of_each_other() {
    let warning = "Cart: the data grids in a, b have objects of their own, even with equal ids; set \
                   members to divide the objects among them";
    let separate = planned_with("    targetClusters: [a, b]", None).unwrap();
    assert!(separate.warnings.contains(&warning.to_owned()), "{:?}", separate.warnings);
    let config = |plan: &Plan| plan.units[0].spec.odgm_config.clone().unwrap();
    assert_eq!((config(&separate).member_id, config(&separate).members.len()), (None, 0));
    // Environments are meant to be separate.
    let other = planned_with("    targetClusters: [a]\n    targetEnvs: [dev, prod]", None).unwrap();
    assert_eq!(other.warnings, Vec::<String>::new());
    let members = "    members: [{id: 1, cluster: a, env: dev}, {id: 2, cluster: a, env: prod}]\n    \
                   targetEnvs: [dev, prod]";
    let shared = planned_with(members, None).unwrap();
    let warned = shared.warnings.iter().any(|it| it.contains("several environments (dev, prod)"));
    assert!(warned, "{:?}", shared.warnings);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn units_of_a_class_agree_on_the_owner_of_each_partition(
        count in 1..9i32,
        limits in proptest::collection::vec(proptest::option::of(1..5i32), 2..4),
    ) {
        let (package, mut deployment) = shop(GRID, "");
        deployment.partition_count = Some(count);
        let names = ["a", "b", "c"];
        deployment.members = (1..).zip(limits).zip(names).map(|((id, max_shards), cluster)| {
            Member { id, max_shards, cluster: Some(cluster.to_owned()), ..Member::default() }
        }).collect();
        let Ok(plan) = planned(&package, &deployment, &three()) else { return Ok(()) };
        let owners = owners(&plan);
        prop_assert_eq!(i32::try_from(owners.len()), Ok(count));
        prop_assert!(owners.iter().all(|id| deployment.members.iter().any(|it| it.id == *id)));
    }
}
