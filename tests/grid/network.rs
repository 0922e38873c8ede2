//! Cut links are cut: otherwise, the suites that need them would show less than they say.

use std::process::Command;

use oprc_tests::grid::network::{Cut, Network};

/// Whether a node can reach another: an unused port refuses the connection, but packets that disappear
/// get no response.
fn reaches(network: &Network, from: u8, to: u8) -> bool {
    let connect = format!("exec 3<>/dev/tcp/{}/1", network.address(to));
    let output = Command::new("ip")
        .args(network.exec_arguments(from))
        .args(["timeout", "1", "bash", "-c", &connect])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(1) => error.contains("refused"),
        Some(124) => false,
        code => panic!("status {code:?}: {error}"),
    }
}

/// The pairs of nodes of which the first can't reach the second.
fn unreachable(network: &Network) -> Vec<(u8, u8)> {
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    pairs.into_iter().filter(|(from, to)| !reaches(network, *from, *to)).collect()
}

#[test]
fn links_are_cut_and_healed() {
    let network = Network::create(3);
    assert_eq!(unreachable(&network), []);
    network.cut(Cut::Isolate(0));
    assert_eq!(unreachable(&network), [(0, 1), (0, 2), (1, 0), (2, 0)]);
    network.heal();
    network.cut(Cut::Link(1, 2));
    assert_eq!(unreachable(&network), [(1, 2), (2, 1)]);
    network.heal();
    assert_eq!(unreachable(&network), []);
}
