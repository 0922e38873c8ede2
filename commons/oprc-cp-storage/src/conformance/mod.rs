//! The behaviour of every back end: [`crate::conformance_tests`] generates the tests.

// Only tests call these functions, and they fail by panicking.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used
)]

pub mod entries;
pub mod histories;
pub mod leases;
pub mod limits;
pub mod ranges;
pub mod snapshots;
pub mod transactions;
pub mod watches;

/// Generates a test for each behaviour. `open` gets the name of the test, and returns an empty store
/// with a value that must live as long as it.
#[macro_export]
macro_rules! conformance_tests {
    ($open:path) => {
        $crate::conformance_tests!(@tests $open;
            entries::keep_keys_and_values_unchanged,
            entries::get_a_new_version_with_every_write,
            entries::are_read_together_at_one_revision,
            transactions::report_the_failed_check_and_change_nothing,
            transactions::are_atomic_for_readers,
            transactions::lose_no_concurrent_updates,
            transactions::keep_the_revision_if_nothing_changes,
            limits::reject_invalid_and_oversized_input,
            limits::accept_the_largest_transactions,
            ranges::return_ordered_pages,
            ranges::match_only_the_prefix,
            ranges::are_consistent_at_one_revision,
            ranges::are_counted,
            snapshots::do_not_change,
            watches::deliver_every_commit_once_in_order,
            watches::deliver_only_later_commits_under_the_prefix,
            watches::from_a_future_revision_report_a_gap,
            watches::that_fall_behind_report_a_gap,
            leases::have_one_holder,
            leases::fence_transactions,
            leases::are_released_on_drop,
        );
    };
    (@tests $open:path; $($module:ident::$test:ident,)*) => {
        $(
            // One module for each test, because the functions are named after the modules.
            mod $test {
                #[allow(unused_imports)]
                use super::*;

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $module() {
                    let (store, _alive) = $open(stringify!($test)).await;
                    $crate::conformance::$module::$test(&store).await;
                    store.close().await;
                }
            }
        )*
    };
}
