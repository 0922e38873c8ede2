//! Histories with rejected specifications, crashes after any action and stale views.

use proptest::test_runner::{Config, TestRunner};

use super::convergence::{assert_as_if_fresh, eventful_lives};

#[path = "../../../../../tests/support/proof.rs"]
#[allow(dead_code, unreachable_pub)]
mod proofs;

const STACK: usize = 16 << 20;

#[test]
fn every_history_converges_to_the_same_state() {
    let proof = proofs::begin("class lifecycles, simulated without a cluster", 100, 5_000);
    let cases = u32::try_from(proof.rounds).unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    // What may happen, of so many kinds, needs more room than a test is given.
    let living = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        TestRunner::new(config).run(&eventful_lives(), |life| {
            assert_as_if_fresh(&life);
            Ok(())
        })
    });
    let lived = living.unwrap().join().unwrap();
    lived.unwrap_or_else(|error| panic!("{error}"));
    proof.held(
        "specifications, crashes and stale views in any order; all converged to the same state",
    );
}
