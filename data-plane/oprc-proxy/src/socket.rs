//! Options of connections, on both sides of the proxy.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A peer that vanished without closing its connection is detected after about this time, so that its
/// calls don't occupy the function for ever.
const PEER_TIMEOUT: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The connection works without any of these options, so errors are ignored.
pub(crate) fn configure(stream: &TcpStream) {
    // Otherwise small messages are delayed.
    _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_INTERVAL).with_interval(KEEPALIVE_INTERVAL);
    _ = socket.set_tcp_keepalive(&keepalive);
    _ = socket.set_tcp_user_timeout(Some(PEER_TIMEOUT));
}
