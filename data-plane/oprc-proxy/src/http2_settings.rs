//! Flow control of HTTP/2, on both sides of the proxy. Smaller than hyper's defaults, because they
//! bound the memory of the proxy for each connection and stream.

pub(crate) const STREAM_WINDOW: u32 = 256 << 10;
pub(crate) const CONNECTION_WINDOW: u32 = 256 << 10;
/// Bytes that are buffered for a stream before its source has to wait.
pub(crate) const SEND_BUFFER: usize = 64 << 10;
