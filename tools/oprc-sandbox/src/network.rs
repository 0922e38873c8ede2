//! Addresses of a cluster, and the links and routes that join its nodes to this machine.
//!
//! All of them are from 198.18.0.0/15, which is reserved for tests. A slot is a share of it: a
//! cluster with real nodes has one, so that several can stand side by side.
//!
//! | part | addresses |
//! | --- | --- |
//! | pods of node n in slot s | 198.18.(8s+n).0/24 |
//! | link between host and nodes | 198.18.(128+s).0/24 |
//! | services | 198.19.(16s).0/20 |

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::Command,
};

use crate::{Error, Result, command};

/// How many clusters with real nodes one machine can have.
pub(crate) const SLOTS: u8 = 16;
/// How many real nodes a cluster can have.
pub(crate) const NODES: u8 = 8;

/// The addresses of one slot.
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
        Ipv4Addr::new(198, 18, 128 + self.slot, 10 + node % NODES)
    }

    pub(crate) fn pods(self, node: u8) -> String {
        format!("198.18.{}.0/24", self.slot * NODES + node % NODES)
    }

    pub(crate) fn all_pods(self) -> String {
        format!("198.18.{}.0/21", self.slot * NODES)
    }

    pub(crate) fn services(self) -> String {
        format!("{}/20", self.service(0))
    }

    /// An address for a service; the first is the API's own.
    pub(crate) fn service(self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.slot * 16, last)
    }

    /// The bridge on this machine that the nodes are joined to.
    pub(crate) fn bridge(self) -> String {
        format!("oprc{}", self.slot)
    }

    /// The folder of the cluster whose bridge stands here, if one does; empty if nobody claims it.
    pub(crate) fn owner(self) -> Option<String> {
        let link = Path::new("/sys/class/net").join(self.bridge());
        let alias = link.exists().then(|| std::fs::read_to_string(link.join("ifalias")));
        alias.map(|alias| alias.unwrap_or_default().trim().to_owned())
    }

    /// Those addresses whose bridge belongs to the cluster in `folder`.
    pub(crate) fn owned_by(folder: &Path) -> impl Iterator<Item = Self> {
        let folder = folder.display().to_string();
        (0..SLOTS).map(Self::of).filter(move |slot| slot.owner().as_ref() == Some(&folder))
    }

    /// Makes the bridge for the cluster in `folder`.
    pub(crate) fn make_bridge(self, folder: &Path) -> Result<()> {
        let bridge = self.bridge();
        let address = format!("{}/24", self.host());
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["link", "set", &bridge, "alias", &folder.display().to_string()])?;
        ip(&["addr", "add", &address, "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])
    }

    /// Takes the bridge away, with its ports and every route through it. None there is fine.
    pub(crate) fn remove_bridge(self) -> Result<()> {
        for node in 0..NODES {
            // The kernel removes the port of an ended node too, but in its own time.
            remove_link(&self.port(node))?;
        }
        remove_link(&self.bridge())
    }

    fn port(self, node: u8) -> String {
        format!("{}n{node}", self.bridge())
    }

    /// Joins the network namespace of process `pid` to the bridge as node `node` of `nodes`.
    pub(crate) fn join(self, pid: u32, node: u8, nodes: u8) -> Result<()> {
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
            // Any node answers for services; the first one does for this machine.
            ip(&["route", "replace", &self.services(), "via", &gateway(0)])?;
        }
        Ok(())
    }
}

fn exists(link: &str) -> bool {
    Path::new("/sys/class/net").join(link).exists()
}

fn remove_link(link: &str) -> Result<()> {
    if !exists(link) {
        return Ok(());
    }
    match ip(&["link", "del", link]) {
        // It may have gone by itself meanwhile.
        Err(error) if exists(link) => Err(error),
        _ => Ok(()),
    }
}

fn ip(args: &[&str]) -> Result<()> {
    command::run("Configuring the network", Command::new("ip").args(args)).map(drop)
}

/// An address of this machine that nothing listens on: what is taken there is taken on all.
const PROBE: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 254);

/// Ports that a cluster may have: below those that the system gives to anybody who asks for any, also
/// to connections, which would take them while a component is just started again.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// So many different TCP ports of the loopback address that nothing listens on.
pub(crate) fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let span = u64::from(PORTS.end - PORTS.start);
    // Anywhere: clusters that are made at the same time don't see each other's yet.
    let start = fastrand::u64(..span);
    let after = |step: u64| u16::try_from((start + step) % span).map(|port| PORTS.start + port);
    let mut free = (0..span)
        .filter_map(|step| after(step).ok())
        .filter(|port| is_free(Ipv4Addr::LOCALHOST, *port));
    let mut ports = [0; COUNT];
    for port in &mut ports {
        *port = free.next().ok_or_else(|| Error::failed("finding a free port", "none is left"))?;
    }
    Ok(ports)
}

/// Whether nothing listens on a TCP port of an address.
pub(crate) fn is_free(address: Ipv4Addr, port: u16) -> bool {
    TcpListener::bind((address, port)).is_ok()
}

/// Whether nothing listens on a TCP port of all addresses.
pub(crate) fn is_free_everywhere(port: u16) -> bool {
    is_free(PROBE, port)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_slots_share_an_address() {
        let mut seen = HashSet::new();
        for slot in 0..SLOTS {
            let addresses = Addresses::of(slot);
            assert!(seen.insert(addresses.host().to_string()));
            assert!(seen.insert(addresses.services()));
            for node in 0..NODES {
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
    fn pods_of_every_node_are_pods_of_the_cluster() {
        assert_eq!(Addresses::of(1).all_pods(), "198.18.8.0/21");
        assert_eq!(Addresses::of(1).pods(7), "198.18.15.0/24");
    }
}
