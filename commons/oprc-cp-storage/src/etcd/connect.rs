//! Connections to the members of an etcd cluster.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::{
    codegen::http::uri::Authority,
    transport::{Channel, Endpoint},
};

use super::{EtcdOptions, EtcdTls, tls};
use crate::{Error, Result};

/// Includes the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// etcd closes connections that ping more often than every 5 s.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(6);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The members of an etcd cluster, of which one is used at a time.
pub(super) struct Endpoints {
    members: Vec<Channel>,
    current: AtomicUsize,
}

impl Endpoints {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self> {
        let tls = options.tls.clone().map(Arc::new);
        let member = |(address, secure): (Authority, bool)| {
            let tls = tls.clone().filter(|_| secure);
            if let Some(tls) = &tls {
                server_name(tls, &address).map_err(Error::invalid)?;
            }
            // Plain for tonic, because `dial` adds TLS.
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .map_err(Error::invalid)?
                .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .keep_alive_while_idle(true);
            let connect = move |_| dial(address.clone(), tls.clone());
            Ok(endpoint.connect_with_connector_lazy(tower::service_fn(connect)))
        };
        let members = options.addresses()?.into_iter().map(member).collect::<Result<_>>()?;
        Ok(Self { members, current: AtomicUsize::new(0) })
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// The member to call, and its number.
    pub(super) fn current(&self) -> Result<(usize, Channel)> {
        let current = self.current.load(Ordering::Relaxed);
        let member = self.members.get(current % self.members.len().max(1));
        let member = member.ok_or_else(|| Error::invalid("no etcd endpoint is configured"))?;
        Ok((current, member.clone()))
    }

    /// Switches to the next member, unless another call has done so.
    pub(super) fn fail_over_from(&self, failed: usize) {
        let next = failed.wrapping_add(1);
        let _ = self.current.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

async fn dial(
    address: Authority,
    tls: Option<Arc<EtcdTls>>,
) -> io::Result<TokioIo<Box<dyn Connection>>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "connect timed out");
    timeout(CONNECT_TIMEOUT, connect(&address, tls.as_deref()))
        .await
        .map_err(late)?
        .map(TokioIo::new)
}

async fn connect(address: &Authority, tls: Option<&EtcdTls>) -> io::Result<Box<dyn Connection>> {
    let (host, port) = (host(address), address.port_u16().unwrap_or_default());
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    let Some(files) = tls else { return Ok(Box::new(tcp)) };
    let config = tls::load(files).await.map_err(io::Error::other)?;
    let name = server_name(files, address).map_err(io::Error::other)?;
    let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    Ok(Box::new(tls))
}

fn server_name(files: &EtcdTls, address: &Authority) -> Result<ServerName<'static>, String> {
    let name = files.server_name.as_deref().unwrap_or_else(|| host(address));
    let invalid = |_| format!("{name:?} is not a valid server name");
    ServerName::try_from(name.to_owned()).map_err(invalid)
}

/// Without the brackets of an IPv6 address.
fn host(address: &Authority) -> &str {
    address.host().trim_start_matches('[').trim_end_matches(']')
}
