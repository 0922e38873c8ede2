//! What CRM knows about the load and the resources of each component, from metrics.
//!
//! A pass sends the same few queries for all classes ([`QueryTable`], [`collect`]). The answers have
//! pods, which [`PodIndex`] maps to components, and [`fold`] turns them into [`Observed`] signals. A
//! signal that is missing, stale or partial is unknown, never zero.

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
    collect::{MAX_CONCURRENT_QUERIES, QueryResults, collect},
    fold::{Folded, fold},
    observed::{ComponentSignals, Observed, Signal, StartUpTime},
    pods::{ClassKey, Component, ComponentId, PodIndex, PodRef},
    quantile::bucket_quantile,
    query::{MAX_QUERY_LENGTH, Query, QueryTable, Source, rate_window},
    usage::{
        ComponentUsage, USAGE_STEP, Usage, collect_usage, fold_usage, is_same_image, usage_queries,
    },
    window::Window,
};

#[cfg(test)]
mod tests;
