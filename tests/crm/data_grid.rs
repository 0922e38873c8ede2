//! Variables and creation of functions with a data grid.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, ResourceExt as _, api::ListParams};
use oprc_crm::kinds::{DEPLOYMENT, Kind};
use oprc_tests::{
    TestNamespace,
    class::{classes, objects, variable},
};
use oprc_unit::names;

/// Asserts that the functions of a class know its data grid, and started only when enough of its
/// nodes ran: one for a Deployment; for others a majority where all collections are under consensus,
/// otherwise all.
pub(crate) async fn assert_after_grid(
    ns: &TestNamespace,
    class: &str,
    functions: &[(Kind, String)],
) {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let own = format!("oaas.io/owner={class},oaas.io/component=odgm");
    let nodes = pods.list(&ListParams::default().labels(&own)).await.unwrap().items;
    let mut started: Vec<_> =
        nodes.iter().map(|it| start_of(it, "odgm").unwrap_or_else(|| panic!("{it:?}"))).collect();
    started.sort();
    let status = classes(ns).get(class).await.unwrap().status.unwrap().odgm.unwrap();
    assert_eq!(usize::try_from(status.replicas).unwrap(), started.len());
    let consensus = status.collections.iter().all(|it| it.shard_type == "raft");
    let needed = if consensus { started.len() / 2 + 1 } else { started.len() };
    for (kind, name) in functions {
        // The init container of a Deployment waits for one node.
        let needed = if *kind == DEPLOYMENT { 1 } else { needed };
        let ready_after = &started[needed - 1];
        let function = objects(ns, kind).get(name).await.unwrap();
        let key = &function.labels()["oaas.io/function"];
        let own = format!("oaas.io/owner={class},oaas.io/function={key}");
        let own = pods.list(&ListParams::default().labels(&own)).await.unwrap().items;
        let starts: Vec<_> = own.iter().filter_map(|pod| start_of(pod, "function")).collect();
        // Jobs and Knative's revisions may have no pod any more.
        let starts =
            if starts.is_empty() { vec![function.creation_timestamp().unwrap()] } else { starts };
        let early = starts.iter().find(|it| *it < ready_after);
        assert!(early.is_none(), "{kind} {name} of {early:?}, but nodes of {started:?}");
        let pod = function.data.pointer("/spec/template/spec").unwrap();
        let service = format!("{}:8081", names::odgm_service(&names::base(class)));
        let endpoint = format!("http://{service}");
        for (variable_name, expected) in [
            ("ODGM_ENABLED", Some("true")),
            ("ODGM_SERVICE", Some(service.as_str())),
            ("ODGM_ENDPOINT", Some(endpoint.as_str())),
            ("ODGM_COLLECTIONS", Some("orders")),
            ("ODGM_NODE_ROLE", Some("client")),
            ("ODGM_CLUSTER_ID", None),
            ("ODGM_ACCESS_MODE", None),
            ("ODGM_CACHING_STRATEGY", None),
        ] {
            let given = variable(pod, variable_name);
            let matches = given.is_some_and(|given| expected.is_none_or(|it| it == given));
            assert!(matches, "{variable_name} of {kind} {name} is {given:?}");
        }
    }
}

/// When a running container was started.
fn start_of(pod: &Pod, container: &str) -> Option<Time> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|it| it.name == container)?;
    status.state.as_ref()?.running.as_ref()?.started_at.clone()
}
