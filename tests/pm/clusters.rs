//! Deployments on two clusters, one of which may be unreachable.

use std::time::Duration;

use hyper::Method;
use oprc_tests::{
    class::classes,
    crm::{Crm, Options},
    eventually, in_namespace,
    pm::{Pm, ROLLOUT_TIMEOUT, Setup, deployment, package},
};
use serde_json::{Value, json};

use crate::two_clusters::{TestCluster, with_two_clusters};

fn setup(east: &TestCluster<'_>, west: &TestCluster<'_>) -> Setup {
    Setup::of([("east", east.crm.url.as_str()), ("west", west.crm.url.as_str())])
}

fn both(key: &str, version: &str, policy: &str) -> Value {
    let mut both = deployment(key, version);
    both["targetClusters"] = json!(["east", "west"]);
    both["policy"] = policy.into();
    both
}

#[tokio::test]
async fn deploys_to_two_clusters_and_deletes_from_both() {
    with_two_clusters(async |east, west| {
        let pm = Pm::start(&setup(&east, &west)).await;
        for version in ["1.0.0", "2.0.0"] {
            pm.publish(&package(version)).await;
        }
        let created = pm.deploy(&both("shop", "1.0.0", "BEST_EFFORT")).await.unwrap();
        assert_eq!(created["plan"]["units"].as_array().unwrap().len(), 2, "{created}");
        let repeated = pm.deploy(&both("shop", "1.0.0", "BEST_EFFORT")).await.unwrap();
        assert_eq!(repeated["revision"], created["revision"], "nothing has changed");
        let status = pm.wait_for_condition("shop", "RUNNING").await;
        for unit in status["units"].as_array().unwrap() {
            let url = unit["functions"][0]["invocationUrl"].as_str().unwrap();
            assert!(url.starts_with("http://"), "{unit}");
        }
        east.exactly("shop.", &[("shop.Sample..east", "1.0.0")]).await;
        west.exactly("shop.", &[("shop.Sample..west", "1.0.0")]).await;
        // The status in the package's functions.
        let functions = pm.get("/functions?package=sample").await;
        let statuses = functions["items"][0]["status"].as_array().unwrap();
        assert_eq!(statuses.len(), 2, "{functions}");
        assert!(statuses.iter().all(|it| it["condition"] == "RUNNING"), "{functions}");
        let used = pm.call(Method::DELETE, "/packages/sample/versions/1.0.0", None).await;
        assert!(used.unwrap_err().contains("deployment shop"));

        pm.deploy(&both("shop", "2.0.0", "ALL_OR_NOTHING")).await.unwrap();
        pm.wait_for_condition("shop", "RUNNING").await;
        east.exactly("shop.", &[("shop.Sample..east", "2.0.0")]).await;
        west.exactly("shop.", &[("shop.Sample..west", "2.0.0")]).await;

        let back = json!({});
        pm.call(Method::POST, "/deployments/shop/rollback", Some(&back)).await.unwrap();
        pm.wait_for_condition("shop", "RUNNING").await;
        west.exactly("shop.", &[("shop.Sample..west", "1.0.0")]).await;
        let history = pm.get("/deployments/shop/history").await;
        assert_eq!(history["items"].as_array().unwrap().len(), 3, "{history}");

        pm.call(Method::DELETE, "/deployments/shop", None).await.unwrap();
        pm.wait_deleted("shop").await;
        east.exactly("", &[]).await;
        west.exactly("", &[]).await;
    })
    .await;
}

#[tokio::test]
async fn best_effort_is_partial_while_a_cluster_is_unreachable_and_catches_up() {
    with_two_clusters(async |east, west| {
        let pm = Pm::start(&setup(&east, &west)).await;
        for version in ["1.0.0", "2.0.0"] {
            pm.publish(&package(version)).await;
        }
        pm.deploy(&both("shop", "1.0.0", "BEST_EFFORT")).await.unwrap();
        pm.wait_for_condition("shop", "RUNNING").await;
        let TestCluster { ns, crm } = west;
        let address = crm.url.trim_start_matches("http://").to_owned();
        crm.stop().await;
        pm.wait_for_cluster("west", "UNREACHABLE").await;
        pm.deploy(&both("shop", "2.0.0", "BEST_EFFORT")).await.unwrap();
        let partial = |status: &Value| {
            status["condition"] == "PARTIAL"
                && status["units"].as_array().is_some_and(|units| {
                    units.iter().any(|it| it["current"] == true && it["condition"] == "RUNNING")
                })
        };
        let status = pm.wait_for("shop", "PARTIAL", partial).await;
        assert!(status["message"].as_str().unwrap().contains("west"), "{status}");
        assert_eq!((&status["available"], &status["unitsTotal"]), (&json!(1), &json!(2)));
        east.exactly("shop.", &[("shop.Sample..east", "2.0.0")]).await;

        // It restarts with the same address.
        let port = address.rsplit_once(':').unwrap().1;
        let options = Options::default().with("HTTP_PORT", port);
        let west = TestCluster { ns, crm: Crm::start(ns, &options).await };
        pm.wait_for_condition("shop", "RUNNING").await;
        west.exactly("shop.", &[("shop.Sample..west", "2.0.0")]).await;
    })
    .await;
}

#[tokio::test]
async fn all_or_nothing_rolls_back_completely() {
    with_two_clusters(async |east, west| {
        let setup = setup(&east, &west);
        let pm = Pm::start(&setup).await;
        for version in ["1.0.0", "2.0.0"] {
            pm.publish(&package(version)).await;
        }
        for cluster in ["east", "west"] {
            pm.wait_for_cluster(cluster, "HEALTHY").await;
        }
        pm.deploy(&both("old", "1.0.0", "ALL_OR_NOTHING")).await.unwrap();
        pm.wait_for_condition("old", "RUNNING").await;
        let address = west.crm.url.clone();
        west.crm.stop().await;
        // Set only now: rollouts before need more time.
        let short_deadline = setup.with("OPRC_PM_DEPLOYMENTS_UNREACHABLE_DEADLINE", "15s");
        let pm = pm.restart_as(short_deadline).await;
        pm.wait_for_cluster("east", "HEALTHY").await;
        pm.wait_for_cluster("west", "UNREACHABLE").await;
        pm.deploy(&both("new", "1.0.0", "ALL_OR_NOTHING")).await.unwrap();
        pm.deploy(&both("old", "2.0.0", "ALL_OR_NOTHING")).await.unwrap();
        let going =
            |status: &Value| status["condition"].as_str().is_some_and(|it| it.starts_with("ROLL"));
        let status = pm.wait_for("new", "on its way back", going).await;
        assert!(status["message"].as_str().unwrap().contains("west is unreachable"), "{status}");
        pm.wait_for("old", "on its way back", going).await;
        east.exactly("", &[("old.Sample..east", "1.0.0")]).await;
        // The rollback completes only when the cluster is reachable.
        let port = address.rsplit_once(':').unwrap().1;
        let options = Options::default().with("HTTP_PORT", port);
        let west = TestCluster { ns: west.ns, crm: Crm::start(west.ns, &options).await };
        for key in ["new", "old"] {
            let status = pm.wait_for_condition(key, "ROLLED_BACK").await;
            assert!(
                status["message"].as_str().unwrap().contains("west is unreachable"),
                "{status}"
            );
        }
        east.exactly("", &[("old.Sample..east", "1.0.0")]).await;
        west.exactly("", &[("old.Sample..west", "1.0.0")]).await;
        let history = pm.get("/deployments/old/history").await;
        let outcome = history["items"][0]["outcome"].as_str().unwrap();
        assert!(outcome.starts_with("rolled back: "), "{history}");
    })
    .await;
}

#[tokio::test]
async fn units_on_an_unconfigured_cluster_are_reported_until_it_is_forgotten() {
    with_two_clusters(async |east, west| {
        let pm = Pm::start(&setup(&east, &west)).await;
        pm.publish(&package("1.0.0")).await;
        pm.deploy(&both("shop", "1.0.0", "BEST_EFFORT")).await.unwrap();
        pm.wait_for_condition("shop", "RUNNING").await;
        let less = Setup::of([("east", east.crm.url.as_str())]);
        let pm = pm.restart_as(less).await;
        let status = pm.wait_for_condition("shop", "PARTIAL").await;
        assert!(status["message"].as_str().unwrap().contains("no longer configured"), "{status}");
        let clusters = pm.get("/clusters").await;
        let removed = clusters["items"].as_array().unwrap().iter().find(|it| it["name"] == "west");
        assert_eq!(removed.unwrap()["units"], 1, "{clusters}");
        pm.call(Method::DELETE, "/deployments/shop", None).await.unwrap();
        east.exactly("", &[]).await;
        pm.wait_for_condition("shop", "DELETING").await;
        west.exactly("", &[("shop.Sample..west", "1.0.0")]).await;
        // It is configured again, and the deletion completes.
        let pm = pm.restart_as(setup(&east, &west)).await;
        pm.wait_deleted("shop").await;
        west.exactly("", &[]).await;

        // It is removed for good.
        let mut desired = deployment("bank", "1.0.0");
        desired["targetClusters"] = json!(["west"]);
        pm.deploy(&desired).await.unwrap();
        pm.wait_for_condition("bank", "RUNNING").await;
        let forget_cluster = async |pm: &Pm| pm.call(Method::DELETE, "/clusters/west", None).await;
        assert!(forget_cluster(&pm).await.unwrap_err().contains("CONFIGURED"));
        let pm = pm.restart_as(Setup::of([("east", east.crm.url.as_str())])).await;
        pm.call(Method::DELETE, "/deployments/bank", None).await.unwrap();
        forget_cluster(&pm).await.unwrap();
        pm.wait_deleted("bank").await;
        assert!(forget_cluster(&pm).await.unwrap_err().starts_with("404"));
        let pm = pm.restart_as(setup(&east, &west)).await;
        pm.wait_for_cluster("west", "HEALTHY").await;
        assert_eq!(pm.get("/orphans").await["items"][0]["id"], "bank.Sample..west");
    })
    .await;
}

#[tokio::test]
async fn a_hundred_updates_leave_only_the_units_of_the_last() {
    with_two_clusters(async |east, west| {
        let pm = Pm::start(&setup(&east, &west)).await;
        for version in ["1.0.0", "2.0.0"] {
            pm.publish(&package(version)).await;
        }
        let places = [json!(["east"]), json!(["east", "west"]), json!(["west"])];
        for round in 0..100 {
            let version = if round % 2 == 0 { "1.0.0" } else { "2.0.0" };
            let mut desired = deployment("shop", version);
            desired["targetClusters"] = places[round % 3].clone();
            desired["targetEnvs"] = if round % 5 == 0 { json!(["dev"]) } else { json!([]) };
            pm.deploy(&desired).await.unwrap();
        }
        // Round 99 deploys 2.0.0 to east only.
        let status = pm.wait_for_condition("shop", "RUNNING").await;
        assert_eq!(status["unitsTotal"], 1, "{status}");
        east.exactly("", &[("shop.Sample..east", "2.0.0")]).await;
        west.exactly("", &[]).await;
        eventually("only the last unit, and no orphan", ROLLOUT_TIMEOUT, || async {
            let units = pm.get("/deployments/shop/status").await["units"].clone();
            let count = units.as_array().map(Vec::len);
            let orphans = pm.get("/orphans").await["items"].clone();
            let converged = count == Some(1) && orphans == json!([]);
            if converged { Ok(()) } else { Err(format!("{units}, orphans {orphans}")) }
        })
        .await;
        let history = pm.get("/deployments/shop/history").await;
        assert_eq!(history["items"].as_array().unwrap().len(), 50);
    })
    .await;
}

#[tokio::test]
async fn a_second_pm_on_the_same_etcd_exits() {
    in_namespace(async |ns| {
        let crm = Crm::start(ns, &Options::default()).await;
        let etcd = oprc_tests::etcd::Etcd::start();
        // Long enough for a busy machine.
        let setup = Setup::of([("east", crm.url.as_str())])
            .in_etcd(&etcd.endpoint(), "oprc")
            .with("OPRC_PM_STORE_ETCD_LEASE", "60s");
        let pm = Pm::start(&setup).await;
        let mut second = tokio::process::Command::new(oprc_tests::program("oprc-pm"));
        let output = second
            .args(["--server-port=0", "--server-host=127.0.0.1", "--security-auth=off"])
            .args(["--store-kind=etcd", "--store-etcd-root=oprc"])
            .arg(format!("--store-etcd-endpoints={}", etcd.endpoint()))
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_mins(1), output).await;
        let output = output.expect("the second PM didn't exit").unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("is owned by"), "{stderr}");
        // The first PM continues.
        pm.publish(&package("1.0.0")).await;
        pm.deploy(&deployment("shop", "1.0.0")).await.unwrap();
        pm.wait_for_condition("shop", "RUNNING").await;
        let created = classes(ns).list(&kube::api::ListParams::default()).await.unwrap();
        assert_eq!(created.items.len(), 1);
        pm.call(Method::DELETE, "/deployments/shop", None).await.unwrap();
        pm.wait_deleted("shop").await;
    })
    .await;
}
