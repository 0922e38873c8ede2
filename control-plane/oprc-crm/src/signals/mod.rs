//! What CRM knows about the load and the resources of each component, from metrics.
//!
//! A pass sends the same few queries for all classes ([`QueryTable`], [`collect`]). The answers have
//! pods, which [`PodIndex`] maps to components, and [`fold`] turns them into [`Observed`] signals. A
//! signal that is missing, stale or partial is unknown, never zero.

mod budget;
mod collect;
mod fold;
mod observed;
mod pods;
mod promql;
mod quantile;
mod query;
mod rows;
mod usage;
mod window;

pub use self::{
    budget::{MAX_ANSWER_BYTES, MAX_PASS_BYTES},
    collect::{MAX_CONCURRENT_QUERIES, QueryResults, collect},
    fold::{Folded, Folding, fold},
    observed::{ComponentSignals, Observed, Signal, StartUpTime},
    pods::{ClassKey, Component, ComponentId, PodIndex, PodRef},
    quantile::bucket_quantile,
    query::{MAX_QUERY_LENGTH, Query, QueryTable, RateWindows, Source},
    rows::QueryRows,
    usage::{
        ComponentUsage, USAGE_STEP, Usage, UsagePods, collect_usage, fold_usage, is_same_image,
        usage_queries,
    },
    window::Window,
};

#[cfg(test)]
mod tests;
