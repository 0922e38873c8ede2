//! One TCP port for an [`axum::Router`] that holds REST and gRPC routes.
//!
//! [`bind`] opens the port and reads the TLS files; [`Server::serve`] answers until it is told to
//! stop, then lets open requests finish. It speaks HTTP/1.1 and HTTP/2: with prior knowledge on a
//! plain port, by ALPN with TLS. Every request carries its [`Peer`]; [`require`] asks an [`Access`]
//! whether that peer may use a route.

mod access;
mod answer;
mod connection;
mod error;
mod guard;
mod options;
mod peer;
mod process;
mod reread;
mod role;
mod server;
mod settings;
mod tls;
mod token;

#[cfg(test)]
mod tests;

pub use access::{Access, Denied, Identity};
pub use answer::{fallback, problem};
pub use error::Error;
pub use guard::require;
pub use options::{Options, TlsFiles};
pub use peer::{ClientCertificate, Peer};
pub use process::{identity, stopped, told_to_stop};
pub use role::Role;
pub use server::{Server, bind};
pub use settings::Settings;
pub use token::TokenFile;
