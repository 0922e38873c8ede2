//! Programs of ours that run beside a cluster of this machine: its supervisor keeps them running,
//! and they end with it.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use oprc_sandbox::{Cluster, Companion, supervisor::Action};

use super::token::{line, private, secret};
use crate::{failure::Failure, output::say};

/// The port of the package manager where nobody else has it.
const PM_PORT: u16 = 8080;

/// A package manager that runs.
pub(super) struct Running {
    /// Where it answers.
    pub(super) server: String,
    /// A file with a token that may do everything.
    pub(super) token: PathBuf,
}

/// Runs a package manager that drives clusters, each by name and where its CRM is called.
pub(super) async fn package_manager(
    cluster: &Cluster,
    crms: &[(String, String)],
) -> Result<Running> {
    let folder = folder(cluster, "pm")?;
    let port = port(cluster, "pm", &folder, Some(PM_PORT)).await?;
    let (token, tokens) = (folder.join("token"), folder.join("tokens"));
    if !tokens.exists() {
        let secret = secret()?;
        private(&token, &format!("{secret}\n"))?;
        private(&tokens, &line(&secret))?;
    }
    let clusters = folder.join("clusters.yaml");
    let wanted: Vec<_> =
        crms.iter().map(|(name, url)| format!("{name}: {{url: {url}}}\n")).collect();
    let wanted = wanted.concat();
    let changed = fs::read_to_string(&clusters).is_ok_and(|before| before != wanted);
    private(&clusters, &wanted)?;
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    let companion = Companion {
        name: "pm".to_owned(),
        program: program("oprc-pm")?,
        args: vec![
            format!("--server-host={}", Ipv4Addr::LOCALHOST),
            format!("--server-port={port}"),
            file("store-path", &folder.join("store.redb")),
            file("crm-clusters-file", &clusters),
            file("security-token-file", &tokens),
        ],
        env: [].into(),
    };
    let supervisor = cluster.supervisor();
    supervisor.run(&companion).await?;
    if changed {
        // It reads them when it starts.
        supervisor.act("pm", Action::Stop).await?;
        supervisor.act("pm", Action::Start).await?;
    }
    Ok(Running { server: format!("http://{}:{port}", Ipv4Addr::LOCALHOST), token })
}

/// Adds to an error what is known of a program that isn't as it should be.
pub(super) async fn explain(cluster: &Cluster, name: &str, error: &anyhow::Error) -> anyhow::Error {
    let last = cluster.supervisor().component(name).await.ok().and_then(|it| it.last_end);
    let last = last.map(|how| format!("; it ended last by itself: {how}")).unwrap_or_default();
    let log = format!("oprc sandbox logs {name} --name {}", cluster.spec().name);
    Failure::Away(format!("{error:#}{last}\nhint: its log tells more: {log}")).into()
}

/// Runs a CRM for a cluster whose nodes can't; gives where it is called.
pub(super) async fn crm(cluster: &Cluster) -> Result<String> {
    let port = port(cluster, "crm", &folder(cluster, "crm")?, None).await?;
    let companion = Companion {
        name: "crm".to_owned(),
        program: program("oprc-crm")?,
        args: vec![
            format!("--server-host={}", Ipv4Addr::LOCALHOST),
            format!("--server-port={port}"),
            "--profile=dev".to_owned(),
            "--kubernetes-namespace=default".to_owned(),
            "--features-odgm=true".to_owned(),
            "--odgm-image=oprc.local/odgm-stand-in:dev".to_owned(),
        ],
        env: [("KUBECONFIG".to_owned(), cluster.kubeconfig().display().to_string())].into(),
    };
    cluster.supervisor().run(&companion).await?;
    Ok(format!("http://{}:{port}", Ipv4Addr::LOCALHOST))
}

/// A program of ours: beside this one, or in the path.
fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let own = fs::canonicalize(&own).unwrap_or(own);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = own.parent().map(Path::to_owned);
    beside
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .with_context(|| format!("{name} is neither beside {} nor in the path", own.display()))
}

/// Where what a program keeps is; only its owner can read it.
fn folder(cluster: &Cluster, name: &str) -> Result<PathBuf> {
    let folder = cluster.spec().folder()?.join(name);
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// The port that a program has had and nobody else has now, the usual one where it is free, or any.
async fn port(cluster: &Cluster, name: &str, folder: &Path, usual: Option<u16>) -> Result<u16> {
    let file = folder.join("port");
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
    if let Some(port) = fs::read_to_string(&file).ok().and_then(|port| port.trim().parse().ok()) {
        let process = cluster.supervisor().component(name).await.ok().and_then(|it| it.pid);
        if process.is_some_and(|pid| listens(pid, port)) || free(port).is_some() {
            return Ok(port);
        }
        say(&format!("port {port} is taken by another program: {name} gets another one"));
    }
    let listener = usual.and_then(free).or_else(|| free(0)).context("there is no free port")?;
    let port = listener.local_addr()?.port();
    private(&file, &port.to_string())?;
    Ok(port)
}

/// Whether a process listens on a port: one that is only about to may find it taken.
fn listens(pid: u32, port: u16) -> bool {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{port:04X}");
    let listening: Vec<_> = sockets
        .lines()
        .filter_map(|line| {
            // A number, its address, the other's, its state (0A listens), and the inode as tenth.
            let mut words = line.split_whitespace().skip(1);
            let own = words.next()?.ends_with(&port) && words.nth(1)? == "0A";
            own.then(|| format!("socket:[{}]", words.nth(5).unwrap_or_default()))
        })
        .collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = open.filter_map(|it| fs::read_link(it.path()).ok());
    targets.any(|target| listening.iter().any(|socket| target == Path::new(socket)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_who_listens() {
        let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = open.local_addr().unwrap().port();
        assert!(listens(std::process::id(), port));
        assert!(!listens(1, port) && !listens(u32::MAX, port));
        drop(open);
        assert!(!listens(std::process::id(), port));
    }
}
