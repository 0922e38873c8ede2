//! CPU and memory of the instances of one component: what its usage recommends, and when that is
//! applied.
//!
//! The recommendation follows the Vertical Pod Autoscaler: the target is a high percentile of the
//! usage plus a margin, and a value is changed only outside of bounds that narrow with the length of
//! the history. In addition, memory is raised before it reaches its limit.
//!
//! Nothing here keeps state. Values that are NaN, infinite or negative are unknown, and what is
//! unknown changes nothing. CPU is in cores, memory in bytes, time in seconds.

mod enforce;
mod growth;
mod histogram;
mod recommend;
mod rollout;
mod units;

pub use self::{
    enforce::{ResourceChange, ResourceDecision, ResourceSafeguards, WaitReason, decide},
    histogram::UsageSample,
    recommend::{
        Allocation, MIN_SAMPLES, OomKills, ResourceBounds, ResourceInput, ResourceRecommendation,
        Throttling, recommend_cpu, recommend_memory,
    },
    rollout::Rollout,
    units::Resource,
};

#[cfg(test)]
mod tests;
