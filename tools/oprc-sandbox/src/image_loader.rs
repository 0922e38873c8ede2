//! Loads images into the nodes of a cluster.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    Error, Result,
    apply::within,
    command::{self, blocking},
    image::{self, Image},
    node,
    spec::Spec,
    supervisor::Supervisor,
};

const CONTAINERD_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug, Clone)]
pub(crate) struct ImageLoader {
    /// A process in the namespaces of each node.
    nodes: Vec<u32>,
    ctr: PathBuf,
    temporary: PathBuf,
}

impl ImageLoader {
    /// Waits until containerd listens on all nodes.
    pub(crate) async fn connect(spec: &Spec) -> Result<Self> {
        let supervisor = Supervisor::of(&spec.name)?;
        let mut nodes = Vec::new();
        for node in node::numbers(spec) {
            let name = node::on_node("node", node);
            let listening = async {
                loop {
                    let pid = match supervisor.component(&name).await {
                        Ok(component) => component.pid,
                        // The supervisor is starting.
                        Err(Error::NotRunning { .. }) => None,
                        Err(error) => return Err(error),
                    };
                    let socket = |pid| format!("/proc/{pid}/root{}", node::CONTAINERD_SOCKET);
                    if let Some(pid) = pid.filter(|pid| Path::new(&socket(*pid)).exists()) {
                        return Ok(pid);
                    }
                    // The socket is in the node's own file system, which can't be watched from here.
                    sleep(Duration::from_millis(50)).await;
                }
            };
            nodes.push(within("containerd to listen", CONTAINERD_TIMEOUT, listening).await?);
        }
        let ctr = spec.programs.containers.join("ctr");
        Ok(Self { nodes, ctr, temporary: supervisor.folder })
    }

    pub(crate) async fn load_images(&self, images: Vec<Image>) -> Result<()> {
        let loader = self.clone();
        blocking(move || {
            let archive = loader.temporary.join("image.oci.tar");
            let load =
                |image: &Image| image.write(&archive).and_then(|()| loader.load_archive(&archive));
            let loaded = images.iter().try_for_each(load);
            let _ = std::fs::remove_file(&archive);
            loaded
        })
        .await
    }

    /// Loads an archive into every node that lacks one of its images.
    pub(crate) async fn load(&self, archive: &Path) -> Result<()> {
        let (loader, archive) = (self.clone(), archive.to_owned());
        blocking(move || loader.load_archive(&archive)).await
    }

    fn load_archive(&self, archive: &Path) -> Result<()> {
        let images = image::inspect(archive)?;
        for node in &self.nodes {
            let present = command::run("Listing images", &mut self.ctr(*node, &["images", "ls"]))?;
            let is_present = |image: &image::ImageRef| {
                present.lines().map(str::split_whitespace).any(|mut words| {
                    words.next() == Some(&image.name) && words.any(|word| word == image.digest)
                })
            };
            if !images.iter().all(is_present) {
                let file = File::open(archive).map_err(Error::path("opening", archive))?;
                let mut import = self.ctr(*node, &["images", "import", "-"]);
                command::run_reading("Loading an image", &mut import, file)?;
            }
        }
        Ok(())
    }

    /// `ctr` in the namespaces of a node. Archives are passed on standard input, because a node
    /// doesn't see every folder of this machine.
    fn ctr(&self, node: u32, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--mount", "--pid", "--target", &node.to_string(), "--"]);
        command.arg(&self.ctr).args(["--address", node::CONTAINERD_SOCKET]);
        command.args(["--namespace", "k8s.io"]).args(args);
        command
    }
}
