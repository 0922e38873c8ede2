//! PM and CRM as local processes next to a sandbox cluster; its supervisor restarts them, and stops
//! them with the cluster.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use oprc_sandbox::{Cluster, Companion, supervisor::Action};

use super::token::{generate, token_file_line};
use crate::{contexts::Context, error::CliError, files::write_private, output::note};

/// Used if it is free.
const DEFAULT_PM_PORT: u16 = 8080;

/// Starts PM with these clusters, each a name and the URL of its CRM. Returns a context for its
/// admin.
pub(super) async fn start_pm(cluster: &Cluster, crms: &[(String, String)]) -> Result<Context> {
    let folder = state_directory(cluster, "pm")?;
    let port = choose_port(cluster, "pm", &folder, Some(DEFAULT_PM_PORT)).await?;
    let (token, tokens) = (folder.join("token"), folder.join("tokens"));
    if !tokens.exists() {
        let secret = generate()?;
        write_private(&token, &format!("{secret}\n"))?;
        write_private(&tokens, &token_file_line(&secret))?;
    }
    let clusters = folder.join("clusters.yaml");
    let config = crms.iter().map(|(name, url)| format!("{name}: {{url: {url}}}\n"));
    let config = config.collect::<Vec<_>>().concat();
    let changed = fs::read_to_string(&clusters).is_ok_and(|before| before != config);
    write_private(&clusters, &config)?;
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    let args = [
        file("store-path", &folder.join("store.redb")),
        file("crm-clusters-file", &clusters),
        file("security-token-file", &tokens),
    ];
    let server = start(cluster, "pm", port, &args, None).await?;
    if changed {
        // PM reads the file only at startup.
        cluster.supervisor().act("pm", Action::Stop).await?;
        cluster.supervisor().act("pm", Action::Start).await?;
    }
    Ok(Context { server, token_file: Some(token), ..Context::default() })
}

/// Adds the last exit of a component and where its log is.
pub(super) async fn with_component_state(
    cluster: &Cluster,
    name: &str,
    error: &anyhow::Error,
) -> anyhow::Error {
    let last = cluster.supervisor().component(name).await.ok().and_then(|it| it.last_end);
    let last = last.map(|how| format!("; last exit of {name}: {how}")).unwrap_or_default();
    let log = format!("oprc sandbox logs {name} --name {}", cluster.spec().name);
    CliError::Unavailable(format!("{error:#}{last}\nhint: see its log with `{log}`")).into()
}

/// Starts CRM for a cluster with simulated nodes and returns its URL.
pub(super) async fn start_crm(cluster: &Cluster) -> Result<String> {
    let port = choose_port(cluster, "crm", &state_directory(cluster, "crm")?, None).await?;
    let args = [
        "--profile=dev".to_owned(),
        "--kubernetes-namespace=default".to_owned(),
        "--features-odgm=true".to_owned(),
        "--odgm-image=oprc.local/oprc-odgm:dev".to_owned(),
        "--proxy-image=oprc.local/oprc-proxy:dev".to_owned(),
    ];
    let kubeconfig = ("KUBECONFIG".to_owned(), cluster.kubeconfig().display().to_string());
    start(cluster, "crm", port, &args, Some(kubeconfig)).await
}

/// Lets the supervisor run a server on a port of the loopback address, and returns its URL.
async fn start(
    cluster: &Cluster,
    name: &str,
    port: u16,
    args: &[String],
    variable: Option<(String, String)>,
) -> Result<String> {
    let host = Ipv4Addr::LOCALHOST;
    let address = [format!("--server-host={host}"), format!("--server-port={port}")];
    let companion = Companion {
        name: name.to_owned(),
        program: find_program(&format!("oprc-{name}"))?,
        args: [&address, args].concat(),
        env: variable.into_iter().collect(),
    };
    cluster.supervisor().run(&companion).await?;
    Ok(format!("http://{host}:{port}"))
}

/// Searches the directory of this program, then PATH.
fn find_program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("locating the oprc executable")?;
    let own = fs::canonicalize(&own).unwrap_or(own);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join(name)).find(|program| program.is_file());
    found.with_context(|| {
        let own = own.display();
        format!("{name} found neither next to {own} nor in PATH; build it with `make build`")
    })
}

/// State directory of a component, with mode 0700.
fn state_directory(cluster: &Cluster, name: &str) -> Result<PathBuf> {
    let folder = cluster.spec().folder()?.join(name);
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    created.with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// The port of the last run if it is still usable, the preferred one if it is free, or any.
async fn choose_port(
    cluster: &Cluster,
    name: &str,
    folder: &Path,
    preferred: Option<u16>,
) -> Result<u16> {
    let file = folder.join("port");
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
    if let Some(port) = fs::read_to_string(&file).ok().and_then(|port| port.trim().parse().ok()) {
        let process = cluster.supervisor().component(name).await.ok().and_then(|it| it.pid);
        if process.is_some_and(|pid| listens(pid, port)) || free(port).is_some() {
            return Ok(port);
        }
        note(&format!("port {port} is in use by another process, {name} gets a new port"));
    }
    let listener = preferred
        .and_then(free)
        .or_else(|| free(0))
        .context("no free port on the loopback address")?;
    let port = listener.local_addr()?.port();
    write_private(&file, &port.to_string())?;
    Ok(port)
}

/// Whether a process already listens on a port, from /proc.
fn listens(pid: u32, port: u16) -> bool {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{port:04X}");
    let listening: Vec<_> = sockets
        .lines()
        .filter_map(|line| {
            // Columns: sl, local address, remote address, state (0A = LISTEN), …, inode (tenth).
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
    fn detects_which_process_listens() {
        let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = open.local_addr().unwrap().port();
        assert!(listens(std::process::id(), port));
        assert!(!listens(1, port) && !listens(u32::MAX, port));
        drop(open);
        assert!(!listens(std::process::id(), port));
    }
}
