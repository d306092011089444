//! The long run: `make soak`. Every invariant after every operation, over as many histories as asked for.
//!
//! `HEADRACE_SOAK_OPS` says how many operations (default 1,000,000), `HEADRACE_SOAK_SEED` where to begin (default 1). Every
//! history has a seed of its own, which is printed when it fails; with that seed and `HEADRACE_SOAK_OPS=1` it runs alone.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Runs, RngAlgorithm, TestRng, TestRunner};

use super::properties::{any_config, any_history};
use super::world::World;
use crate::trace::replay;

/// Says the seed if the history fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("\nthis history alone: HEADRACE_SOAK_SEED={} HEADRACE_SOAK_OPS=1 make soak", self.0);
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
#[ignore = "long: `make soak` runs it"]
fn soak() {
    let (ops, first) = (setting("HEADRACE_SOAK_OPS", 1_000_000), setting("HEADRACE_SOAK_SEED", 1));
    println!("{ops} operations from seed {first}");
    let (mut done, mut seed) = (0, first);
    while done < ops {
        done += history(seed);
        seed += 1;
    }
    println!("{done} operations in {} histories, seeds {first} to {}", seed - first, seed - 1);
}

/// Runs one history and returns its operations.
fn history(seed: u64) -> u64 {
    let _seed = Seed(seed);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(Runs::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let config = any_config().new_tree(&mut runner).expect("a configuration").current();
    let history = any_history().new_tree(&mut runner).expect("a history").current();
    let mut world = World::new(config);
    world.next_segment();
    for &op in &history {
        world.apply(op);
        world.check_books();
        world.check_nothing_is_kept();
        world.check_no_free_block_is_in_flight();
    }
    world.fault = None;
    world.drain();
    world.check_all_is_back();
    world.next_segment();
    for segment in &world.segments {
        replay(segment).expect("the same plans again");
    }
    history.len() as u64
}
