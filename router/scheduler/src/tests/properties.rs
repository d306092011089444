//! What must hold after any history. `PROPTEST_CASES=10000 cargo test --release -p headrace-scheduler` makes it long.

use proptest::collection::vec;
use proptest::prelude::*;

use super::shard::{EOS, EOS_AT, Fault};
use super::world::World;
use crate::trace::replay;
use crate::{
    AdmissionRule, Blocks, CacheRoot, Config, FinishReason, Micros, Overload, OverloadCause, PolicyKind, Priority,
    Rejected, Request, Tenant, Tokens,
};

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Submit(Submission),
    Plan {
        filter_late: bool,
    },
    Land,
    /// The unfinished request at this place, modulo their number.
    Cancel(usize),
    Stop(usize),
    LoseSession,
    DeliverStale,
    BreakNext(Fault),
    /// Milliseconds go by.
    Wait(u64),
    /// The trace goes on in a new segment.
    Segment,
}

#[derive(Clone, Copy, Debug)]
pub struct Submission {
    prompt: u32,
    /// End-of-sequence comes as this token of the answer.
    eos_at: Option<u32>,
    max_new: u32,
    ignore_eos: bool,
    /// Prompts of one family begin alike for a while; 0 has no family.
    family: u32,
    tenant: u32,
    priority: i64,
    /// Milliseconds from now.
    deadline: Option<u64>,
    salted: bool,
    reads_cache: bool,
    /// Another choice of the newest unfinished question.
    forks: bool,
}

prop_compose! {
    fn any_submission()(
        prompt in 1..20_u32,
        eos_at in proptest::option::of(0..8_u32),
        max_new in 1..12_u32,
        ignore_eos in any::<bool>(),
        family in 0..4_u32,
        tenant in 0..3_u32,
        priority in prop_oneof![3 => Just(0), 1 => Just(-100), 1 => -3..3_i64],
        deadline in proptest::option::weighted(0.1, 1..60_u64),
        salted in prop::bool::weighted(0.2),
        reads_cache in prop::bool::weighted(0.9),
        forks in prop::bool::weighted(0.3),
    ) -> Submission {
        Submission { prompt, eos_at, max_new, ignore_eos, family, tenant, priority, deadline, salted, reads_cache, forks }
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any_submission().prop_map(Op::Submit),
        16 => any::<bool>().prop_map(|filter_late| Op::Plan { filter_late }),
        14 => Just(Op::Land),
        1 => (0..8_usize).prop_map(Op::Cancel),
        1 => (0..8_usize).prop_map(Op::Stop),
        1 => Just(Op::DeliverStale),
        1 => prop_oneof![3 => Just(Op::Land), 1 => Just(Op::LoseSession)],
        1 => prop_oneof![1 => Just(Fault::Step), 2 => Just(Fault::Memory), 3 => (0..8_usize).prop_map(Fault::Row)].prop_map(Op::BreakNext),
        1 => (1..2000_u64).prop_map(Op::Wait),
        1 => Just(Op::Segment),
    ]
}

fn any_policy() -> impl Strategy<Value = PolicyKind> {
    prop_oneof![
        3 => Just(PolicyKind::Fcfs),
        3 => Just(PolicyKind::Priority),
        3 => Just(PolicyKind::Fair),
        3 => Just(PolicyKind::Shortest),
        1 => (1..6_u32).prop_map(|group_size| PolicyKind::Static { group_size }),
        1 => (0..20_000_u64).prop_map(|window| PolicyKind::Dynamic { window: Micros(window) }),
    ]
}

prop_compose! {
    /// Small numbers, so that everything is short all the time: 6 to 20 blocks of 1 to 4 tokens.
    pub fn any_config()(
        (block_size, total_blocks, max_batch_size) in (1..5_u32, 6..20_u32, 1..7_u32),
        (host_blocks, swap_time) in (prop_oneof![2 => Just(0), 1 => 1..30_u32], 0..5000_u64),
        max_batch_prefill_tokens in 1..20_u32,
        policy in any_policy(),
        (prefix_cache, chunked_prefill) in (prop::bool::weighted(0.8), prop::bool::weighted(0.8)),
        target_itl in proptest::option::weighted(0.3, 1..40_000_u64),
        admission in prop_oneof![
            3 => Just(AdmissionRule::Learned), 2 => Just(AdmissionRule::Watermark), 1 => Just(AdmissionRule::Reserve)
        ],
        (watermark_permille, max_skips) in (prop_oneof![Just(0), 0..300_u32], 0..4_u32),
        waiting_served_ratio_permille in prop_oneof![Just(0), 0..2000_u32],
        max_waiting_tokens in 0..6_u32,
        (max_concurrent_requests, max_queue_tokens) in
            (proptest::option::of(4..20_u32), proptest::option::weighted(0.3, 20..100_u64)),
        preempt_once_seed in proptest::option::of(any::<u64>()),
    ) -> Config {
        Config {
            block_size: Tokens(block_size),
            total_blocks: Blocks(total_blocks),
            host_blocks: Blocks(host_blocks),
            swap_time: Micros(swap_time),
            max_batch_size,
            max_batch_prefill_tokens: Tokens(max_batch_prefill_tokens),
            max_total_tokens: Tokens(block_size * total_blocks),
            policy,
            prefix_cache,
            chunked_prefill,
            target_itl: target_itl.map(Micros),
            max_concurrent_requests,
            max_queue_tokens,
            admission,
            watermark_permille,
            max_skips,
            waiting_served_ratio_permille,
            max_waiting_tokens,
            eos: vec![EOS],
            preempt_once_seed,
        }
    }
}

pub fn any_history() -> impl Strategy<Value = Vec<Op>> {
    vec(any_op(), 50..250)
}

impl World {
    pub fn apply(&mut self, op: Op) {
        match op {
            Op::Submit(submission) => self.submit_any(submission),
            Op::Wait(millis) => self.wait(Micros(millis * 1000)),
            Op::Segment => self.next_segment(),
            Op::Plan { filter_late } => {
                self.filter_late = filter_late;
                self.plan();
            }
            Op::Land => {
                self.land();
            }
            Op::Cancel(place) => {
                let unfinished = self.unfinished();
                unfinished.get(place % unfinished.len().max(1)).into_iter().for_each(|&request| self.cancel(request));
            }
            Op::Stop(place) => {
                let unfinished = self.unfinished();
                unfinished.get(place % unfinished.len().max(1)).into_iter().for_each(|&request| self.stop(request));
            }
            Op::LoseSession => self.lose_session(),
            Op::DeliverStale => self.deliver_stale(),
            Op::BreakNext(fault) => self.fault = Some(fault),
        }
    }

    fn submit_any(&mut self, of: Submission) {
        let salt = if of.family == 0 { self.stories.len() as u32 } else { of.family };
        // A family's prompts part at a place that differs from one to the next.
        let own = self.stories.len() as u32 % 16;
        let token = |position: u32| 1 + (salt + position * position + u32::from(position > own) * own) % 60;
        let mut prompt: Vec<u32> = (0..of.prompt).map(token).collect();
        if let Some(index) = of.eos_at {
            prompt[0] = EOS_AT + index;
        }
        let fork_of = self.unfinished().last().copied().filter(|_| of.forks);
        if let Some(first) = fork_of {
            prompt.clone_from(&self.stories[&first].prompt);
        }
        let length = prompt.len() as u32;
        let request = Request {
            fork_of,
            ignore_eos: of.ignore_eos,
            tenant: Tenant(of.tenant),
            priority: Priority::new(of.priority).expect("a band"),
            deadline: of.deadline.map(|millis| self.now() + Micros(millis * 1000)),
            root: CacheRoot { salt: of.salted.then(|| "salt".into()), ..CacheRoot::default() },
            reads_cache: of.reads_cache,
            ..Request::new(prompt, Tokens(of.max_new))
        };
        let live = self.unfinished().len();
        let refused = self.try_submit(request);
        let holds = match refused {
            Ok(_) => true,
            Err(Rejected::TooLong { .. }) => length + of.max_new > self.config.max_total_tokens.0,
            Err(Rejected::Overloaded(Overload { cause, .. })) => match cause {
                OverloadCause::Requests { limit } => live >= limit as usize,
                OverloadCause::QueueTokens { queued, limit, .. } => queued + u64::from(length) > limit && queued > 0,
                OverloadCause::Deadline { predicted, left } => predicted >= left && of.deadline.is_some(),
                OverloadCause::Displaced => false,
            },
            Err(Rejected::EmptyPrompt | Rejected::NothingToGenerate) => false,
        };
        assert!(holds, "refused without a reason");
    }
}

proptest! {
    /// 1. Every block is exactly one of free and held, and is counted once for each holder.
    #[test]
    fn every_block_is_free_or_held_by_whom_the_books_say(config in any_config(), history in any_history()) {
        let mut world = World::new(config);
        for op in history {
            world.apply(op);
            world.check_books();
        }
    }

    /// 2. The pretend shard and the world check every plan's limits, rows, chunks and tables; this runs them on to the
    /// end with a full queue, where limits are reached all the time.
    #[test]
    fn no_plan_exceeds_rows_tokens_or_pool(config in any_config(), history in any_history()) {
        let mut world = World::new(config);
        for op in history {
            world.apply(op);
            world.plan();
        }
        world.drain();
    }

    /// 3. The world checks each event against the pretend model's answer; here all requests also have to end.
    #[test]
    fn every_request_ends_once_with_its_tokens_in_order(config in any_config(), history in any_history()) {
        let mut world = World::new(config);
        for op in history {
            world.apply(op);
        }
        world.fault = None;
        world.drain();
        world.check_all_is_back();
        for story in world.stories.values() {
            let reason = story.finished.expect("drained");
            let whole = matches!(reason, FinishReason::Length | FinishReason::EndOfSequence);
            prop_assert!(!whole || !story.answer.is_empty());
        }
    }

    /// 5. Nothing but the operations decides.
    #[test]
    fn the_same_operations_leave_the_same_trace(config in any_config(), history in any_history()) {
        let trace = |history: &[Op]| {
            let mut world = World::new(config.clone());
            history.iter().for_each(|&op| world.apply(op));
            world.drain();
            world.trace
        };
        prop_assert_eq!(trace(&history), trace(&history));
    }

    /// 6. A step in flight keeps what it may write.
    #[test]
    fn no_block_is_freed_while_a_step_in_flight_may_write_it(config in any_config(), history in any_history()) {
        let mut world = World::new(config);
        for op in history {
            world.apply(op);
            world.check_no_free_block_is_in_flight();
        }
    }

    /// 7. Whoever ends, is cancelled or waits holds nothing; the steps in flight give back what they kept.
    #[test]
    fn nothing_is_kept_by_those_that_left(config in any_config(), history in any_history()) {
        let mut world = World::new(config);
        for op in history {
            world.apply(op);
            world.check_nothing_is_kept();
        }
        for request in world.unfinished() {
            world.cancel(request);
        }
        while world.land() {}
        world.plan();
        world.check_all_is_back();
    }

    /// 5. A trace's segments, each alone, give the same plans again.
    #[test]
    fn every_segment_of_a_trace_replays_byte_for_byte(config in any_config(), history in any_history()) {
        let mut world = World::new(config);
        world.next_segment();
        history.iter().for_each(|&op| world.apply(op));
        world.drain();
        world.next_segment();
        for segment in &world.segments {
            if let Err(difference) = replay(segment) {
                prop_assert!(false, "{difference}");
            }
        }
    }

    /// With a seed, every request that gets as far as its drawn token is preempted once where the pool is roomy.
    #[test]
    fn the_seeded_preemption_comes_exactly_once(seed in any::<u64>(), lengths in vec((1..20_u32, 2..40_u32), 1..8)) {
        let config = Config { preempt_once_seed: Some(seed), total_blocks: Blocks(512), ..super::world::roomy() };
        let mut world = World::new(config);
        let requests: Vec<_> = lengths.into_iter().map(|(prompt, max_new)| world.submit(prompt, max_new)).collect();
        world.drain();
        for request in requests {
            prop_assert_eq!(world.stories[&request].preemptions, 1);
        }
    }
}
