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
                    let body = get_ok(url).await.unwrap();
                    let pod = pod_of(ns, "hello").await.metadata.name.unwrap();
                    assert!(body.contains(&pod), "{body} isn't from {pod}");
                }
                // Pods reach each other across nodes: the client runs on the other node.
                let node = pod_of(there, "hello").await.spec.unwrap().node_name.unwrap();
                let other = if node == "node-0" { "node-1" } else { "node-0" };
                cordon(there, &node, true).await;
                let url = format!("http://hello.{}.svc.cluster.local/?name={other}", there.name);
                let body = get_from_pod(there, &url).await;
                assert!(body.contains(&format!("Hello, {other}!")), "{body}");
                cordon(there, &node, false).await;
            })
            .await;
        })
        .await;
    })
    .await;
}

/// Cordons or uncordons a node.
async fn cordon(ns: &TestNamespace, node: &str, unschedulable: bool) {
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(ns.client.clone());
    let change = serde_json::json!({"spec": {"unschedulable": unschedulable}});
    let change = kube::api::Patch::Merge(change);
    nodes.patch(node, &kube::api::PatchParams::default(), &change).await.unwrap();
}
