//! 4. No request waits for ever.
//!
//! The bound, in work: before a request that waits, there go at most those that its policy puts before it at its arrival,
//! `max_skips` that overtake it while it waits for blocks, and of those that come later
//!
//! * `fcfs`, `static`, `dynamic`: none;
//! * `priority`: fifteen for each admission by age alone, so 15 × (those that waited longer + 1), and those that take the
//!   rows of lower bands while no row becomes free, so no more than there are rows;
//! * `fair`: of each other tenant what brings its counter up to the request's own tenant's, and its own tenant's earlier;
//! * `shortest`: 20 tokens of prompts for each of its own uncached tokens.
//!
//! Each of these takes a bounded number of steps. The test below does not add the numbers up: it lets a crowd of better
//! requests come without end, and gives a generous fixed number of plans for a world this small.

use proptest::prelude::*;

use super::properties::any_config;
use super::world::World;
use crate::{Config, PolicyKind, Priority, Request, RequestId, Tenant, Tokens};

/// Prompts have at most 19 tokens, answers 11, and a step computes at least one token of somebody's: a few hundred steps
/// for all that run at a time. Sixteen rounds of that, and 20 × 19 tokens, stay far below.
const PLANS: usize = 6_000;

fn enough(mut config: Config) -> Config {
    // Limits would refuse the crowd, and a pool may be too small for anybody.
    config.max_concurrent_requests = None;
    config.max_queue_tokens = None;
    config.max_total_tokens = Tokens(config.block_size.0 * config.total_blocks.0);
    config
}

/// A request of a better class than the one that waits: urgent, short, of another tenant.
fn crowd(world: &mut World, salt: u32) {
    let request = Request {
        tenant: Tenant(1 + salt % 3),
        priority: Priority::HIGHEST,
        ..Request::new(vec![1 + salt % 50; 1 + salt as usize % 3], Tokens(1 + salt % 5))
    };
    drop(world.try_submit(request));
}

fn is_admitted(world: &World, request: RequestId) -> bool {
    let handle = world.scheduler.sequences.find(request);
    handle.is_none_or(|handle| !world.scheduler.sequences[handle].never_ran())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_request_waits_for_ever_whatever_else_comes(
        config in any_config(), prompt in 1..20_u32, max_new in 1..6_u32, ahead in 0..8_u32, every in 1..4_usize,
    ) {
        let config = enough(config);
        prop_assume!(prompt + max_new <= config.max_total_tokens.0);
        let mut world = World::new(config);
        (0..ahead).for_each(|salt| crowd(&mut world, salt));
        let worst = Request {
            priority: Priority::BATCH,
            ..Request::new((0..prompt).map(|position| 60 + position).collect(), Tokens(max_new))
        };
        let waits = world.try_submit(worst).expect("it fits alone");
        let mut plans = 0;
        while !is_admitted(&world, waits) {
            if plans % every == 0 && world.unfinished().len() < 40 {
                crowd(&mut world, plans as u32);
            }
            if world.plan().is_none() && !world.land()
                && let Some(wake) = world.scheduler.wakes_at()
            {
                world.wait(wake.saturating_sub(world.now()));
            }
            plans += 1;
            prop_assert!(plans < PLANS, "it waits for ever:\n{:?}", world.scheduler);
        }
        world.drain();
    }
}

/// sglang#31954: with the longest cached prefix always first, 5 % of requests had 75 % of all waiting.
#[test]
fn under_shortest_a_long_prompt_waits_for_twenty_times_its_length_of_later_prompts_and_no_more() {
    let config = Config { policy: PolicyKind::Shortest, max_batch_size: 1, ..super::world::roomy() };
    let mut world = World::new(config);
    world.submit(1, 2);
    world.step();
    let long = world.submit(40, 2);
    let mut later = 0;
    while !is_admitted(&world, long) {
        while world.scheduler.stats().waiting < 3 {
            world.submit(4, 1);
            later += 4;
        }
        world.step();
        assert!(later <= 20 * 40 + 64, "{later} tokens of later prompts went before it");
    }
    assert!(later > 40, "short ones do go first");
}
