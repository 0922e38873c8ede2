//! Two clusters, each with a CRM of its own.

use kube::{ResourceExt as _, api::ListParams};
use oprc_tests::{
    TestNamespace,
    class::classes,
    crm::{Crm, Options},
    etcd::free_port,
    eventually, in_namespace, in_namespace_of,
    pm::ROLLOUT_TIMEOUT,
    second,
};

/// A cluster's namespace with its CRM.
pub(crate) struct TestCluster<'a> {
    pub(crate) ns: &'a TestNamespace,
    pub(crate) crm: Crm,
}

impl TestCluster<'_> {
    /// Ids of classes that aren't terminating, and the marks of their functions.
    async fn classes(&self) -> Result<Vec<(String, String)>, String> {
        let all = classes(self.ns).list(&ListParams::default()).await;
        let all = all.map_err(|error| error.to_string())?;
        let mut found: Vec<_> = all
            .iter()
            .filter(|class| class.metadata.deletion_timestamp.is_none())
            .map(|class| {
                let id = class.annotations().get("oaas.io/deployment-id").unwrap().clone();
                let spec = serde_json::to_value(&class.spec).unwrap();
                let env = spec.pointer("/functions/0/provision/env").and_then(|it| it.as_array());
                let mark = env.into_iter().flatten().find(|it| it["name"] == "MARK");
                (id, mark.and_then(|it| it["value"].as_str()).unwrap_or_default().to_owned())
            })
            .collect();
        found.sort();
        Ok(found)
    }

    /// Waits until exactly these classes exist among those with the prefix.
    pub(crate) async fn exactly(&self, prefix: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> =
            expected.iter().map(|(id, mark)| ((*id).to_owned(), (*mark).to_owned())).collect();
        eventually("the expected classes", ROLLOUT_TIMEOUT, || async {
            let mut found = self.classes().await?;
            found.retain(|(id, _)| id.starts_with(prefix));
            if found == expected { Ok(()) } else { Err(format!("{found:?} for {expected:?}")) }
        })
        .await;
    }
}

pub(crate) async fn with_two_clusters(test: impl AsyncFnOnce(TestCluster<'_>, TestCluster<'_>)) {
    in_namespace(async |one: &TestNamespace| {
        in_namespace_of(second().await, async |other: &TestNamespace| {
            let options = Options::default();
            let east = TestCluster { ns: one, crm: Crm::start(one, &options).await };
            // A fixed port, because it may be restarted.
            let options = options.with("HTTP_PORT", &free_port().to_string());
            let west = TestCluster { ns: other, crm: Crm::start(other, &options).await };
            Box::pin(test(east, west)).await;
        })
        .await;
    })
    .await;
}
