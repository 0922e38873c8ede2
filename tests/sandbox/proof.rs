//! Long suites: a sample with every test run, all rounds with `make prove`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ListParams};
use oprc_sandbox::{NodeChoice, Options};
use oprc_tests::{
    TestNamespace, eventually, in_namespace_of, objects::READY_TIMEOUT, proof, with_cluster,
};

use crate::components::{Acknowledged, etcd_arguments, write};

const WRITERS: usize = 4;
const WRITES: usize = 100;

#[tokio::test]
async fn acknowledged_writes_survive_a_killed_etcd_or_api_server() {
    let proof = proof::begin("etcd and API server killed during writes", 3, 100);
    let rounds = proof.rounds;
    let options = Options { node: NodeChoice::Simulated, ..Options::default() };
    with_cluster("test-durable", &options, async |cluster| {
        // Without fsync, writes survive a killed process, but not a failure of the machine.
        assert!(!etcd_arguments(&cluster).await.contains("--unsafe-no-fsync"));
        in_namespace_of(cluster.clone(), async |ns: &TestNamespace| {
            let api: Api<ConfigMap> = Api::namespaced(ns.client.clone(), &ns.name);
            let mut acknowledged = Acknowledged::new();
            for round in 0..rounds {
                let victim = if round % 2 == 0 { "etcd" } else { "kube-apiserver" };
                let writers: Vec<_> = (0..WRITERS)
                    .map(|writer| tokio::spawn(write(api.clone(), writer, round, WRITES)))
                    .collect();
                cluster.supervisor().kill(victim).await.unwrap();
                for writer in writers {
                    acknowledged.extend(writer.await.unwrap());
                }
            }
            assert_eq!(acknowledged.len(), rounds * WRITERS * WRITES);
            let stored = eventually("a list", READY_TIMEOUT, || async {
                api.list(&ListParams::default()).await.map_err(|error| error.to_string())
            })
            .await;
            let stored: Acknowledged = stored
                .into_iter()
                .filter_map(|object| Some((object.metadata.name?, object.data?.remove("content")?)))
                .collect();
            for (name, content) in &acknowledged {
                assert_eq!(stored.get(name), Some(content), "acknowledged write is not stored");
            }
        })
        .await;
    })
    .await;
    proof.held(&format!("{} acknowledged writes, all stored", rounds * WRITERS * WRITES));
}
