//! A network of this machine in which each node of a grid has an address, and links can be cut.

use std::{
    net::Ipv4Addr,
    path::Path,
    process::{Command, id},
};

/// The sandbox doesn't use 198.18.144.0 to 198.18.255.255.
const FIRST_BLOCK: u8 = 144;
const SLOTS: u8 = 100;
const FIRST_NODE: u8 = 10;

/// A bridge, and a network namespace for each node. Deleted on drop.
#[derive(Debug)]
pub struct Network {
    slot: u8,
    nodes: u8,
}

/// Connections that are cut. Packets disappear, as in a network that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A node from all others.
    Isolate(u8),
    /// Two nodes from each other, but not from the others.
    Link(u8, u8),
    /// What the first node sends to the second.
    OneWay(u8, u8),
}

impl Network {
    /// At most ten nodes.
    pub fn create(nodes: u8) -> Self {
        let slot = (0..SLOTS).find(|slot| claim(*slot)).expect("a free network");
        let network = Self { slot, nodes };
        network.delete_nodes();
        let bridge = bridge(slot);
        ip(&["addr", "add", &format!("{}/24", network.host()), "dev", &bridge]);
        ip(&["link", "set", &bridge, "up"]);
        for node in 0..nodes {
            network.connect(node);
        }
        network
    }

    /// The address of this machine for the nodes.
    pub fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, FIRST_BLOCK + self.slot, 1)
    }

    pub fn address(&self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, FIRST_BLOCK + self.slot, FIRST_NODE + node)
    }

    /// The addresses of nodes, with `{index}` for the index of the node.
    pub fn address_pattern(&self) -> String {
        format!("198.18.{}.{}{{index}}", FIRST_BLOCK + self.slot, FIRST_NODE / 10)
    }

    /// Arguments of `ip` before a program, which then runs in the network of a node, in the same process.
    pub fn exec_arguments(&self, node: u8) -> [String; 3] {
        ["netns".to_owned(), "exec".to_owned(), self.namespace(node)]
    }

    pub fn cut(&self, cut: Cut) {
        match cut {
            Cut::Isolate(node) => {
                for other in (0..self.nodes).filter(|it| *it != node) {
                    self.drop_packets(node, other);
                    self.drop_packets(other, node);
                }
            }
            Cut::Link(one, other) => {
                self.drop_packets(one, other);
                self.drop_packets(other, one);
            }
            Cut::OneWay(from, to) => self.drop_packets(from, to),
        }
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        for node in 0..self.nodes {
            self.run_in(node, &["iptables", "--wait", "--flush", "INPUT"]);
        }
    }

    fn drop_packets(&self, from: u8, to: u8) {
        let source = self.address(from).to_string();
        let rule = ["iptables", "--wait", "--append", "INPUT", "--source", &source];
        self.run_in(to, &[&rule[..], &["--jump", "DROP"]].concat());
    }

    fn connect(&self, node: u8) {
        let (namespace, port) = (self.namespace(node), self.port(node));
        ip(&["netns", "add", &namespace]);
        ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &namespace]);
        ip(&["link", "set", &port, "master", &bridge(self.slot), "up"]);
        let address = format!("{}/24", self.address(node));
        self.run_in(node, &["ip", "addr", "add", &address, "dev", "eth0"]);
        self.run_in(node, &["ip", "link", "set", "eth0", "up"]);
        self.run_in(node, &["ip", "link", "set", "lo", "up"]);
    }

    fn run_in(&self, node: u8, args: &[&str]) {
        ip(&[&["netns", "exec", &self.namespace(node)], args].concat());
    }

    fn namespace(&self, node: u8) -> String {
        format!("{}n{node}", bridge(self.slot))
    }

    /// The node's port of the bridge.
    fn port(&self, node: u8) -> String {
        format!("{}p{node}", bridge(self.slot))
    }

    /// Deletes what exists. The kernel deletes the links of a namespace only after its last process.
    fn delete_nodes(&self) {
        for node in 0..self.nodes {
            let _ = Command::new("ip").args(["link", "del", &self.port(node)]).output();
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(node)]).output();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.delete_nodes();
        let _ = Command::new("ip").args(["link", "del", &bridge(self.slot)]).output();
    }
}

fn bridge(slot: u8) -> String {
    format!("oprcgrid{slot}")
}

/// Creates the bridge of a slot, unless a running process has it. The alias of a bridge is its process.
fn claim(slot: u8) -> bool {
    let bridge = bridge(slot);
    if let Ok(owner) = std::fs::read_to_string(format!("/sys/class/net/{bridge}/ifalias")) {
        if Path::new("/proc").join(owner.trim()).exists() {
            return false;
        }
        let _ = Command::new("ip").args(["link", "del", &bridge]).output();
    }
    // Fails if another process is faster.
    let add = ["link", "add", &bridge, "type", "bridge"];
    let is_own = Command::new("ip").args(add).output().unwrap().status.success();
    if is_own {
        ip(&["link", "set", &bridge, "alias", &id().to_string()]);
    }
    is_own
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {error}", args.join(" "));
}
