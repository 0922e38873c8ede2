//! Addresses of a cluster, and the links and routes that connect its nodes to this machine.
//!
//! All of them are from 198.18.0.0/15, which is reserved for benchmarks. Each cluster with real nodes
//! has a slot, a part of that range, so that several clusters can run at the same time.
//!
//! | part | addresses |
//! | --- | --- |
//! | pods of node n in slot s | 198.18.(8s+n).0/24 |
//! | link between host and nodes | 198.18.(128+s).0/24 |
//! | services | 198.19.(16s).0/20 |

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Error, Result, command};

/// Maximum number of clusters with real nodes on one machine.
pub(crate) const SLOTS: u8 = 16;
/// Maximum number of real nodes of a cluster.
pub(crate) const MAX_NODES: u8 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    slot: u8,
}

impl Addresses {
    /// The addresses of a slot, which must be below [`SLOTS`].
    pub(crate) fn of(slot: u8) -> Self {
        Self { slot: slot % SLOTS }
    }

    pub(crate) fn host(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 128 + self.slot, 1)
    }

    pub(crate) fn node(self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 128 + self.slot, 10 + node % MAX_NODES)
    }

    pub(crate) fn pods(self, node: u8) -> String {
        format!("198.18.{}.0/24", self.slot * MAX_NODES + node % MAX_NODES)
    }

    pub(crate) fn all_pods(self) -> String {
        format!("198.18.{}.0/21", self.slot * MAX_NODES)
    }

    pub(crate) fn services(self) -> String {
        format!("{}/20", self.service(0))
    }

    /// A service address; 1 is the API server.
    pub(crate) fn service(self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.slot * 16, last)
    }

    /// The bridge on this machine that connects the nodes.
    pub(crate) fn bridge(self) -> String {
        format!("oprc{}", self.slot)
    }

    /// The folder of the cluster that owns the bridge; empty if it has no owner, none without a bridge.
    pub(crate) fn owner(self) -> Option<String> {
        let link = link_folder(&self.bridge());
        let alias = link.exists().then(|| std::fs::read_to_string(link.join("ifalias")));
        alias.map(|alias| alias.unwrap_or_default().trim().to_owned())
    }

    /// The slots whose bridge belongs to the cluster in `folder`.
    pub(crate) fn owned_by(folder: &Path) -> impl Iterator<Item = Self> {
        let folder = folder.display().to_string();
        (0..SLOTS).map(Self::of).filter(move |slot| slot.owner().as_ref() == Some(&folder))
    }

    pub(crate) fn create_bridge(self, folder: &Path) -> Result<()> {
        let bridge = self.bridge();
        let address = format!("{}/24", self.host());
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["link", "set", &bridge, "alias", &folder.display().to_string()])?;
        ip(&["addr", "add", &address, "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])
    }

    /// Removes the bridge, if it exists, with its ports and routes.
    pub(crate) fn remove_bridge(self) -> Result<()> {
        for node in 0..MAX_NODES {
            // The kernel also removes the port of an exited node, but asynchronously.
            remove_link(&self.port(node))?;
        }
        remove_link(&self.bridge())
    }

    fn port(self, node: u8) -> String {
        format!("{}n{node}", self.bridge())
    }

    /// Connects the network namespace of process `pid` to the bridge as node `node` of `nodes`.
    pub(crate) fn connect(self, pid: u32, node: u8, nodes: u8) -> Result<()> {
        let (bridge, port) = (self.bridge(), self.port(node));
        let pid = pid.to_string();
        remove_link(&port)?;
        ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        ip(&["link", "set", &port, "master", &bridge, "up"])?;
        let inside = |args: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(["--net", "--target", &pid, "ip"]).args(args);
            command::run("Configuring a node's network", &mut command).map(drop)
        };
        inside(&["addr", "add", &format!("{}/24", self.node(node)), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["link", "set", "lo", "up"])?;
        let gateway = |node: u8| self.node(node).to_string();
        for other in (0..nodes).filter(|other| *other != node) {
            inside(&["route", "replace", &self.pods(other), "via", &gateway(other)])?;
        }
        ip(&["route", "replace", &self.pods(node), "via", &gateway(node)])?;
        if node == 0 {
            // Any node can route to services; this machine uses the first.
            ip(&["route", "replace", &self.services(), "via", &gateway(0)])?;
        }
        Ok(())
    }
}

fn link_folder(link: &str) -> PathBuf {
    Path::new("/sys/class/net").join(link)
}

/// Removes a link if it exists.
fn remove_link(link: &str) -> Result<()> {
    let exists = || link_folder(link).exists();
    let removed = if exists() { ip(&["link", "del", link]) } else { Ok(()) };
    // The kernel may have removed it in the meantime.
    if exists() { removed } else { Ok(()) }
}

fn ip(args: &[&str]) -> Result<()> {
    command::run("Configuring the network", Command::new("ip").args(args)).map(drop)
}

/// A loopback address that nothing uses: a port in use there is in use on all addresses.
pub(crate) const PROBE: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 254);

/// Ports for clusters. They are below the ephemeral range, from which the kernel could assign a port
/// to a connection while a component restarts.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Distinct free TCP ports of the loopback address.
pub(crate) fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    // A random start, because clusters created at the same time don't see each other's ports.
    let start = fastrand::u16(PORTS);
    let ports = (start..PORTS.end).chain(PORTS.start..start);
    let free: Vec<_> =
        ports.filter(|port| is_free(Ipv4Addr::LOCALHOST, *port)).take(COUNT).collect();
    free.try_into().map_err(|_| Error::failed("finding a free port", "all ports are in use"))
}

pub(crate) fn is_free(address: Ipv4Addr, port: u16) -> bool {
    TcpListener::bind((address, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn slots_have_distinct_addresses() {
        let mut seen = HashSet::new();
        for slot in 0..SLOTS {
            let addresses = Addresses::of(slot);
            assert!(seen.insert(addresses.host().to_string()));
            assert!(seen.insert(addresses.services()));
            for node in 0..MAX_NODES {
                assert!(seen.insert(addresses.node(node).to_string()));
                assert!(seen.insert(addresses.pods(node)));
            }
        }
        assert!(
            seen.iter()
                .all(|address| address.starts_with("198.18.") || address.starts_with("198.19."))
        );
    }

    #[test]
    fn pod_ranges_of_nodes_are_inside_the_cluster_range() {
        assert_eq!(Addresses::of(1).all_pods(), "198.18.8.0/21");
        assert_eq!(Addresses::of(1).pods(7), "198.18.15.0/24");
    }
}
