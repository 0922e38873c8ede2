//! The commands that use a package manager, one file each.

pub(crate) mod catalogue;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod context;
pub(crate) mod delete;
pub(crate) mod deploy;
pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod grid;
pub(crate) mod invoke;
pub(crate) mod logs;
pub(crate) mod nfr;
pub(crate) mod object;
pub(crate) mod orphan;
pub(crate) mod package;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod rollback;
pub(crate) mod status;
pub(crate) mod watch;
