//! A Prometheus of a test, on this machine.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use http_body_util::Empty;
use hyper::Request;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    crm::Options,
    eventually,
    http::{client, get_ok},
    shared,
};

const READY_TIMEOUT: Duration = Duration::from_mins(2);
const FREQUENT_SCRAPES: &str = "2s";

/// Killed on drop.
pub struct Prometheus {
    pub url: String,
    folder: TempDir,
    port: u16,
    child: Child,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Prometheus {
    /// Starts it on a free port, and waits until it is ready.
    pub async fn start(config: &Value) -> Self {
        Self::with_config(&config.to_string()).await
    }

    /// Starts one with the targets of the cluster's, which it scrapes more often.
    pub async fn with_frequent_scrapes() -> Self {
        let cluster = shared().await;
        let url = format!("{}/api/v1/status/config", cluster.spec().prometheus_url().unwrap());
        let response: Value = serde_json::from_str(&get_ok(&url).await.unwrap()).unwrap();
        let config = response.pointer("/data/yaml").and_then(Value::as_str).unwrap();
        let mut often = config.to_owned();
        for usual in ["scrape_interval: 5s", "scrape_timeout: 4s"] {
            assert!(often.contains(usual), "{often}");
            let name = usual.split(' ').next().unwrap();
            often = often.replace(usual, &format!("{name} {FREQUENT_SCRAPES}"));
        }
        Self::with_config(&often).await
    }

    async fn with_config(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(config_file(folder.path()), config).unwrap();
        let port = {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            free.local_addr().unwrap().port()
        };
        let child = spawn(folder.path(), &data(folder.path()), port);
        let prometheus = Self { url: format!("http://127.0.0.1:{port}"), folder, port, child };
        prometheus.ready().await;
        prometheus
    }

    /// CRM with settings for [`Self::with_frequent_scrapes`]: a sample for each scrape.
    #[must_use]
    pub fn frequently_measuring(&self) -> Options {
        Options::measuring(&self.url)
            .with("OPRC_CRM_PROM_SCRAPE_INTERVAL", FREQUENT_SCRAPES)
            .with("OPRC_CRM_PROM_STEP", FREQUENT_SCRAPES)
            .with("OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS", "2")
            .with("OPRC_CRM_ANALYZER_INTERVAL_SECS", "2")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    async fn ready(&self) {
        let url = format!("{}/-/ready", self.url);
        eventually("Prometheus", READY_TIMEOUT, async || get_ok(&url).await).await;
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again after [`Self::kill`], with its data.
    pub async fn restart(&mut self) {
        self.child = spawn(self.folder.path(), &data(self.folder.path()), self.port);
        self.ready().await;
    }

    /// Whether it runs. While it doesn't, it accepts connections and never responds.
    pub fn set_running(&self, runs: bool) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, if runs { Signal::CONT } else { Signal::STOP }).unwrap();
    }

    /// Starts it again with data that it can't read: each query fails.
    pub async fn damage(&mut self) {
        let snapshot = Request::post(format!("{}/api/v1/admin/tsdb/snapshot", self.url));
        let written = client().request(snapshot.body(Empty::new()).unwrap()).await.unwrap();
        assert!(written.status().is_success(), "{written:?}");
        self.kill();
        let snapshots = data(self.folder.path()).join("snapshots");
        let snapshot = fs::read_dir(snapshots).unwrap().next().unwrap().unwrap().path();
        for block in fs::read_dir(&snapshot).unwrap() {
            damage_series(&block.unwrap().path().join("index"));
        }
        self.child = spawn(self.folder.path(), &snapshot, self.port);
        self.ready().await;
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn config_file(folder: &Path) -> PathBuf {
    folder.join("prometheus.yaml")
}

fn spawn(folder: &Path, data: &Path, port: u16) -> Child {
    Command::new(oprc_sandbox::prometheus_program().expect("Prometheus"))
        .arg(format!("--config.file={}", config_file(folder).display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--web.enable-admin-api", "--web.enable-remote-write-receiver", "--log.level=error"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Inverts the entries of all series in the index of a block. The table of contents at its end has the
/// position of symbols, series and label indices, and its checksum.
fn damage_series(index: &Path) {
    const CONTENTS: usize = 52;
    let mut bytes = fs::read(index).unwrap();
    let contents = bytes.len() - CONTENTS;
    let position = |number: usize| {
        let start = contents + 8 * number;
        let position: [u8; 8] = bytes.get(start..start + 8).unwrap().try_into().unwrap();
        usize::try_from(u64::from_be_bytes(position)).unwrap()
    };
    let series = position(1)..position(2);
    bytes.get_mut(series).unwrap().iter_mut().for_each(|byte| *byte = !*byte);
    fs::write(index, bytes).unwrap();
}
