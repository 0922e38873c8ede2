//! Members of a deployment, which divide the partitions of a class among them.

use serde_json::{Value, json};

use super::{
    check,
    data_grid::{grid, plan},
};

/// A grid of member 1, which shares its partitions with member 2.
fn member_grid(more: &Value) -> Value {
    let mut config = json!({
        "collections": [{"name": "a", "partition_count": 2}],
        "member_id": 1,
        "members": [{"id": 1, "cluster": "east"}, {"id": 2, "cluster": "west"}],
        "shard_assignments": [{"owners": [1], "shard_ids": [1]}, {"owners": [2], "shard_ids": [0]}],
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    grid(&config)
}

#[test]
fn members_divide_the_partitions() {
    let found = plan(&member_grid(&json!({})));
    let membership = found.membership.unwrap();
    assert_eq!((membership.own, membership.members.len()), (1, 2));
    assert_eq!(found.collections[0].owners, [2, 1]);
    // A collection may have its own assignments.
    let own = json!([{"name": "a", "partition_count": 1,
        "shard_assignments": [{"primary": 2, "owners": [2], "shard_ids": [0]}]}]);
    assert_eq!(plan(&member_grid(&json!({"collections": own}))).collections[0].owners, [2]);
    // Without a member id, the grid serves all objects.
    let alone = plan(&grid(&json!({"shard_assignments": [{"owners": [1, 2], "shard_ids": [0]}]})));
    assert_eq!((alone.membership, alone.collections[0].owners.len()), (None, 0));
}

#[test]
fn each_partition_has_exactly_one_member() {
    const DEFAULT: &str = "odgm_config.shard_assignments";
    let assigned = |all: Value| json!({"shard_assignments": all});
    for (more, field, message) in [
        (json!({"member_id": 3}), "odgm_config.member_id", "3 is not in members: 1, 2"),
        (json!({"member_id": null}), "odgm_config.members", "requires member_id"),
        (
            json!({"members": [{"id": 1, "cluster": "east"}, {"id": 1, "cluster": "west"}]}),
            "odgm_config.members",
            "an id is given twice",
        ),
        (
            json!({"members": [{"id": 1, "cluster": "east"}, {"id": 2, "cluster": "b", "url": "x"}]}),
            "odgm_config.members[1].url",
            "",
        ),
        (assigned(json!([{"owners": [1, 2], "shard_ids": [0, 1]}])), DEFAULT, "has one owner"),
        (assigned(json!([{"owners": [1], "shard_ids": [0]}])), DEFAULT, "partition 1 of 2 has no"),
        (assigned(json!([{"owners": [3], "shard_ids": [0]}])), DEFAULT, "3 is not in members"),
        (assigned(json!([{"owners": [1], "shard_ids": [0, 1, 2]}])), DEFAULT, "between 0 and 1"),
        (assigned(json!([{"owners": [1], "shard_ids": [0, 0]}])), DEFAULT, "0 is assigned twice"),
        (
            assigned(json!([{"primary": 2, "owners": [1], "shard_ids": [0, 1]}])),
            DEFAULT,
            "the primary must be the owner, 1",
        ),
        (
            json!({"collections": ["a", "b", "c", "d", "e"], "partition_count": 4096}),
            "odgm_config.partition_count",
            "at most 16384 can be divided",
        ),
    ] {
        let rejection = check(&member_grid(&more)).unwrap_err();
        let found = rejection.violations.iter().find(|it| it.field == field);
        let found = found.unwrap_or_else(|| panic!("{more}: {:?}", rejection.violations));
        assert!(found.message.contains(message), "{more}: {found:?}");
    }
}
