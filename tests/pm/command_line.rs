//! `oprc` with PM, CRM and a real cluster.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use oprc_tests::{
    HELLO, TestNamespace,
    crm::{Crm, Options},
    eventually,
    fixture::address,
    http::get_ok,
    in_namespace,
    pm::{ADMIN, Pm, ROLLOUT_TIMEOUT, Setup},
};
use serde_json::Value;
use tempfile::TempDir;

/// `oprc` with a context of its own.
pub(crate) struct Oprc {
    folder: TempDir,
}

impl Oprc {
    /// The namespace is in the cluster `east`.
    pub(crate) fn new(pm: &Pm, ns: &TestNamespace) -> Self {
        let oprc = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(oprc.file("token"), format!("{ADMIN}\n")).unwrap();
        let token = oprc.file("token");
        oprc.ok(&["context", "set", "t", "--server", &pm.url, "--token-file", path(&token)]);
        oprc.add_cluster("east", ns);
        oprc
    }

    /// Gives it access to the cluster of a namespace.
    pub(crate) fn add_cluster(&self, name: &str, ns: &TestNamespace) {
        let kubeconfig = ns.cluster.kubeconfig();
        let kubeconfig = path(&kubeconfig);
        self.ok(&["context", "set", "t", "--cluster", name, "--kubeconfig", kubeconfig]);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.file(name), text).unwrap();
        path(&self.file(name)).to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(oprc_tests::program("oprc"));
        command.args(arguments).env("OPRC_CONFIG", self.file("config.yaml")).env_remove("NO_COLOR");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The output of a command that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {stderr}");
        let stdout = String::from_utf8(done.stdout).unwrap();
        // No colours without a terminal.
        assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "{stdout}{stderr}");
        stdout
    }

    /// Like [`Self::ok`] with retries, because kube-proxy programs functions asynchronously.
    async fn eventually_ok(&self, arguments: &[&str]) -> String {
        eventually("a response", ROLLOUT_TIMEOUT, || async {
            let done = self.run(arguments);
            let text_of = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
            if done.status.success() {
                Ok(text_of(&done.stdout))
            } else {
                Err(text_of(&done.stderr))
            }
        })
        .await
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    /// The output of a stream, with more time until it contains `expected`: connecting takes some of
    /// it.
    fn output_until(&self, arguments: &[&str], expected: &str) -> String {
        let mut stdout = String::new();
        for time in ["1s", "10s", "60s"] {
            stdout = self.ok(&[arguments, &["--for", time, "-o", "json"]].concat());
            if stdout.contains(expected) {
                break;
            }
        }
        stdout
    }

    /// The error of a command that must exit with this code.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        stderr
    }
}

fn path(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// Kills all pods of a class, and waits until none of them exists.
async fn replace_pods(ns: &TestNamespace, class: &str) {
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let own = ListParams::default().labels(&format!("oaas.io/owner={class}"));
    let uids = async || {
        let pods = api.list(&own).await.unwrap();
        pods.iter().filter_map(ResourceExt::uid).collect::<BTreeSet<_>>()
    };
    let before = uids().await;
    assert!(!before.is_empty());
    api.delete_collection(&DeleteParams::default().grace_period(0), &own).await.unwrap();
    eventually("other pods", ROLLOUT_TIMEOUT, || async {
        let after = uids().await;
        if after.is_disjoint(&before) { Ok(()) } else { Err(format!("{after:?}")) }
    })
    .await;
}

fn package(version: &str, image: &str) -> String {
    format!(
        "name: sample\nversion: {version}\n\
         functions:\n- key: greet\n  provision:\n    deployment:\n      image: {image}\n      \
         pullPolicy: Never\n      env: {{DRAIN_MS: '0', MARK: '{version}'}}\n      \
         healthCheck: {{path: /healthz, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 100}}\n\
         classes:\n- key: Sample\n  functions:\n  - {{name: hello, function: greet, defaultRoute: true}}\n\
         deployments:\n- {{key: shop, class: Sample, options: {{progressDeadlineSeconds: 120}}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_deploys_invokes_updates_and_deletes() {
    in_namespace(async |ns| {
        let crm = Crm::start(ns, &Options::default()).await;
        let pm = Pm::start(&Setup::of([("east", crm.url.as_str())])).await;
        pm.wait_for_cluster("east", "HEALTHY").await;
        let oprc = Oprc::new(&pm, ns);
        let one = oprc.write("one.yaml", &package("1.0.0", HELLO));
        let two = oprc.write("two.yaml", &package("2.0.0", HELLO));
        let bad = oprc.write("bad.yaml", &package("3.0.0", "oprc.local/none:1"));

        oprc.ok(&["package", "validate", &one]);
        assert_eq!(oprc.json(&["package", "validate", &one])[0]["valid"], true);
        assert_eq!(oprc.json(&["plan", &one])[0]["version"], "1.0.0");
        assert!(oprc.ok(&["deploy", &one, "--dry-run"]).contains("east: Sample"));
        assert_eq!(oprc.json(&["package", "list"]), serde_json::json!([]));
        oprc.ok(&["package", "apply", &one]);
        assert!(oprc.ok(&["package", "list"]).contains("sample"));
        assert_eq!(oprc.json(&["package", "list"])[0]["latest"], "1.0.0");
        assert_eq!(oprc.ok(&["package", "list", "-o", "name"]), "sample\n");
        let kept = oprc.write("kept.yaml", &oprc.ok(&["package", "get", "sample"]));
        oprc.ok(&["package", "validate", &kept]);
        assert_eq!(oprc.json(&["package", "history", "sample"])[0]["version"], "1.0.0");
        assert_eq!(oprc.json(&["class", "get", "sample.Sample"])["key"], "Sample");
        let plan = oprc.ok(&["plan", "sample"]);
        assert!(plan.contains("east: Sample"), "{plan}");
        assert_eq!(oprc.json(&["plan", "sample"])[0]["units"][0]["cluster"], "east");

        // It waits, and prints the URLs.
        let stdout = oprc.ok(&["deploy", "sample"]);
        assert!(stdout.contains("greet") && stdout.contains("http://"), "{stdout}");
        let status = oprc.ok(&["status", "shop", "--pods"]);
        for part in ["shop", "RUNNING", "cluster east", "class Sample", "function greet", "pod "] {
            assert!(status.contains(part), "{part}: {status}");
        }
        let greeted = oprc.eventually_ok(&["invoke", "shop", "--path", "/?name=you"]).await;
        assert!(greeted.contains("Hello, you!"), "{greeted}");
        let greeted = oprc.ok(&["invoke", "shop", "hello"]);
        assert!(greeted.contains("Hello"), "{greeted}");
        assert!(oprc.ok(&["logs", "shop", "greet"]).contains("listening on"));
        let functions = oprc.json(&["function", "list", "--package", "sample"]);
        assert_eq!(functions[0]["status"][0]["condition"], "RUNNING", "{functions}");

        // No differences, then some.
        oprc.ok(&["diff", "sample@1.0.0"]);
        let differs = oprc.run(&["diff", &two]);
        assert_eq!(differs.status.code(), Some(1));
        let differs = String::from_utf8_lossy(&differs.stdout).into_owned();
        assert!(differs.contains("+++ unit shop.Sample") && differs.contains("2.0.0"), "{differs}");
        // Differences are shown even if the version is already published.
        let same = oprc.write("same.yaml", &package("1.0.0", "oprc.local/other:1"));
        let differs = oprc.run(&["diff", &same]);
        assert_eq!(differs.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&differs.stdout).contains("oprc.local/other:1"));
        oprc.ok(&["deploy", &two]);
        assert_eq!(oprc.json(&["status", "shop"])["plan"]["version"], "2.0.0");
        oprc.ok(&["rollback", "shop"]);
        assert_eq!(oprc.json(&["status", "shop"])["plan"]["version"], "1.0.0");
        assert_eq!(oprc.json(&["status", "shop", "--history"]).as_array().unwrap().len(), 3);

        // It fails with the reason; rolled back by hand.
        let stderr = oprc.fails(1, &["deploy", &bad]);
        assert!(stderr.contains("none:1") || stderr.contains("image"), "{stderr}");
        oprc.ok(&["rollback", "shop"]);

        oprc.ok(&["check", "--no-clusters"]);
        let checks = oprc.json(&["check"]);
        assert!(checks.as_array().unwrap().iter().all(|it| it["result"] != "error"), "{checks}");
        oprc.ok(&["cluster", "health"]);
        assert_eq!(oprc.json(&["cluster", "list"])[0]["name"], "east");
        let stderr = oprc.fails(3, &["package", "delete", "sample@1.0.0"]);
        assert!(stderr.contains("shop"), "{stderr}");
        oprc.fails(3, &["status", "nothing"]);
        oprc.fails(2, &["deploy", "none.yaml"]);
        let events = oprc.output_until(&["events", "--since", "0"], "deployment.condition");
        let events: Vec<Value> =
            events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(events.iter().any(|it| it["type"] == "deployment.condition"), "{events:?}");

        // JSON output.
        let output = oprc.run(&["diff", &two, "-o", "json"]);
        assert_eq!(output.status.code(), Some(1));
        let output: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output[0]["object"], "deployment shop", "{output}");
        assert!(output[0]["current"] != output[0]["desired"], "{output}");
        let output = oprc.output_until(&["watch", "shop"], "RUNNING");
        let output: Value = serde_json::from_str(output.lines().next().unwrap()).unwrap();
        assert_eq!(output["condition"], "RUNNING", "{output}");
        oprc.fails(2, &["logs", "shop", "--kubeconfig", "none"]);

        // A closed pipe is not an error.
        let unread = |arguments: &[&str]| {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let done = oprc.command(arguments).stdout(writer).output().unwrap();
            (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
        };
        assert_eq!(unread(&["status", "-o", "json"]), (Some(0), String::new()));
        // The exit code is kept.
        assert_eq!(unread(&["diff", &two]).0, Some(1));

        oprc.ok(&["delete", "shop"]);
        assert_eq!(oprc.json(&["status"]), serde_json::json!([]));
        oprc.ok(&["package", "delete", "sample", "--all"]);
        assert_eq!(oprc.json(&["package", "list"]), serde_json::json!([]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invokes_a_knative_function() {
    in_namespace(async |ns| {
        let crm = Crm::start(ns, &Options::default()).await;
        let pm = Pm::start(&Setup::of([("east", crm.url.as_str())])).await;
        pm.wait_for_cluster("east", "HEALTHY").await;
        let oprc = Oprc::new(&pm, ns);
        let text = format!(
            "name: lazy\nversion: 1.0.0\n\
             functions:\n- key: greet\n  provision:\n    knative:\n      image: {HELLO}\n      \
             pullPolicy: Never\n      env: {{DRAIN_MS: '0'}}\n\
             classes:\n- key: Lazy\n  functions:\n  \
             - {{name: inner, function: greet}}\n  \
             - {{name: outer, function: greet, access: PUBLIC}}\n\
             deployments:\n- {{key: lazy, class: Lazy}}\n"
        );
        oprc.ok(&["deploy", &oprc.write("lazy.yaml", &text)]);
        let status = oprc.json(&["status", "lazy"]);
        let function = &status["status"]["units"][0]["functions"][0];
        assert_ne!(function["invocationUrl"], function["clusterUrl"], "{function}");
        // The public host has no DNS entry here.
        for name in ["inner", "outer"] {
            let greeted = oprc.ok(&["invoke", "lazy", name, "--path", "/?name=you"]);
            assert!(greeted.contains("Hello, you!"), "{greeted}");
        }
        oprc.ok(&["delete", "lazy"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adopts_all_orphans_with_one_command() {
    in_namespace(async |ns| {
        let crm = Crm::start(ns, &Options::default()).await;
        let pm = Pm::start(&Setup::of([("east", crm.url.as_str())])).await;
        let oprc = Oprc::new(&pm, ns);
        let one = oprc.write("one.yaml", &package("1.0.0", HELLO));
        oprc.ok(&["deploy", &one]);
        let pm = pm.restart_without_store().await;
        let oprc = Oprc::new(&pm, ns);
        pm.wait_for_cluster("east", "HEALTHY").await;
        assert_eq!(oprc.json(&["orphan", "list"])[0]["id"], "shop.Sample..east");
        oprc.ok(&["orphan", "adopt", "--all"]);
        assert_eq!(oprc.json(&["orphan", "list"]), serde_json::json!([]));
        oprc.ok(&["watch", "shop", "--until-running", "--for", "1m"]);
        // Its package is lost, so the function is called by its key.
        assert!(oprc.eventually_ok(&["invoke", "shop", "greet"]).await.contains("Hello"));
        oprc.ok(&["delete", "shop"]);
    })
    .await;
}

/// A class with state, inheritance, and a macro.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_the_example_packages_unchanged() {
    in_namespace(async |ns| {
        let crm = Crm::start(ns, &Options::default()).await;
        let pm = Pm::start(&Setup::of([("east", crm.url.as_str())])).await;
        pm.wait_for_cluster("east", "HEALTHY").await;
        let oprc = Oprc::new(&pm, ns);
        let example = |name: &str| {
            path(&oprc_tests::workspace().join(format!("examples/packages/{name}.yaml"))).to_owned()
        };
        oprc.ok(&["deploy", &example("counter")]);
        oprc.ok(&["object", "put", "counter", "visits", "-d", r#"{"value": 0}"#]);
        for expected in ["1", "2"] {
            let call = ["invoke", "counter", "increment", "--object", "visits"];
            assert_eq!(oprc.ok(&call), expected);
        }
        assert_eq!(oprc.ok(&["invoke", "counter", "get", "--object", "visits"]), "2");
        // What the grid reports comes through CRM and PM.
        let grid = oprc.json(&["grid", "status", "counter"]);
        assert_eq!((&grid["nodes"][0]["status"], &grid["ready"]), (&"active".into(), &true.into()));
        assert_eq!(grid["collections"][0]["objects"], 1, "{grid}");
        let status = oprc.ok(&["status", "counter"]);
        assert!(status.contains("1/1 nodes ready"), "{status}");
        let stderr = oprc.fails(3, &["invoke", "counter", "announce"]);
        assert!(stderr.contains("PRIVATE"), "{stderr}");

        // All pods are lost while neither CRM nor PM runs.
        crm.stop().await;
        pm.kill();
        replace_pods(ns, "counter--counter").await;
        let grid = address(ns, "counter--counter-odgm-svc").await;
        let url = format!("{grid}:8081/objects/visits");
        let object = eventually("the object", ROLLOUT_TIMEOUT, || get_ok(&url)).await;
        let object: Value = serde_json::from_str(&object).unwrap();
        assert_eq!(object["state"]["value"], 2, "{object}");
        let crm = Crm::start(ns, &Options::default()).await;
        let pm = pm.restart_as(Setup::of([("east", crm.url.as_str())])).await;
        pm.wait_for_cluster("east", "HEALTHY").await;
        let oprc = Oprc::new(&pm, ns);
        let call = ["invoke", "counter", "increment", "--object", "visits"];
        assert_eq!(oprc.eventually_ok(&call).await, "3");
        oprc.ok(&["delete", "counter"]);

        oprc.ok(&["deploy", &example("shapes")]);
        let area = oprc.eventually_ok(&["invoke", "shapes", "area", "--class", "Circle"]).await;
        assert!(area.contains("Hello"), "{area}");
        let data = r#"{"object": {"label": "a"}, "args": {"factor": 2}}"#;
        let call = ["invoke", "shapes", "scaled-area", "--class", "Circle"];
        let area = oprc.eventually_ok(&[&call[..], &["-d", data]].concat()).await;
        assert!(area.contains("Hello"), "{area}");
        let stderr = oprc.fails(2, &call);
        assert!(stderr.contains("$args.factor"), "{stderr}");
        oprc.ok(&["delete", "shapes"]);
    })
    .await;
}
