//! The gRPC interfaces between the parts of the control plane, generated from `proto/`.

/// The API of CRM, which PM calls.
#[allow(clippy::pedantic, missing_docs, unreachable_pub)]
pub mod deployment {
    tonic::include_proto!("deployment");

    /// The unit: one class as it runs in one environment of one cluster.
    pub mod unit {
        tonic::include_proto!("deployment.unit");
    }

    /// The settings and capabilities of a cluster's CRM.
    pub mod platform {
        tonic::include_proto!("deployment.platform");
    }
}

/// Messages of the data grid.
#[allow(clippy::pedantic, missing_docs, unreachable_pub)]
pub mod odgm {
    tonic::include_proto!("odgm");
}

#[cfg(feature = "client")]
pub mod client;
pub mod unit;

/// Descriptors of all of the above, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The metadata key under which a correlation id travels.
pub const CORRELATION: &str = "x-correlation-id";
