//! Members of a deployment on two clusters, which divide the objects of a class among them.

use std::collections::BTreeSet;

use oprc_tests::pm::{Pm, Setup};
use serde_json::{Value, json};

use crate::{command_line::Oprc, two_clusters::with_two_clusters};

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn package() -> Value {
    json!({
        "name": "tally",
        "version": "1.0.0",
        "functions": [{
            "key": "counter",
            "provision": {"deployment": {
                "image": "oprc.local/sample-fns:dev",
                "pullPolicy": "Never",
                "requestsCpu": "10m",
                "requestsMemory": "16Mi",
                "healthCheck": {
                    "path": "/healthz", "periodSeconds": 1,
                    "timeoutSeconds": 3, "failureThreshold": 100,
                },
            }},
        }],
        "classes": [{
            "key": "Counter",
            "stateSpec": {
                "keySpecs": [{"name": "value", "type": "INTEGER"}],
                "persistence": "PERSISTENT",
            },
            "functions": [{"name": "increment", "function": "counter", "defaultRoute": true}],
        }],
    })
}

/// Member 1 is in `east`, member 2 in `west`.
fn deployment(assignments: &Value) -> Value {
    json!({
        "key": "tally", "package": "tally", "class": "Counter", "partitionCount": 4,
        "members": [{"id": 1, "cluster": "east"}, {"id": 2, "cluster": "west"}],
        "assignments": assignments,
    })
}

fn listed(oprc: &Oprc, cluster: &str) -> BTreeSet<String> {
    let objects = oprc.json(&["object", "list", "tally", "--cluster", cluster]);
    let ids = objects.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned());
    ids.collect()
}

/// The clusters that serve an object. The others name the one that does.
fn serving(oprc: &Oprc, id: &str) -> Vec<&'static str> {
    let mut serving = Vec::new();
    for (cluster, other) in
        [("east", "member 2 in cluster west"), ("west", "member 1 in cluster east")]
    {
        let arguments = ["object", "get", "tally", id, "--cluster", cluster];
        if oprc.run(&arguments).status.success() {
            serving.push(cluster);
        } else {
            let stderr = oprc.fails(3, &arguments);
            assert!(stderr.contains(other) && stderr.contains("OTHER_MEMBER"), "{stderr}");
        }
    }
    serving
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_object_is_served_by_one_of_two_clusters() {
    with_two_clusters(async |east, west| {
        let pm = Pm::start(&Setup::of([("east", &*east.crm.url), ("west", &*west.crm.url)])).await;
        for cluster in ["east", "west"] {
            pm.wait_for_cluster(cluster, "HEALTHY").await;
        }
        pm.publish(&package()).await;
        let replicated = json!([{"owners": [1, 2], "shardIds": [0]}]);
        let rejected = pm.deploy(&deployment(&replicated)).await.unwrap_err();
        assert!(rejected.contains("assignments[0].owners"), "{rejected}");
        let created = pm.deploy(&deployment(&json!([]))).await.unwrap();
        let warnings = created["plan"]["warnings"].to_string();
        assert!(!warnings.contains("objects of their own"), "{warnings}");
        pm.wait_for_condition("tally", "RUNNING").await;

        let oprc = Oprc::new(&pm, east.ns);
        oprc.add_cluster("west", west.ns);
        // Whichever data grid is asked first.
        for id in IDS {
            oprc.ok(&["object", "put", "tally", id, "-d", r#"{"value": 0}"#]);
            assert_eq!(oprc.ok(&["invoke", "tally", "increment", "--object", id]), "1");
        }
        for id in IDS {
            assert_eq!(serving(&oprc, id).len(), 1, "{id}");
        }
        let stderr = oprc.fails(2, &["object", "list", "tally"]);
        assert!(stderr.contains("--cluster"), "{stderr}");
        let (at_east, at_west) = (listed(&oprc, "east"), listed(&oprc, "west"));
        assert!(!at_east.is_empty() && !at_west.is_empty(), "{at_east:?} {at_west:?}");
        assert_eq!(at_east.intersection(&at_west).count(), 0);
        assert_eq!(at_east.union(&at_west).cloned().collect::<Vec<_>>(), IDS);
        let created = oprc.json(&["object", "put", "tally", "-d", r#"{"value": 0}"#]);
        assert_eq!(serving(&oprc, created["id"].as_str().unwrap()).len(), 1);

        // Objects aren't moved, so neither are the partitions of persistent collections.
        let moved = json!([{"owners": [2], "shardIds": [0, 1, 2, 3]}]);
        let rejected = pm.deploy(&deployment(&moved)).await.unwrap_err();
        assert!(rejected.contains("would move") && rejected.contains("assignments"), "{rejected}");
        for id in IDS {
            assert_eq!(oprc.ok(&["invoke", "tally", "increment", "--object", id]), "2");
        }
    })
    .await;
}
