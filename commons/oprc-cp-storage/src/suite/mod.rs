//! What every back end must do: [`crate::behaves`] makes a test of each.

// Only tests call any of this: here a panic is how a test fails.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used
)]

pub mod entries;
pub mod histories;
pub mod limits;
pub mod ownership;
pub mod ranges;
pub mod transactions;
pub mod watches;

/// Makes a test of each thing that a store must do. `open` is given the test's name, and gives a
/// store that is empty and the test's own, with what has to live as long as it.
#[macro_export]
macro_rules! behaves {
    ($open:path) => {
        $crate::behaves!(@tests $open;
            entries::are_stored_as_they_are,
            entries::have_a_new_version_with_every_change,
            transactions::tell_which_check_failed_and_change_nothing,
            transactions::are_seen_whole_or_not_at_all,
            transactions::lose_no_update_when_many_race,
            transactions::may_change_nothing,
            limits::hold,
            limits::are_wide_enough_for_what_they_allow,
            ranges::come_in_pages_in_order,
            ranges::end_where_the_prefix_does,
            ranges::are_as_of_one_revision,
            watches::tell_everything_once_and_in_order,
            watches::tell_only_what_comes_after_and_what_concerns_them,
            watches::of_a_future_have_a_gap,
            watches::that_are_too_slow_have_a_gap,
            ownership::is_for_one,
            ownership::guards_transactions,
            ownership::ends_when_it_is_dropped,
        );
    };
    (@tests $open:path; $($module:ident::$test:ident,)*) => {
        $(
            // Each in a module of its own, since some share a name.
            mod $test {
                #[allow(unused_imports)]
                use super::*;

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $module() {
                    let (store, _alive) = $open(stringify!($test)).await;
                    $crate::suite::$module::$test(&store).await;
                    store.close().await;
                }
            }
        )*
    };
}
