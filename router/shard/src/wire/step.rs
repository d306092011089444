//! Plans and filters as the messages of `proto/shard.proto`, encoded once for all ranks.

use bytes::Bytes;
use headrace_scheduler::{Admission, Epoch, Row, StepPlan};
use prost::Message;

use super::pack::{pack_f32, pack_u32, pack_u64};
use super::{MAX_MESSAGE_BYTES, table, tables};
use crate::error::ShardError;
use crate::proto;
use crate::sampling::Sampling;

/// Which stream carries a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Prefill,
    Decode,
}

/// A checked plan as one message: Prefill if it has chunks, else Decode.
///
/// # Errors
/// `Misuse` for a message above [`MAX_MESSAGE_BYTES`].
pub(crate) fn encode_step(
    sequence: u64,
    plan: &StepPlan,
    sampling: &[Sampling],
) -> Result<(StepKind, Bytes), ShardError> {
    let (kind, bytes) = if plan.chunks.is_empty() {
        (StepKind::Decode, decode_step(sequence, plan)?.encode_to_vec())
    } else {
        (StepKind::Prefill, prefill_step(sequence, plan, sampling)?.encode_to_vec())
    };
    if bytes.len() > MAX_MESSAGE_BYTES {
        let reason = format!("step {} takes {} bytes, the limit is {MAX_MESSAGE_BYTES}", plan.step, bytes.len());
        return Err(ShardError::Misuse { reason });
    }
    Ok((kind, bytes.into()))
}

/// Rows whose epoch ended, as one message.
pub(crate) fn encode_filter(sequence: u64, rows: &[(Row, Epoch)]) -> Bytes {
    let message = proto::FilterRows {
        sequence,
        rows: pack_u32(rows.iter().map(|(row, _)| row.0)),
        epochs: pack_u64(rows.iter().map(|(_, epoch)| epoch.0)),
    };
    message.encode_to_vec().into()
}

fn prefill_step(sequence: u64, plan: &StepPlan, sampling: &[Sampling]) -> Result<proto::PrefillStep, ShardError> {
    Ok(proto::PrefillStep {
        sequence,
        step: plan.step.0,
        new_rows: plan
            .admitted
            .iter()
            .zip(sampling)
            .map(|(admission, sampling)| new_row(admission, sampling))
            .collect(),
        chunk_rows: pack_u32(plan.chunks.iter().map(|chunk| chunk.row.0)),
        chunk_tokens: pack_u32(plan.chunks.iter().map(|chunk| chunk.tokens.0)),
        decode_rows: decode_rows(plan),
        tables: Some(block_tables(plan)?),
        copies: pack_u32(plan.copies.iter().flat_map(|copy| [copy.from.0, copy.to.0])),
        swaps: swaps(plan),
    })
}

fn decode_step(sequence: u64, plan: &StepPlan) -> Result<proto::DecodeStep, ShardError> {
    Ok(proto::DecodeStep {
        sequence,
        step: plan.step.0,
        decode_rows: decode_rows(plan),
        tables: Some(block_tables(plan)?),
        swaps: swaps(plan),
    })
}

/// `None` for the usual step, which swaps nothing.
fn swaps(plan: &StepPlan) -> Option<proto::Swaps> {
    let any = !(plan.swaps_out.is_empty() && plan.swaps_in.is_empty());
    any.then(|| proto::Swaps {
        out: pack_u32(plan.swaps_out.iter().flat_map(|swap| [swap.block.0, swap.host.0])),
        back: pack_u32(plan.swaps_in.iter().flat_map(|swap| [swap.host.0, swap.block.0])),
    })
}

fn decode_rows(plan: &StepPlan) -> Bytes {
    pack_u32(plan.decodes.iter().map(|decode| decode.row.0))
}

fn block_tables(plan: &StepPlan) -> Result<proto::BlockTables, ShardError> {
    let mut blocks = Vec::with_capacity(plan.blocks.len() * 4);
    for range in tables(plan) {
        let table = table(plan, range).map_err(|reason| ShardError::Misuse { reason })?;
        table.iter().for_each(|block| blocks.extend_from_slice(&block.0.to_le_bytes()));
    }
    let lengths = pack_u32(tables(plan).map(|range| range.end - range.start));
    Ok(proto::BlockTables { lengths, blocks: blocks.into() })
}

fn new_row(admission: &Admission, sampling: &Sampling) -> proto::NewRow {
    proto::NewRow {
        row: admission.row.0,
        epoch: admission.epoch.0,
        token_ids: pack_u32(admission.tokens.iter().copied()),
        num_generated: admission.generated.0,
        num_computed: admission.computed.0,
        sampling: Some(sampling_message(sampling)),
    }
}

fn sampling_message(sampling: &Sampling) -> proto::Sampling {
    proto::Sampling {
        temperature: sampling.temperature,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        typical_p: sampling.typical_p,
        min_p: sampling.min_p,
        repetition_penalty: sampling.repetition_penalty,
        frequency_penalty: sampling.frequency_penalty,
        presence_penalty: sampling.presence_penalty,
        seed: sampling.seed,
        logit_bias_ids: pack_u32(sampling.logit_bias.iter().map(|(token, _)| *token)),
        logit_bias_values: pack_f32(sampling.logit_bias.iter().map(|(_, bias)| *bias)),
        logprobs: sampling.logprobs,
        top_n: sampling.top_n,
        prompt_logprobs: sampling.prompt_logprobs,
    }
}
