//! One TCP port for an [`axum::Router`] that holds REST and gRPC routes.
//!
//! [`bind`] opens the port and reads the TLS files; [`Server::serve`] serves requests until
//! shutdown, then drains open ones. It speaks HTTP/1.1 and HTTP/2: with prior knowledge on a
//! plain port, by ALPN with TLS. Every request carries its [`Peer`]; [`require`] checks whether
//! an [`Access`] admits that peer to a route.
//!
//! The accept loop and TLS are not `axum-server`'s because a connection that sends no request
//! must be closed even before its protocol is detected, which is when hyper's header timeout
//! starts. Also, routes need the verified client certificate as a request extension, and
//! certificates, client authorities and tokens are reloaded without dropping connections.

mod access;
mod auth_layer;
mod authentication;
mod connection;
mod error;
mod error_response;
mod options;
mod peer;
mod process;
mod reload;
mod role;
mod server;
mod settings;
mod tls;
mod token;

#[cfg(test)]
mod tests;

pub use access::Access;
pub use auth_layer::require;
pub use authentication::{Denied, Identity};
pub use error::Error;
pub use error_response::{fallback, problem};
pub use options::{Options, TlsFiles};
pub use peer::{ClientCertificate, Peer};
pub use process::{identity, shutdown_signal, stopped};
pub use role::Role;
pub use server::{Server, bind};
pub use settings::Settings;
pub use token::TokenFile;
