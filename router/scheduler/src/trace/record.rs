//! What a segment is made of, and how it is written: postcard's varints, each record behind its length.

use serde::{Deserialize, Serialize};

use crate::plan::StepPlan;
use crate::request::{Priority, Tenant};
use crate::units::{Blocks, Micros, RequestId, StepId, Tokens};

/// First bytes of every segment: the format and its version.
pub(crate) const MAGIC: &[u8; 8] = b"hrtrace4";

/// One input of the scheduler, or what it decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    Submitted {
        at: Micros,
        arrival: Arrival,
        taken: bool,
    },
    Cancelled {
        at: Micros,
        request: RequestId,
    },
    Stopped {
        at: Micros,
        request: RequestId,
    },
    SessionLost {
        at: Micros,
    },
    /// `None`: there was nothing to do.
    Planned {
        at: Micros,
        plan: Option<PlanRecord>,
    },
    Landed {
        at: Micros,
        step: StepId,
        ended: Ended,
    },
    /// The block at `index` of a request is full, and this is its number.
    Filled {
        request: RequestId,
        index: Blocks,
        number: u32,
    },
}

/// What came of a step. New ways stand at the end: a trace knows them by their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    Failed,
    Done(Outcome),
    OutOfMemory,
}

/// A request without its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    pub prompt: Tokens,
    /// Numbers of the prompt's full blocks.
    pub blocks: Vec<u32>,
    pub root: u32,
    pub max_new_tokens: Tokens,
    pub ignore_eos: bool,
    pub tenant: Tenant,
    pub priority: Priority,
    pub deadline: Option<Micros>,
    pub reads_cache: bool,
    pub fork_of: Option<RequestId>,
}

/// A plan: who computes which range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    pub step: StepId,
    /// Request, row, epoch, tokens known, tokens cached.
    pub admitted: Vec<(u64, u32, u64, u32, u32)>,
    /// Request, row, start, tokens, whether it samples.
    pub chunks: Vec<(u64, u32, u32, u32, bool)>,
    /// Request, row, position.
    pub decodes: Vec<(u64, u32, u32)>,
    /// A hash of all block tables, swaps and copies.
    pub tables: u64,
}

/// What came of a step, without its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub took: Micros,
    pub samples: u32,
    /// Samples that ended their answer, by place.
    pub ends: Vec<u32>,
    /// Samples that failed, by place.
    pub failed_samples: Vec<u32>,
    pub failed_rows: Vec<u32>,
}

impl PlanRecord {
    pub(crate) fn of(plan: &StepPlan) -> Self {
        let admitted = plan.admitted.iter().map(|admission| {
            let (known, computed) = (admission.tokens.len() as u32, admission.computed.0);
            (admission.request.0, admission.row.0, admission.epoch.0, known, computed)
        });
        let chunks = plan.chunks.iter();
        let chunks = chunks.map(|chunk| (chunk.request.0, chunk.row.0, chunk.start.0, chunk.tokens.0, chunk.samples));
        let decodes = plan.decodes.iter().map(|decode| (decode.request.0, decode.row.0, decode.position.0));
        Self {
            step: plan.step,
            admitted: admitted.collect(),
            chunks: chunks.collect(),
            decodes: decodes.collect(),
            tables: hash(plan),
        }
    }
}

fn hash(plan: &StepPlan) -> u64 {
    let tables = plan.blocks.iter().map(|block| block.0);
    let outs = plan.swaps_out.iter().flat_map(|swap| [swap.block.0, swap.host.0]);
    let ins = plan.swaps_in.iter().flat_map(|swap| [swap.host.0, swap.block.0]);
    let copies = plan.copies.iter().flat_map(|copy| [copy.from.0, copy.to.0]);
    let numbers = tables.chain(outs).chain(ins).chain(copies);
    numbers.fold(0xcbf2_9ce4_8422_2325, |hash, number| (hash ^ u64::from(number)).wrapping_mul(0x0100_0000_01b3))
}

/// The bytes are no segment, or one that was cut short.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    #[error("this is no trace, or one of another version: it does not begin with \"hrtrace4\"")]
    NoTrace,
    #[error("the trace's beginning cannot be read: {0}")]
    Header(String),
    #[error("record {number} cannot be read: {reason}")]
    Record { number: usize, reason: String },
}

/// Appends a value behind its length.
pub(crate) fn write(bytes: &mut Vec<u8>, value: &impl Serialize) {
    // Into memory, and of types that postcard knows: it cannot fail. If it did, the record would be missing, and a
    // replay would say so.
    if let Ok(record) = postcard::to_allocvec(value) {
        bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&record);
    }
}

/// The first value of `bytes`, and what follows it; `None`: the bytes end before the value does.
pub(crate) fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    (rest.len() >= length).then(|| rest.split_at(length))
}

/// The records of a segment, in order. One that was being written when the process ended is left out.
///
/// # Errors
/// The bytes are not a segment's.
pub fn records(segment: &[u8]) -> Result<Vec<Record>, SegmentError> {
    let rest = segment.strip_prefix(MAGIC.as_slice()).ok_or(SegmentError::NoTrace)?;
    let (_, mut rest) = next(rest).ok_or_else(|| SegmentError::Header("it is cut short".to_owned()))?;
    let mut records = Vec::new();
    while let Some((record, after)) = next(rest) {
        let number = records.len();
        let read = postcard::from_bytes(record);
        records.push(read.map_err(|error| SegmentError::Record { number, reason: error.to_string() })?);
        rest = after;
    }
    Ok(records)
}
