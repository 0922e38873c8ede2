//! Addons: optional components of a class in addition to its functions. A new addon is one entry of [`ADDONS`].

use super::RejectionReason;
use crate::{platform::Features, replication::ODGM};

pub struct Addon {
    /// The name in `addons` of a unit, and in the capabilities of a cluster.
    pub name: &'static str,
    /// The setting of CRM that enables it.
    pub setting: &'static str,
    pub(super) if_disabled: RejectionReason,
    enabled: fn(&Features) -> bool,
}

pub const ADDONS: [Addon; 1] = [Addon {
    name: ODGM,
    setting: "features.odgm",
    if_disabled: RejectionReason::OdgmDisabled,
    enabled: |features| features.odgm,
}];

impl Addon {
    pub fn parse(name: &str) -> Option<Self> {
        ADDONS.into_iter().find(|addon| addon.name == name)
    }

    pub fn is_enabled(&self, features: &Features) -> bool {
        (self.enabled)(features)
    }
}
