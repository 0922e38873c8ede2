//! Objects and data grids: `oprc invoke --object`, `oprc object` and `oprc grid`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    fake_grid::FakeGrid,
    fake_pm::{self, Responses},
    fixtures, oprc,
};

/// A data grid that is reached through the API server of the cluster `east`.
struct Setup {
    grid: FakeGrid,
    pm: String,
    folder: TempDir,
}

impl Setup {
    fn new() -> Self {
        Self::with(fixtures::all())
    }

    fn with(responses: Responses) -> Self {
        let (grid, folder) = (FakeGrid::new(), tempfile::tempdir().unwrap());
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": grid.start()}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        });
        fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { grid, pm: fake_pm::start(responses), folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut oprc = oprc();
        oprc.args(arguments).args(["--server", &self.pm]);
        oprc.arg("--kubeconfig").arg(self.folder.path().join("kubeconfig")).stdin(Stdio::null());
        oprc
    }

    /// Exit code, standard output and error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let done = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {stdout}{stderr}");
        stdout
    }

    fn fails(&self, expected: i32, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!(code, Some(expected), "{arguments:?}: {stdout}{stderr}");
        stderr
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.grid.lock().requests)
    }
}

#[test]
fn invokes_a_method_of_an_object() {
    let setup = Setup::new();
    for name in ["counter", "Counter", "counter.Counter", "counter.Counter..east"] {
        setup.grid.lock().objects.insert("a".to_owned(), (json!({"value": 1}), 1));
        let call = ["invoke", name, "increment", "--object", "a", "-d", r#"{"by": 4}"#];
        assert_eq!(setup.ok(&call), "5", "{name}");
        // The default function of the class.
        assert_eq!(setup.ok(&["invoke", name, "--object", "a"]), "6");
    }
    let call = ["invoke", "counter", "increment", "--object", "a b/ü", "--collection", "other"];
    assert_eq!(setup.ok(&call), "1");
    let last = setup.requests().pop().unwrap();
    assert!(last.ends_with("/collections/other/objects/a%20b%2F%C3%BC/increment"), "{last}");
}

#[test]
fn repeats_a_call_until_the_grid_responds_and_counts_once() {
    let setup = Setup::new();
    let down = json!({"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable",
                      "message": "no endpoints available for service \"odgm\""});
    let unavailable = json!({"title": "x", "detail": "no quorum", "reason": "UNAVAILABLE"});
    let unknown = json!({"title": "x", "detail": "timed out", "reason": "UNKNOWN_OUTCOME"});
    setup.grid.lock().failures = vec![(503, down.clone()), (503, unavailable), (504, unknown)];
    let (code, stdout, stderr) = setup.run(&["invoke", "counter", "increment", "--object", "a"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "2"), "{stderr}");
    assert_eq!(stderr.matches("waiting for the data grid: no endpoints").count(), 1, "{stderr}");
    assert_eq!(setup.requests().len(), 4);

    let call = ["invoke", "counter", "increment", "--object", "a", "--idempotency-key", "k"];
    assert_eq!(setup.ok(&call), "3");
    let (_, stdout, stderr) = setup.run(&call);
    assert_eq!(stdout, "3", "the state must be changed once");
    assert!(stderr.contains("earlier call with the same idempotency key"), "{stderr}");

    // A write with a precondition may have been applied.
    setup.requests();
    setup.grid.lock().failures = vec![(503, down)];
    let put = ["object", "put", "counter", "a", "-d", "{}", "--if-match", "e-3"];
    let stderr = setup.fails(4, &put);
    assert!(stderr.contains("hint: `oprc grid status counter`"), "{stderr}");
    assert_eq!(setup.requests().len(), 1);
}

#[test]
fn a_singleton_needs_no_id() {
    let mut responses = fixtures::all();
    let deployment = responses.get_mut("GET /api/v1/deployments/counter").unwrap();
    deployment["plan"]["units"][0]["spec"]["state"] = json!({"state_type": "SINGLETON"});
    let setup = Setup::with(responses);
    assert_eq!(setup.ok(&["invoke", "counter", "increment"]), "1");
    assert_eq!(setup.json(&["object", "get", "counter"])["id"], "singleton");
    setup.ok(&["object", "put", "counter", "-d", r#"{"value": 7}"#]);
    assert_eq!(setup.grid.lock().objects["singleton"].0["value"], 7);

    let setup = Setup::new();
    let stderr = setup.fails(2, &["object", "get", "counter"]);
    assert!(stderr.contains("`oprc object list counter`"), "{stderr}");
}

#[test]
fn errors_say_what_to_do() {
    let setup = Setup::new();
    for (code, arguments, expected) in [
        (
            3,
            &["object", "get", "counter", "x"][..],
            "hint: create it with `oprc object put counter`",
        ),
        (3, &["invoke", "counter", "missing", "--object", "a"], "UNKNOWN_METHOD"),
        (
            2,
            &["invoke", "counter", "increment", "--object", "a", "-d", "{"],
            "--data: the arguments",
        ),
        (2, &["invoke", "counter", "--object", "a", "--path", "/"], "cannot be used with"),
        (2, &["object", "put", "counter", "a", "-d", "[]"], "--data: must be a JSON object"),
        (2, &["object", "put", "counter", "a", "-f", "none.json"], "none.json"),
        (2, &["object", "put", "counter", "-d", "{}", "--if-match", "1"], "needs the id"),
        (
            3,
            &["object", "put", "counter", "a", "-d", "{}", "--if-match", "e-9"],
            "repeat with its ETag",
        ),
        (2, &["object", "get", "counter", "a", "--if-match", "1"], "unexpected argument"),
        (3, &["object", "list", "other"], "no deployment and no deployed class \"other\""),
        (3, &["object", "list", "counter", "--env", "prod"], "no unit that matches"),
        (2, &["grid", "restore", "counter", "/none"], "/none: No such file"),
    ] {
        let stderr = setup.fails(code, arguments);
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    let mut responses = fixtures::all();
    let deployment = responses.get_mut("GET /api/v1/deployments/counter").unwrap();
    deployment["status"]["units"][0].as_object_mut().unwrap().remove("odgm");
    let setup = Setup::with(responses);
    let stderr = setup.fails(3, &["object", "list", "counter"]);
    assert!(stderr.contains("has no data grid; a class needs a stateSpec"), "{stderr}");
}

#[test]
fn reads_and_writes_objects() {
    let setup = Setup::new();
    assert_eq!(
        setup.ok(&["object", "get", "counter", "b"]),
        "ID   ETAG   STATE\nb    e-2    {\"value\":2}\n"
    );
    let expected = json!({"id": "b", "version": 2, "state": {"value": 2}, "etag": "e-2"});
    assert_eq!(setup.json(&["object", "get", "counter", "b"]), expected);
    let resolved = setup.json(&["object", "get", "counter", "b", "--resolve", "owner"]);
    assert_eq!(resolved["resolved"]["owner"]["id"], "ann");

    let put = ["object", "put", "counter", "b", "-d", r#"{"value": 5}"#, "--if-match", "e-2"];
    assert_eq!(setup.json(&put)["version"], 3);
    let mut patch = setup.command(&["object", "patch", "counter", "b", "-o", "name"]);
    let mut patch = patch.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    patch.stdin.take().unwrap().write_all(br#"{"value": 6}"#).unwrap();
    assert_eq!(patch.wait_with_output().unwrap().stdout, b"b\n");
    let file = setup.folder.path().join("state.json");
    fs::write(&file, r#"{"value": 7}"#).unwrap();
    let file = file.to_str().unwrap();
    setup.ok(&["object", "put", "counter", "b", "-f", file, "--create"]);
    assert_eq!(setup.ok(&["object", "put", "counter", "-f", file, "-o", "name"]), "generated\n");
    setup.ok(&["object", "delete", "counter", "b"]);
    setup.fails(3, &["object", "delete", "counter", "b"]);
    let requests: Vec<_> = setup.requests();
    let paths = requests.iter().map(|it| it.replace("/objects", ""));
    assert_eq!(
        paths.collect::<Vec<_>>(),
        [
            "GET /b",
            "GET /b",
            "GET /b?resolve=owner",
            "PUT /b if-match=\"e-2\"",
            "PATCH /b",
            "PUT /b if-none-match=*",
            "POST ",
            "DELETE /b",
            "DELETE /b",
        ]
    );
}

#[test]
fn lists_objects_page_by_page() {
    let setup = Setup::new();
    assert_eq!(setup.ok(&["object", "list", "counter", "-o", "name"]), "a\nb\nc\n");
    assert_eq!(setup.requests(), ["GET /objects?limit=500", "GET /objects?after=b&limit=498"]);
    let listed = setup.json(&["object", "list", "counter", "--prefix", "b"]);
    assert_eq!(listed, json!([{"id": "b", "version": 2, "state": {"value": 2}}]));
    let (_, stdout, stderr) =
        setup.run(&["object", "list", "counter", "--limit", "2", "--no-headers"]);
    assert_eq!(stdout, "a   1   {\"value\":1}\nb   2   {\"value\":2}\n");
    assert!(stderr.contains("continue with --after 'b'"), "{stderr}");
    assert_eq!(setup.ok(&["object", "list", "counter", "--after", "b", "-o", "name"]), "c\n");
}

fn change(kind: &str, id: &str, version: u64) -> String {
    let object = json!({"id": id, "version": version, "state": {"value": version}});
    format!("{}\n", json!({"type": kind, "object": object}))
}

#[test]
fn watches_objects_until_interrupted() {
    let setup = Setup::new();
    let synced = "{\"type\":\"SYNCED\"}\n";
    let error = "{\"type\":\"ERROR\",\"reason\":\"UNAVAILABLE\",\"detail\":\"too slow\"}\n";
    let first = [&change("CREATED", "a", 1), synced, &change("UPDATED", "a", 4), error].concat();
    // After an interruption the stream starts with all objects.
    let second = [&change("CREATED", "a", 5), synced, &change("DELETED", "a", 6)].concat();
    setup.grid.lock().watches = vec![first, second];
    let mut watch = setup.command(&["object", "watch", "counter", "--prefix", "a"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().take(5);
    let lines: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(
        lines,
        [
            "CREATED  a  1  {\"value\":1}",
            "SYNCED",
            "UPDATED  a  4  {\"value\":4}",
            "UPDATED  a  5  {\"value\":5}",
            "DELETED  a",
        ]
    );
    let interrupted = Command::new("kill").args(["-INT", &watch.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    assert!(setup.requests()[0].ends_with("/objects?watch=true&prefix=a"));

    setup.grid.lock().watches = vec![change("CREATED", "a", 1)];
    let watch = ["object", "watch", "counter", "--for", "1s", "-o", "json"];
    let printed: Value = serde_json::from_str(&setup.ok(&watch)).unwrap();
    assert_eq!(printed, serde_json::from_str::<Value>(&change("CREATED", "a", 1)).unwrap());
    let stderr = setup.fails(4, &["object", "watch", "counter", "--for", "1s"]);
    assert!(stderr.contains("no watch is left"), "{stderr}");
}

#[test]
fn lists_retries_and_discards_parked_events() {
    let setup = Setup::new();
    let event = |key: &str| json!({"key": key, "trigger": "announce", "reason": "status 500", "attempts": 10, "at": 0});
    setup.grid.lock().parked = vec![event("e/1"), event("e/2"), event("e/3")];
    assert_eq!(setup.json(&["grid", "events", "counter"])[1], event("e/2"));
    let listed = setup.ok(&["grid", "events", "counter"]);
    assert!(listed.contains("e/1   announce   10"), "{listed}");
    setup.ok(&["grid", "events", "counter", "--retry", "e/1", "--discard", "e/3"]);
    let paths: Vec<_> = setup.requests().into_iter().skip(2).collect();
    assert_eq!(paths, ["POST /events/parked/retry", "POST /events/parked/discard"]);
    assert_eq!(setup.ok(&["grid", "events", "counter", "-o", "name"]), "e/2\n");
    setup.fails(3, &["grid", "events", "counter", "--retry", "e/1"]);
}

#[test]
fn backs_up_and_restores() {
    let setup = Setup::new();
    let file = setup.folder.path().join("backup.ndjson");
    let path = file.to_str().unwrap();
    let header = r#"{"backup":1,"class":"Counter","collections":["Counter_data"],"revision":7}"#;
    let complete =
        format!("{header}\n{{\"key\":\"a\",\"value\":1}}\n{{\"end\":true,\"records\":1}}\n");
    setup.grid.lock().backup = complete.replace("\"end\"", "\"key\"");
    let stderr = setup.fails(1, &["grid", "backup", "counter", path]);
    assert!(stderr.contains("no valid backup") && !file.exists(), "{stderr}");
    setup.grid.lock().backup.clone_from(&complete);
    let (code, _, stderr) = setup.run(&["grid", "backup", "counter", path]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("1 records of class Counter (Counter_data) at revision 7"), "{stderr}");
    assert_eq!(fs::read_to_string(&file).unwrap(), complete);
    let stderr = setup.fails(2, &["grid", "backup", "counter", path]);
    assert!(stderr.contains("--force"), "{stderr}");
    setup.ok(&["grid", "backup", "counter", path, "--force"]);
    // Only the backup and the kubeconfig: no draft is left.
    assert_eq!(fs::read_dir(setup.folder.path()).unwrap().count(), 2);

    let stderr = setup.fails(3, &["grid", "restore", "counter", path]);
    assert!(
        stderr.contains("NOT_EMPTY") && stderr.contains("hint: restore into a new class"),
        "{stderr}"
    );
    setup.grid.lock().objects.clear();
    let (code, _, stderr) = setup.run(&["grid", "restore", "counter", path]);
    assert!(code == Some(0) && stderr.contains("restored into counter"), "{stderr}");
    let (code, _, stderr) = setup.run(&["grid", "restore", "counter", path]);
    assert!(code == Some(0) && stderr.contains("nothing was changed"), "{stderr}");
    assert_eq!(setup.grid.lock().restored.take(), Some(complete.clone()));
    // Directly, as a stream.
    let url = setup.grid.start();
    let done = oprc().args(["grid", "restore", "counter", path, "--grid-url", &url]).output();
    assert!(done.unwrap().status.success());
    assert_eq!(setup.grid.lock().restored.take(), Some(complete.clone()));
    fs::write(&file, complete.replace("\"records\":1", "\"records\":2")).unwrap();
    setup.fails(2, &["grid", "restore", "counter", path]);
    assert_eq!(setup.grid.lock().restored, None, "an incomplete backup must not be sent");
}

#[test]
fn shows_the_status_of_a_grid() {
    let setup = Setup::new();
    setup.grid.lock().parked = vec![json!({"key": "e"})];
    let url = setup.grid.start();
    let done = oprc().args(["grid", "status", "counter", "--grid-url", &url]).output().unwrap();
    let stdout = String::from_utf8(done.stdout).unwrap();
    for part in ["4 of 4 shards active, leader crm-dev-counter000", "active", "1 parked events"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    setup.requests();
    let shown = setup.ok(&["grid", "status", "counter"]);
    for part in [
        "counter.Counter..east on east, 2 nodes: ready",
        "3 of 4 shards active, leader crm-dev-counter000",
        "low on space: 1800 of 2048 MiB used",
        "unreachable",
        "counter.Counter   3/4          7",
        "1 parked events",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The rest is what the package manager reports.
    assert_eq!(setup.requests(), ["GET /events/parked"]);
}

#[test]
fn shows_the_status_of_a_grid_without_access_to_its_cluster() {
    let mut responses = fixtures::all();
    let grids = responses.get_mut("GET /api/v1/deployments/counter/grid").unwrap();
    grids["items"][0]["error"] = "connection refused".into();
    let down = Setup::with(responses);
    let (code, stdout, stderr) = down.run(&["grid", "status", "counter", "-o", "json"]);
    assert_eq!(code, Some(4), "{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&report["error"], &report["replicas"]), (&"connection refused".into(), &2.into()));
    assert!(stderr.contains("hint: see `oprc status counter --pods`"), "{stderr}");
    assert_eq!(down.requests(), [""; 0]);

    let setup = Setup::new();
    setup.grid.lock().failures = vec![(403, json!({"kind": "Status", "message": "forbidden"}))];
    let (code, stdout, stderr) = setup.run(&["grid", "status", "Counter", "-o", "json"]);
    assert_eq!(code, Some(0), "{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&report["activeShards"], &report["parkedEvents"]), (&3.into(), &Value::Null));
    assert!(stderr.contains("parked events is unknown: "), "{stderr}");
    let status = setup.ok(&["status", "counter"]);
    let line = "odgm  RUNNING: 1/2 nodes ready, collections counter.Counter, low on space: 1800 of";
    assert!(status.contains(line), "{status}");
}
