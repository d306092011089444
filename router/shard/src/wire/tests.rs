//! What goes over the wire comes back unchanged, and nothing that comes from there can panic.

use bytes::Bytes;
use headrace_scheduler::{
    Admission, BlockId, Chunk, Decode, Epoch, HostBlock, RequestId, Row, StepId, StepPlan, SwapIn, SwapOut, Tokens,
};
use proptest::prelude::*;
use prost::Message;

use super::pack::{pack_f32, pack_u32, unpack_u32};
use super::{StepKind, check_plan, encode_filter, encode_step, result};
use crate::expected::{Expected, Report, RowAsks};
use crate::proto;
use crate::result::StepResult;
use crate::sampling::Sampling;

const VOCAB: u32 = 50;

prop_compose! {
    fn any_sampling()(
        logprobs: bool, top_n in 0u32..4, prompt_logprobs: bool, seed: u64, temperature in 0f32..2.0,
        top_p in prop::option::of(0.1f32..1.0), logit_bias in prop::collection::vec((0..VOCAB, -9f32..9.0), 0..3),
    ) -> Sampling {
        Sampling { logprobs, top_n, prompt_logprobs, seed, temperature, top_p, logit_bias, ..Sampling::greedy() }
    }
}

#[derive(Clone, Debug)]
struct RowPlan {
    tokens: Vec<u32>,
    /// Of a row with a chunk; `None` decodes.
    chunk: Option<Sampling>,
    samples: bool,
    table: Vec<u32>,
}

prop_compose! {
    fn any_row()(
        tokens in prop::collection::vec(0..VOCAB, 1..9),
        chunk in prop::option::of(any_sampling()),
        samples: bool,
        table in prop::collection::vec(any::<u32>(), 0..4),
    ) -> RowPlan {
        RowPlan { tokens, chunk, samples, table }
    }
}

/// Row i is the i-th; those with a chunk are admitted.
fn plan_of(rows: &[RowPlan]) -> (StepPlan, Vec<Sampling>) {
    let mut plan = StepPlan::new(StepId(7));
    let mut parameters = vec![];
    for (row, planned) in (0u32..).zip(rows) {
        let (request, row) = (RequestId(row.into()), Row(row));
        let start = plan.blocks.len() as u32;
        plan.blocks.extend(planned.table.iter().map(|&block| BlockId(block)));
        let blocks = start..plan.blocks.len() as u32;
        let Some(sampling) = &planned.chunk else {
            plan.decodes.push(Decode { request, row, position: Tokens(3), blocks });
            continue;
        };
        let (tokens, count) = (planned.tokens.clone(), Tokens(planned.tokens.len() as u32));
        let epoch = Epoch(u64::from(row.0) + 1);
        plan.admitted.push(Admission { request, row, epoch, tokens, generated: Tokens(0), computed: Tokens(0) });
        plan.chunks.push(Chunk { request, row, start: Tokens(0), tokens: count, samples: planned.samples, blocks });
        parameters.push(sampling.clone());
    }
    (plan, parameters)
}

fn words(packed: &[u8]) -> Vec<u32> {
    unpack_u32("field", packed, packed.len() / 4).expect("whole words").collect()
}

/// A right answer to what was expected: tokens and values from a counter, then what they must be read as.
fn answer_to(expected: &Expected) -> proto::StepResult {
    let mut next = 0u32;
    let mut count = |n: usize| {
        let values: Vec<u32> = (0..n as u32).map(|i| (next + i) % VOCAB).collect();
        next += n as u32;
        values
    };
    let asked = expected.reports.iter().filter(|report| report.logprob).count();
    let top = expected.reports.iter().map(|report| report.top_n).sum();
    let positions = expected.prompts.iter().map(|(_, positions)| positions).sum();
    let mut floats = |n| pack_f32(count(n).into_iter().map(|value| -(value as f32)));
    let (logprobs, top_logprobs, prompt_logprobs) = (floats(asked), floats(top), floats(positions));
    proto::StepResult {
        sequence: 1,
        step: expected.step.0,
        token_ids: pack_u32(count(expected.sampling.len()).into_iter()),
        logprobs,
        top_ids: pack_u32(count(top).into_iter()),
        top_logprobs,
        prompt_logprobs,
        ..Default::default()
    }
}

/// A result as the arrays that it was read from.
fn arrays_of(result: &StepResult) -> [Vec<u32>; 5] {
    let top = || result.samples.iter().flat_map(|sample| &sample.top);
    let bits = |value: &f32| value.to_bits();
    [
        result.samples.iter().map(|sample| sample.token).collect(),
        result.samples.iter().filter_map(|sample| sample.logprob.as_ref().map(bits)).collect(),
        top().map(|(token, _)| *token).collect(),
        top().map(|(_, logprob)| bits(logprob)).collect(),
        result.prompt_logprobs.iter().flat_map(|(_, logprobs)| logprobs.iter().map(bits)).collect(),
    ]
}

proptest! {
    #[test]
    fn a_plan_survives_the_wire(rows in prop::collection::vec(any_row(), 1..8), sequence: u64) {
        let (plan, sampling) = plan_of(&rows);
        prop_assert!(check_plan(&plan, &sampling, 0).is_ok());
        let (kind, bytes) = encode_step(sequence, &plan, &sampling).expect("a sendable plan");

        let (step, decode_rows, tables) = if kind == StepKind::Decode {
            let message = proto::DecodeStep::decode(bytes).expect("a DecodeStep");
            prop_assert!(plan.chunks.is_empty());
            prop_assert_eq!(message.sequence, sequence);
            (message.step, message.decode_rows, message.tables)
        } else {
            let message = proto::PrefillStep::decode(bytes).expect("a PrefillStep");
            prop_assert_eq!(message.sequence, sequence);
            prop_assert_eq!(words(&message.chunk_rows), plan.chunks.iter().map(|c| c.row.0).collect::<Vec<_>>());
            prop_assert_eq!(words(&message.chunk_tokens), plan.chunks.iter().map(|c| c.tokens.0).collect::<Vec<_>>());
            for ((row, admission), sampling) in message.new_rows.iter().zip(&plan.admitted).zip(&sampling) {
                prop_assert_eq!((row.row, row.epoch), (admission.row.0, admission.epoch.0));
                prop_assert_eq!(&words(&row.token_ids), &admission.tokens);
                let sent = row.sampling.as_ref().expect("sampling is always sent");
                prop_assert_eq!((sent.seed, sent.top_p, sent.top_n), (sampling.seed, sampling.top_p, sampling.top_n));
                prop_assert_eq!(words(&sent.logit_bias_ids).len(), sampling.logit_bias.len());
            }
            prop_assert_eq!(message.new_rows.len(), plan.admitted.len());
            (message.step, message.decode_rows, message.tables)
        };
        prop_assert_eq!(step, 7);
        prop_assert_eq!(words(&decode_rows), plan.decodes.iter().map(|decode| decode.row.0).collect::<Vec<_>>());
        let in_wire_order = || rows.iter().filter(|r| r.chunk.is_some()).chain(rows.iter().filter(|r| r.chunk.is_none()));
        let tables = tables.expect("tables are always sent");
        prop_assert_eq!(words(&tables.lengths), in_wire_order().map(|r| r.table.len() as u32).collect::<Vec<_>>());
        prop_assert_eq!(words(&tables.blocks), in_wire_order().flat_map(|r| r.table.clone()).collect::<Vec<_>>());
    }

    /// On either stream; a step that swaps nothing says nothing of it.
    #[test]
    fn swaps_survive_the_wire(
        row in any_row(),
        out in prop::collection::vec(any::<(u32, u32)>(), 0..5),
        back in prop::collection::vec(any::<(u32, u32)>(), 0..5),
    ) {
        let (mut plan, sampling) = plan_of(&[row]);
        plan.swaps_out.extend(out.iter().map(|&(block, host)| SwapOut { block: BlockId(block), host: HostBlock(host) }));
        plan.swaps_in.extend(back.iter().map(|&(host, block)| SwapIn { host: HostBlock(host), block: BlockId(block) }));
        let (kind, bytes) = encode_step(1, &plan, &sampling).expect("a sendable plan");
        let swaps = match kind {
            StepKind::Prefill => proto::PrefillStep::decode(bytes).expect("a PrefillStep").swaps,
            StepKind::Decode => proto::DecodeStep::decode(bytes).expect("a DecodeStep").swaps,
        };
        prop_assert_eq!(swaps.is_none(), out.is_empty() && back.is_empty());
        let swaps = swaps.unwrap_or_default();
        let flat = |pairs: &[(u32, u32)]| pairs.iter().flat_map(|&(from, to)| [from, to]).collect::<Vec<_>>();
        prop_assert_eq!((words(&swaps.out), words(&swaps.back)), (flat(&out), flat(&back)));
    }

    #[test]
    fn a_right_answer_is_read_back_array_for_array(rows in prop::collection::vec(any_row(), 1..8)) {
        let (plan, sampling) = plan_of(&rows);
        let expected = RowAsks::default().expect(&plan, &sampling);
        let answer = answer_to(&expected);
        let sent = [&answer.token_ids, &answer.logprobs, &answer.top_ids, &answer.top_logprobs, &answer.prompt_logprobs]
            .map(|field| words(field));
        let read = result(&expected, std::slice::from_ref(&answer), VOCAB).expect("a right answer");
        prop_assert_eq!(arrays_of(&read), sent);
        prop_assert_eq!(read.samples.len(), plan.sampling_rows().count());
        for (sample, (_, row)) in read.samples.iter().zip(plan.sampling_rows()) {
            let asked = rows[row.0 as usize].chunk.as_ref();
            prop_assert_eq!(sample.logprob.is_some(), asked.is_some_and(|sampling| sampling.logprobs));
            prop_assert_eq!(sample.top.len(), asked.map_or(0, |sampling| sampling.top_n as usize));
        }
    }

    /// Whatever bytes a shard sends: a result or an error, no panic.
    #[test]
    fn no_answer_can_panic(
        rows in prop::collection::vec(any_row(), 1..4),
        fields in prop::array::uniform5(prop::collection::vec(any::<u8>(), 0..20)),
        row_errors in prop::collection::vec(0u32..5, 0..3),
    ) {
        let (plan, sampling) = plan_of(&rows);
        let expected = RowAsks::default().expect(&plan, &sampling);
        let [token_ids, logprobs, top_ids, top_logprobs, prompt_logprobs] = fields.map(Bytes::from);
        let row_errors = row_errors.into_iter().map(|row| proto::RowError { row, message: String::new() }).collect();
        let answer = proto::StepResult {
            token_ids, logprobs, top_ids, top_logprobs, prompt_logprobs, row_errors, ..Default::default()
        };
        let _ = result(&expected, &[answer], VOCAB);
    }

    #[test]
    fn a_filter_survives_the_wire(rows in prop::collection::vec(any::<(u32, u64)>(), 1..9), sequence: u64) {
        let ended: Vec<_> = rows.iter().map(|&(row, epoch)| (Row(row), Epoch(epoch))).collect();
        let message = proto::FilterRows::decode(encode_filter(sequence, &ended)).expect("a FilterRows");
        prop_assert_eq!(message.sequence, sequence);
        prop_assert_eq!(words(&message.rows), rows.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        let epochs: Vec<u8> = rows.iter().flat_map(|(_, epoch)| epoch.to_le_bytes()).collect();
        prop_assert_eq!(&message.epochs[..], &epochs[..]);
    }
}

#[test]
fn a_failed_row_reports_nothing_even_where_rank_0_has_values() {
    let expected = Expected {
        step: StepId(1),
        sampling: vec![Row(3)],
        silent: vec![],
        reports: vec![Report { sample: 0, logprob: true, top_n: 1 }],
        prompts: vec![],
    };
    let mut answer = answer_to(&expected);
    answer.token_ids = pack_u32([VOCAB].into_iter()); // not even an id
    answer.row_errors = vec![proto::RowError { row: 3, message: "overflow".into() }];
    let read = result(&expected, &[answer], VOCAB).expect("only the row failed");
    let sample = &read.samples[0];
    assert_eq!((sample.token, sample.top.len()), (0, 0));
    assert!(sample.logprob.is_some_and(f32::is_nan));
}

#[test]
fn a_message_above_the_limit_is_not_sent() {
    let rows = [RowPlan {
        tokens: vec![1; super::MAX_MESSAGE_BYTES / 4],
        chunk: Some(Sampling::greedy()),
        samples: true,
        table: vec![],
    }];
    let (plan, sampling) = plan_of(&rows);
    let error = encode_step(1, &plan, &sampling).expect_err("too large").to_string();
    assert!(error.contains("the limit is 67108864"), "{error}");
}
