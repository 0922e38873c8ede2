//! Two clusters with real nodes at the same time, one of them with two nodes.

use oprc_sandbox::{NodeChoice, Options};
use oprc_tests::{
    TestNamespace, hello_archive,
    http::get_ok,
    in_namespace, in_namespace_of,
    objects::{deploy_hello, get_from_pod, pod_of},
    with_cluster,
};

#[tokio::test]
async fn clusters_with_real_nodes_are_isolated() {
    let options =
        Options { node: NodeChoice::Real, nodes: Some(2), no_fsync: true, ..Options::default() };
    with_cluster("test-pair", &options, async |pair| {
        pair.load_image(&hello_archive()).await.unwrap();
        in_namespace(async |here: &TestNamespace| {
            in_namespace_of(pair.clone(), async |there: &TestNamespace| {
                let first = deploy_hello(here, "hello").await;
                let second = deploy_hello(there, "hello").await;
                for (url, ns) in [(&first, here), (&second, there)] {
                    let answer = get_ok(url).await.unwrap();
                    let pod = pod_of(ns, "hello").await.metadata.name.unwrap();
                    assert!(answer.contains(&pod), "{answer} isn't from {pod}");
                }
                // Pods reach each other across nodes: a client on each of them.
                let node = pod_of(there, "hello").await.spec.unwrap().node_name.unwrap();
                let other = if node == "node-0" { "node-1" } else { "node-0" };
                cordon(there, &node, true).await;
                let url = format!("http://hello.{}.svc.cluster.local/?name={other}", there.name);
                let answer = get_from_pod(there, &url).await;
                assert!(answer.contains(&format!("Hello, {other}!")), "{answer}");
                cordon(there, &node, false).await;
            })
            .await;
        })
        .await;
    })
    .await;
}

/// Keeps new pods off a node, or lets them on it again.
async fn cordon(ns: &TestNamespace, node: &str, off: bool) {
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(ns.client.clone());
    let change = serde_json::json!({"spec": {"unschedulable": off}});
    let change = kube::api::Patch::Merge(change);
    nodes.patch(node, &kube::api::PatchParams::default(), &change).await.unwrap();
}
