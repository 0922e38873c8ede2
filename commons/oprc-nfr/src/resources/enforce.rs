//! When a recommendation is applied, and in which steps.

use std::fmt;

use super::{
    recommend::{Allocation, MIN_CHANGE, MIN_SAMPLES, ResourceRecommendation},
    units::{DAY, Resource, Span, is_known},
};
use crate::stopped::Stopped;

/// Limits on how fast requests and limits change. Each change may replace all instances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceSafeguards {
    /// Seconds between two changes.
    pub cooldown: f64,
    /// Seconds of history that a change needs, unless it is urgent.
    pub stability: f64,
    /// Seconds of history that lowering a value needs.
    pub lowering_history: f64,
    /// The largest step up, as a factor. A step of 100 MiB or 100m is always allowed.
    pub max_step_up: f64,
    /// The largest step down, as a fraction of the value.
    pub max_step_down: f64,
}

impl Default for ResourceSafeguards {
    fn default() -> Self {
        Self {
            cooldown: 120.0,
            stability: 180.0,
            lowering_history: DAY,
            max_step_up: 2.0,
            max_step_down: 0.3,
        }
    }
}

impl ResourceSafeguards {
    fn is_valid(&self) -> bool {
        let Self { cooldown, stability, lowering_history, max_step_up, max_step_down } = *self;
        let all = [cooldown, stability, lowering_history, max_step_up, max_step_down];
        all.into_iter().all(is_known) && max_step_up >= 1.0 && max_step_down <= 1.0
    }
}

/// Values to apply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceChange {
    pub request: f64,
    /// None if there is no limit.
    pub limit: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ResourceDecision {
    Apply(ResourceChange),
    /// A change is recommended, but not yet possible.
    Wait(WaitReason),
    /// Nothing has to change, or nothing is known.
    Keep,
}

impl ResourceDecision {
    pub fn change(&self) -> Option<ResourceChange> {
        match self {
            Self::Apply(change) => Some(*change),
            Self::Wait(_) | Self::Keep => None,
        }
    }
}

/// What a change waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WaitReason {
    Samples {
        known: usize,
        needed: usize,
    },
    /// In seconds.
    History {
        known: f64,
        needed: f64,
    },
    /// Seconds that are left.
    Cooldown {
        left: f64,
    },
    /// The user wrote the value, so only they lower it.
    Specification {
        resource: Resource,
        target: f64,
    },
    /// The highest usage of the window doesn't fit into less.
    Peak {
        resource: Resource,
        peak: f64,
    },
    /// An instance can't be scheduled.
    Unschedulable,
    /// Instances with a higher request couldn't be scheduled, so there is no other raise.
    Reverted,
}

impl WaitReason {
    /// Seconds until it no longer applies. None if that isn't known.
    pub fn remaining(&self) -> Option<f64> {
        match *self {
            Self::History { known, needed } => Some((needed - known).max(0.0)),
            Self::Cooldown { left } => Some(left),
            Self::Samples { .. }
            | Self::Specification { .. }
            | Self::Peak { .. }
            | Self::Unschedulable
            | Self::Reverted => None,
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Samples { known, needed } => write!(f, "{known} of {needed} samples"),
            Self::History { known, needed } => {
                write!(f, "history of {}, {} needed", Span(known), Span(needed))
            }
            Self::Cooldown { left } => write!(f, "cooldown for another {}", Span(left)),
            Self::Specification { resource, target } => {
                let target = resource.show(target);
                write!(f, "request is set in the specification, {target} would be enough")
            }
            Self::Peak { resource, peak } => {
                let peak = resource.show(peak);
                write!(f, "usage was up to {peak} in the measured window")
            }
            Self::Unschedulable => f.write_str("instances that can't be scheduled"),
            Self::Reverted => Stopped::Unschedulable.fmt(f),
        }
    }
}

/// Decides which values are applied now.
///
/// `applied` is what enforcement applies at present, `since_applied` the seconds since the last change
/// of it. An urgent raise waits for the cooldown only. Steps are limited, and bounds are always kept.
pub fn decide(
    recommendation: &ResourceRecommendation,
    applied: Allocation,
    since_applied: Option<f64>,
    safeguards: &ResourceSafeguards,
) -> ResourceDecision {
    if !applied.is_valid() || !safeguards.is_valid() {
        return ResourceDecision::Keep;
    }
    let applied = applied.without_zeros();
    let ResourceRecommendation { current, specified, bounds, .. } = recommendation;
    let present = Allocation {
        request: applied.request.or(current.request),
        limit: applied.limit.or(current.limit),
    };
    let written = specified.request.unwrap_or_default().min(bounds.max);
    let goal = recommendation.target.max(written);
    let decision = Decision { recommendation, present, goal, since_applied, safeguards };
    match present.request {
        Some(request) if recommendation.target < request => decision.lower(request),
        request => decision.raise(request),
    }
    .unwrap_or_else(|reason| reason.map_or(ResourceDecision::Keep, ResourceDecision::Wait))
}

/// What is decided from.
struct Decision<'a> {
    recommendation: &'a ResourceRecommendation,
    present: Allocation,
    /// The target, but no less than the user wrote.
    goal: f64,
    since_applied: Option<f64>,
    safeguards: &'a ResourceSafeguards,
}

/// What is missing, or none if nothing has to change.
type Unchanged = Option<WaitReason>;

impl Decision<'_> {
    fn raise(&self, request: Option<f64>) -> Result<ResourceDecision, Unchanged> {
        let Self { recommendation, goal, safeguards, .. } = *self;
        let resource = recommendation.resource;
        let is_urgent = recommendation.urgent && request.is_none_or(|request| goal > request);
        if !is_urgent {
            let is_off = request.is_none_or(|request| recommendation.is_off(request, goal));
            if !is_off && !recommendation.raises_limit(self.present.limit) {
                return Err(None);
            }
            self.require_history(safeguards.stability)?;
        }
        self.require_cooldown()?;
        let highest = request.map_or(f64::INFINITY, |request| {
            let step = (request * safeguards.max_step_up).max(request + resource.smallest_step());
            resource.round_down(step).max(request)
        });
        let request = goal.min(highest).max(recommendation.bounds.min);
        let limit = recommendation.limit_for(request).map(|it| self.not_below_present(it));
        Ok(ResourceDecision::Apply(ResourceChange { request, limit }))
    }

    fn lower(&self, request: f64) -> Result<ResourceDecision, Unchanged> {
        let Self { recommendation, goal, safeguards, .. } = *self;
        let ResourceRecommendation { resource, target, peak, bounds, specified, .. } =
            *recommendation;
        if !recommendation.is_off(request, target) {
            // A limit that throttles is raised even if the request fits.
            let is_throttled = recommendation.raises_limit(self.present.limit);
            return if is_throttled { self.raise_limit(request) } else { Err(None) };
        }
        if recommendation.advisory && request <= specified.request.unwrap_or_default() {
            return Err(Some(WaitReason::Specification { resource, target }));
        }
        self.require_history(safeguards.lowering_history.max(safeguards.stability))?;
        self.require_cooldown()?;
        let smallest = resource.round_up(request * (1.0 - safeguards.max_step_down));
        let lowered = resource.round_up(goal.max(smallest).max(peak)).min(bounds.max);
        // The highest allowed value may be less than the peak as well.
        if lowered > request * (1.0 - MIN_CHANGE) || lowered < peak {
            return Err((peak > goal).then_some(WaitReason::Peak { resource, peak }));
        }
        let limit = recommendation.limit_for(lowered).map(|limit| match resource {
            Resource::Cpu => self.not_below_present(limit),
            Resource::Memory => limit,
        });
        Ok(ResourceDecision::Apply(ResourceChange { request: lowered, limit }))
    }

    fn raise_limit(&self, request: f64) -> Result<ResourceDecision, Unchanged> {
        self.require_history(self.safeguards.stability)?;
        self.require_cooldown()?;
        let limit = self.recommendation.limit_for(request).map(|it| self.not_below_present(it));
        Ok(ResourceDecision::Apply(ResourceChange { request, limit }))
    }

    fn not_below_present(&self, limit: f64) -> f64 {
        limit.max(self.present.limit.unwrap_or_default())
    }

    fn require_history(&self, needed: f64) -> Result<(), Unchanged> {
        let ResourceRecommendation { samples, history, .. } = *self.recommendation;
        if !self.recommendation.has_samples() {
            return Err(Some(WaitReason::Samples { known: samples, needed: MIN_SAMPLES }));
        }
        if history < needed {
            return Err(Some(WaitReason::History { known: history, needed }));
        }
        Ok(())
    }

    fn require_cooldown(&self) -> Result<(), Unchanged> {
        let Some(elapsed) = self.since_applied else { return Ok(()) };
        // A time that can't be true, after a change of the clock, counts as now.
        let elapsed = if is_known(elapsed) { elapsed } else { 0.0 };
        let left = self.safeguards.cooldown - elapsed;
        if left > 0.0 { Err(Some(WaitReason::Cooldown { left })) } else { Ok(()) }
    }
}
