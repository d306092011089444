use headrace_scheduler::{AdmissionRule, PolicyKind, Priority, Tokens};
use proptest::prelude::*;

use super::*;
use crate::presets::{Preset, PresetKnobs};
use crate::report::Report;
use crate::workload::{Arrival, Prefix};

const POLICIES: [PolicyKind; 6] = [
    PolicyKind::Fcfs,
    PolicyKind::Priority,
    PolicyKind::Fair,
    PolicyKind::Shortest,
    PolicyKind::Static { group_size: 3 },
    PolicyKind::Dynamic { window: Micros(5_000) },
];

fn arrival(at_ms: u64, prompt: u32, output: u32) -> Arrival {
    Arrival::new(Micros(at_ms * 1000), Tokens(prompt), Tokens(output))
}

fn rows(max_batch_size: u32) -> Config {
    Config { max_batch_size, ..Config::default() }
}

fn tokens_ms(run: &Run, request: usize) -> Vec<f64> {
    run.requests[request].tokens.iter().map(|moment| moment.0 as f64 / 1000.0).collect()
}

#[test]
fn a_lone_answer_has_a_token_a_step_after_the_routers_time() {
    let cost = CostModel { router: Micros(300), ..CostModel::UNIT };
    let run = simulate(&Workload::new(vec![arrival(5, 3, 3)]), &rows(1), &cost).expect("never stuck");
    // The second and the third step are planned while the one before runs: the router's time does not show.
    assert_eq!(tokens_ms(&run, 0), [6.3, 7.3, 8.3]);
    assert_eq!((run.began, run.ended, run.steps), (Micros(5_000), Micros(8_300), 3));
}

#[test]
fn a_router_slower_than_a_step_shows_in_every_second_gap() {
    let cost = CostModel { router: Micros(1_500), ..CostModel::UNIT };
    let run = simulate(&Workload::new(vec![arrival(0, 3, 4)]), &rows(1), &cost).expect("never stuck");
    assert_eq!(tokens_ms(&run, 0), [2.5, 3.5, 5.0, 6.0]);
}

#[test]
fn who_arrives_before_the_next_plan_is_in_it() {
    let cost = CostModel { router: Micros(300), ..CostModel::UNIT };
    let late = Arrival { at: Micros(1_050), ..arrival(0, 3, 1) };
    let early = Arrival { at: Micros(950), ..arrival(0, 3, 1) };
    let run = simulate(&Workload::new(vec![arrival(0, 3, 5), early, late]), &rows(4), &cost).expect("never stuck");
    // The first step ends at 1.3 ms, so the second is planned at 1.0 ms: with the early one, without the late one.
    assert_eq!((tokens_ms(&run, 1), tokens_ms(&run, 2)), (vec![2.3], vec![3.3]));
}

#[test]
fn an_answer_that_ends_by_itself_costs_its_row_a_step_more() {
    let short = Arrival { max_new: Tokens(100), ..arrival(0, 1, 3) };
    let run = simulate(&Workload::new(vec![short]), &rows(1), &CostModel::UNIT).expect("never stuck");
    assert_eq!((run.requests[0].tokens.len(), run.planned_rows), (3, 4));
    assert_eq!(run.ended, Micros(3_000));
}

#[test]
fn a_deadline_that_passes_while_nothing_runs_is_noticed() {
    let config = Config { policy: PolicyKind::Dynamic { window: Micros(50_000) }, ..rows(4) };
    let hasty = Arrival { deadline: Some(Micros(20_000)), ..arrival(0, 1, 3) };
    let run = simulate(&Workload::new(vec![hasty]), &config, &CostModel::UNIT).expect("never stuck");
    assert_eq!(run.requests[0].ending, Some((Ending::DeadlineMissed, Micros(20_000))));
}

#[test]
fn requests_with_the_same_prefix_compute_it_once() {
    let prefix = Some(Prefix { name: "system".to_owned(), tokens: Tokens(320) });
    let arrivals = (0..4).map(|number| Arrival { prefix: prefix.clone(), ..arrival(number * 10, 330, 2) });
    let run = simulate(&Workload::new(arrivals.collect()), &rows(4), &CostModel::UNIT).expect("never stuck");
    assert_eq!(run.stats.prefix.hit_tokens, 3 * 320);
}

prop_compose! {
    fn any_arrival()(
        at in 0..60_000_u64,
        prompt in 1..200_u32,
        output in 1..60_u32,
        more in 0..100_u32,
        who in 0..3_usize,
        band in -100..=100_i64,
        deadline in proptest::option::weighted(0.2, 1..40_000_u64),
        shared in proptest::option::weighted(0.4, 1..200_u32),
    ) -> Arrival {
        Arrival {
            at: Micros(at),
            max_new: Tokens(output + more),
            tenant: ["a", "b", "c"][who].to_owned(),
            priority: Priority::new(band).expect("within the bands"),
            deadline: deadline.map(Micros),
            prefix: shared.map(|tokens| Prefix { name: "p".to_owned(), tokens: Tokens(tokens.min(prompt)) }),
            ..Arrival::new(Micros(at), Tokens(prompt), Tokens(output))
        }
    }
}

prop_compose! {
    /// Small enough that rows, blocks and queues run out.
    fn any_config()(
        policy in proptest::sample::select(POLICIES.to_vec()),
        blocks in 12..60_u32,
        max_batch_size in 1..8_u32,
        prefill in 16..300_u32,
        chunked_prefill in any::<bool>(),
        prefix_cache in any::<bool>(),
        admission in proptest::sample::select(vec![AdmissionRule::Learned, AdmissionRule::Watermark, AdmissionRule::Reserve]),
        max_concurrent_requests in proptest::option::weighted(0.3, 3..12_u32),
        target_itl in proptest::option::weighted(0.3, 1_000..30_000_u64),
    ) -> Config {
        Config {
            block_size: Tokens(16),
            total_blocks: Blocks(blocks),
            max_total_tokens: Tokens(blocks * 16),
            max_batch_size,
            max_batch_prefill_tokens: Tokens(prefill),
            policy,
            chunked_prefill,
            prefix_cache,
            admission,
            max_concurrent_requests,
            target_itl: target_itl.map(Micros),
            ..Config::default()
        }
    }
}

proptest! {
    /// Every request ends exactly once (`World::end` asserts that it is not twice), and one that is answered has
    /// its whole answer; the same arguments give the same run.
    #[test]
    fn every_request_ends_once(arrivals in proptest::collection::vec(any_arrival(), 1..40), config in any_config()) {
        let workload = Workload::new(arrivals);
        let cost = CostModel { router: Micros(200), ..CostModel::CPU_SMOLLM2 };
        let run = simulate(&workload, &config, &cost);
        let run = run.map_err(|stuck| TestCaseError::fail(stuck.to_string()))?;
        prop_assert_eq!(run.requests.len(), workload.arrivals().len());
        for (outcome, arrival) in run.requests.iter().zip(workload.arrivals()) {
            let (ending, _) = outcome.ending.expect("a run is over when everybody has ended");
            let expected = if ending == Ending::Answered { arrival.output.0 as usize } else { 0 };
            prop_assert_eq!(outcome.tokens.len(), expected, "{:?}", ending);
            prop_assert!(outcome.tokens.is_sorted());
        }
        prop_assert_eq!(run.stats.blocks.held, Blocks::ZERO);
        let again = simulate(&workload, &config, &cost).expect("it was not stuck before");
        prop_assert_eq!((run.requests, run.bars), (again.requests, again.bars));
    }
}

/// vllm#44594 and others: who admits whatever fits now preempts it later.
#[test]
fn learned_admission_preempts_a_quarter_as_often_as_a_watermark_and_serves_no_less() {
    let report = |admission: AdmissionRule| {
        let knobs = PresetKnobs { requests: 1000, rate: f64::INFINITY, ..PresetKnobs::default() };
        let config = Config {
            admission,
            total_blocks: Blocks(24_000 / 32),
            max_total_tokens: Tokens(24_000),
            max_batch_size: 128,
            max_batch_prefill_tokens: CostModel::A100_7B.prefill,
            ..Config::default()
        };
        let run = simulate(&Preset::ShareGpt.workload(knobs), &config, &CostModel::A100_7B).expect("never stuck");
        Report::of(&run)
    };
    let (learned, watermark) = (report(AdmissionRule::Learned), report(AdmissionRule::Watermark));
    let (few, many) = (learned.preemptions, watermark.preemptions);
    assert!(4 * few <= many, "{few} preemptions, against {many}");
    let (own, other) = (learned.output_tokens_per_s, watermark.output_tokens_per_s);
    assert!(own >= other, "{own} tokens/s, against {other}");
}

/// docs/scheduler.md: under `shortest` nobody waits for more than 20 tokens of later prompts for each of its own, and 64.
#[test]
fn in_a_burst_nobody_waits_for_longer_under_shortest_than_its_bound_says() {
    let knobs = PresetKnobs { requests: 200, rate: f64::INFINITY, ..PresetKnobs::default() };
    let workload = Preset::Seed.workload(knobs);
    let config = Config { policy: PolicyKind::Shortest, ..rows(8) };
    let run = simulate(&workload, &config, &CostModel::A100_7B).expect("never stuck");
    let planned = |number: usize| run.requests[number].planned.expect("everybody ran");
    for (number, own) in workload.arrivals().iter().enumerate() {
        let passed = (number + 1..run.requests.len()).filter(|&later| planned(later) < planned(number));
        let work: u32 = passed.map(|later| workload.arrivals()[later].prompt.0).sum();
        assert!(work <= 20 * own.prompt.0 + 64, "request {number} waited for {work} tokens of later prompts");
    }
}
