//! What CRM's profiles give to what doesn't say: the sizes and numbers of 001 §4, as CRM's
//! `environment.rs` and `reconcile/render` have them. Where a cluster's CRM is configured to have
//! others, PM isn't told.

use oprc_grpc::deployment::unit::Provision;

use super::{Capacity, ClusterFacts};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    Dev,
    Edge,
    Full,
}

impl Profile {
    /// The profile of that name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "dev" => Some(Self::Dev),
            "edge" => Some(Self::Edge),
            "full" | "prod" | "cloud" => Some(Self::Full),
            _ => None,
        }
    }

    /// The one that a unit has: a template may name another than the cluster's own.
    pub(super) fn under(self, template: Option<&str>) -> Self {
        template.and_then(Self::parse).unwrap_or(self)
    }

    /// How many instances a function always has under a template that was asked for, or where none
    /// was.
    pub(super) fn instances(
        self,
        template: Option<&str>,
        standby: bool,
        provision: &Provision,
    ) -> i32 {
        let (least, most) = (provision.min_scale, provision.max_scale);
        match (template, least) {
            (Some("job"), _) => 1,
            (Some("knative"), least) => least.filter(|_| !standby).unwrap_or_default(),
            (_, Some(least)) => least.max(1),
            (_, None) if standby => 1,
            (_, None) => {
                let usual = match self {
                    Self::Dev => 1,
                    Self::Edge => 2,
                    Self::Full => 3,
                };
                most.map_or(usual, |most| most.min(usual))
            }
        }
    }

    /// What an instance of a function asks for that doesn't say: by the latency that it must keep,
    /// or the profile's own.
    pub(super) fn function(self, latency: Option<i32>) -> Capacity {
        match (latency, self) {
            (Some(..100), _) => sizes(500, 512),
            (Some(_), _) => sizes(200, 256),
            (None, Self::Dev) => sizes(50, 64),
            (None, Self::Edge | Self::Full) => sizes(100, 256),
        }
    }

    /// What a node of the data grid asks for that doesn't say.
    pub(super) fn grid(self) -> Capacity {
        match self {
            Self::Dev => sizes(50, 64),
            Self::Edge | Self::Full => sizes(200, 512),
        }
    }
}

fn sizes(cpu_millis: u64, mebibytes: u64) -> Capacity {
    Capacity { cpu_millis, memory_bytes: mebibytes << 20 }
}

impl ClusterFacts {
    /// The profile of the cluster's CRM; `Dev` if it is unknown.
    pub(super) fn profile(&self) -> Profile {
        Profile::parse(&self.profile).unwrap_or(Profile::Dev)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use oprc_unit::{Platform, spec::Resources};

    use super::*;
    use crate::planner::capacity::each;

    /// What CRM has, as the planner counts it.
    fn counted(requests: &Resources) -> Capacity {
        let requests = oprc_grpc::deployment::unit::Resources {
            cpu: requests.cpu.clone(),
            memory: requests.memory.clone(),
            ..Default::default()
        };
        each(Some(&requests), None, Capacity::default())
    }

    #[test]
    fn profiles_are_those_of_crm() {
        for name in oprc_unit::Profile::NAMES {
            let (own, crm) =
                (Profile::parse(name).unwrap(), oprc_unit::Profile::parse(name).unwrap());
            let sizes = Platform::of(crm);
            assert_eq!(own.function(None), counted(&sizes.function_sizes.requests), "{name}");
            assert_eq!(own.grid(), counted(&sizes.odgm_sizes.requests), "{name}");
            let usual = own.instances(None, false, &Provision::default());
            assert_eq!(usual, crm.function_replicas(), "{name}");
        }
    }

    #[test]
    fn instances_are_as_many_as_crm_makes() {
        let scale =
            |min_scale, max_scale| Provision { min_scale, max_scale, ..Provision::default() };
        for (template, standby, provision, expected) in [
            (None, false, scale(None, None), 3),
            (None, false, scale(None, Some(2)), 2),
            (None, false, scale(Some(0), None), 1),
            (None, true, scale(None, None), 1),
            (Some("knative"), false, scale(None, None), 0),
            (Some("knative"), false, scale(Some(2), None), 2),
            (Some("knative"), true, scale(Some(2), None), 0),
            (Some("job"), false, scale(Some(2), None), 1),
        ] {
            let found = Profile::Full.instances(template, standby, &provision);
            assert_eq!(found, expected, "{template:?} {standby} {provision:?}");
        }
        assert_eq!(Profile::Full.under(Some("dev")), Profile::Dev);
        assert_eq!(Profile::Edge.under(Some("unified")), Profile::Edge);
    }
}
