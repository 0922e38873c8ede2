//! The document that describes the API, against the server that runs.

use std::{env, fs, path::PathBuf, process::Command};

use oprc_tests::pm::{ADMIN, Pm, Setup, package};

/// What asks everything that the document says can be asked.
const CHECKER: &str = "schemathesis==4.32.5";

/// The checker, fetched from PyPI once.
fn checker() -> PathBuf {
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).unwrap();
    let folder = cache.join("oprc/python").join(CHECKER.replace("==", "-"));
    if folder.join("bin/schemathesis").is_file() {
        return folder;
    }
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    let draft = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
    let done = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
        .arg(draft.path())
        .arg(CHECKER)
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .output()
        .expect("python3 with pip");
    assert!(done.status.success(), "{CHECKER}: {}", String::from_utf8_lossy(&done.stderr));
    fs::rename(draft.keep(), &folder).unwrap();
    folder
}

#[tokio::test]
async fn every_answer_is_one_that_the_document_describes() {
    let pm = Pm::start(&Setup::default().with("OPRC_PM_SERVER_RATE_LIMIT", "0")).await;
    pm.publish(&package("1.0.0")).await;
    let folder = tokio::task::spawn_blocking(checker).await.unwrap();
    let mut command = tokio::process::Command::new(folder.join("bin/schemathesis"));
    let seed = "1";
    command
        .args(["run", &format!("{}/openapi.json", pm.url)])
        .args(["--header", &format!("Authorization: Bearer {ADMIN}")])
        .args(["--checks", "not_a_server_error,status_code_conformance"])
        .args(["--checks", "content_type_conformance,response_schema_conformance"])
        .args(["--checks", "response_headers_conformance,unsupported_method"])
        // A stream has no end that could be waited for.
        .args(["--exclude-path", "/api/v1/events"])
        .args(["--max-examples", "40", "--seed", seed, "--request-timeout", "60"])
        .args(["--no-color", "--output-sanitize", "true"])
        .env("PYTHONPATH", &folder)
        .current_dir(pm.folder())
        .kill_on_drop(true);
    let done = command.output().await.unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}{error}");
    assert!(!pm.log().contains("panicked"), "{}", pm.log());
}
