//! Runs a segment again and compares every plan.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::plan::{Sample, StepOutcome};
use crate::request::Request;
use crate::scheduler::Scheduler;
use crate::trace::names::{END, numbered, unnamed};
use crate::trace::record::{Arrival, Ended, MAGIC, Outcome, PlanRecord, Record, SegmentError, next, records};
use crate::units::{Blocks, Micros, RequestId, Row, StepId, TokenId, Tokens};

/// Numbers of blocks that filled up while the segment was recorded.
type Filled = BTreeMap<(RequestId, Blocks), u32>;

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Records of the segment.
    pub records: usize,
    /// Plans that were made again, byte for byte.
    pub plans: u64,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error(transparent)]
    Difference(#[from] Box<Difference>),
}

/// The first decision that is another one than was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {record}: recorded was\n  {recorded}\nand now it is\n  {now}")]
pub struct Difference {
    pub record: usize,
    pub recorded: String,
    pub now: String,
}

/// Replays a segment, from its snapshot to its last record.
///
/// # Errors
/// The bytes are no segment, or a decision differs: the first one that does.
pub fn replay(segment: &[u8]) -> Result<Replayed, ReplayError> {
    let records = records(segment)?;
    let filled = filled(&records);
    let mut replay = Replay { scheduler: snapshot(segment, &filled)?, filled, plans: 0 };
    for (number, record) in records.iter().enumerate() {
        replay.step(record).map_err(|difference| Box::new(Difference { record: number, ..difference }))?;
    }
    Ok(Replayed { records: records.len(), plans: replay.plans })
}

/// What the recorded scheduler ran with; of its ends of sequences only that there are some is known.
///
/// # Errors
/// The bytes are not a segment's.
pub fn config(segment: &[u8]) -> Result<Config, SegmentError> {
    Ok(snapshot(segment, &Filled::new())?.config)
}

/// The number of the segment's first request that is taken; each later one has the next. Requests with lower numbers
/// came before the segment.
///
/// # Errors
/// The bytes are not a segment's.
pub fn first_request(segment: &[u8]) -> Result<RequestId, SegmentError> {
    Ok(snapshot(segment, &Filled::new())?.sequences.next_id())
}

struct Replay {
    scheduler: Scheduler,
    filled: Filled,
    plans: u64,
}

impl Replay {
    fn step(&mut self, record: &Record) -> Result<(), Difference> {
        match record {
            Record::Submitted { at, arrival, taken } => self.submit(*at, arrival, *taken)?,
            Record::Cancelled { at, request } => self.scheduler.cancel(*request, *at),
            Record::Stopped { at, request } => self.scheduler.stop(*request, *at),
            Record::SessionLost { at } => self.scheduler.session_lost(*at),
            Record::Planned { at, plan } => {
                let now = self.scheduler.plan_step(*at).as_ref().map(PlanRecord::of);
                compare(plan, &now)?;
                self.plans += u64::from(now.is_some());
            }
            Record::Landed { at, step, ended } => self.land(*at, *step, ended),
            Record::Filled { .. } => {}
        }
        while self.scheduler.poll_event().is_some() {}
        while self.scheduler.poll_release().is_some() {}
        Ok(())
    }

    fn submit(&mut self, at: Micros, arrival: &Arrival, taken: bool) -> Result<(), Difference> {
        let id = self.scheduler.sequences.next_id();
        let request = Request {
            ignore_eos: arrival.ignore_eos,
            tenant: arrival.tenant,
            priority: arrival.priority,
            deadline: arrival.deadline,
            root: numbered(arrival.root),
            reads_cache: arrival.reads_cache,
            fork_of: arrival.fork_of,
            ..Request::new(self.prompt(id, arrival), arrival.max_new_tokens)
        };
        compare(&taken, &self.scheduler.submit(request, at).is_ok())
    }

    fn prompt(&self, id: RequestId, arrival: &Arrival) -> Vec<TokenId> {
        let size = self.scheduler.config.block_size;
        let block = |position: u32| position / size.0;
        let named = |position: u32| arrival.blocks.get(block(position) as usize).copied();
        (0..arrival.prompt.0)
            .map(|position| named(position).unwrap_or_else(|| name(&self.filled, id, Tokens(position), size)))
            .collect()
    }

    fn land(&mut self, at: Micros, step: StepId, ended: &Ended) {
        let outcome = match ended {
            Ended::OutOfMemory => StepOutcome::OutOfMemory,
            Ended::Failed => StepOutcome::Failed,
            Ended::Done(outcome) => StepOutcome::Done {
                samples: (0..outcome.samples).map(|place| self.sample(step, place, outcome)).collect(),
                failed: outcome.failed_rows.iter().map(|&row| Row(row)).collect(),
                took: outcome.took,
            },
        };
        self.scheduler.complete_step(step, outcome, at);
    }

    /// The token at a place of a step's samples, as far as it is known: its block's number.
    fn sample(&self, step: StepId, place: u32, outcome: &Outcome) -> Sample {
        if outcome.failed_samples.contains(&place) {
            return Sample::Failed;
        }
        let Some((request, position)) = self.scheduler.next_position(step, place) else { return Sample::Token(0) };
        // Who goes on past ends of sequences may fill a block with one.
        let ends = outcome.ends.contains(&place) && !self.scheduler.ignores_eos(request);
        Sample::Token(if ends { END } else { name(&self.filled, request, position, self.scheduler.config.block_size) })
    }
}

fn name(filled: &Filled, request: RequestId, position: Tokens, block_size: Tokens) -> TokenId {
    let block = Blocks(position.0 / block_size.0);
    filled.get(&(request, block)).copied().unwrap_or_else(|| unnamed(request))
}

fn filled(records: &[Record]) -> Filled {
    let number = |record: &Record| match record {
        Record::Filled { request, index, number } => Some(((*request, *index), *number)),
        _ => None,
    };
    records.iter().filter_map(number).collect()
}

/// The scheduler as the segment began, with the numbers that its unfinished blocks got later.
fn snapshot(segment: &[u8], filled: &Filled) -> Result<Scheduler, SegmentError> {
    let rest = segment.strip_prefix(MAGIC.as_slice()).ok_or(SegmentError::NoTrace)?;
    let (header, _) = next(rest).ok_or_else(|| SegmentError::Header("it is cut short".to_owned()))?;
    let mut scheduler: Scheduler =
        postcard::from_bytes(header).map_err(|error| SegmentError::Header(error.to_string()))?;
    let size = scheduler.config.block_size;
    let handles: Vec<_> = scheduler.sequences.handles().collect();
    for handle in handles {
        let tokens = &mut scheduler.sequences[handle].tokens;
        for position in tokens.len() / size.0 as usize * size.0 as usize..tokens.len() {
            tokens[position] = name(filled, handle.request, Tokens(position as u32), size);
        }
    }
    Ok(scheduler)
}

fn compare<T: PartialEq + std::fmt::Debug>(recorded: &T, now: &T) -> Result<(), Difference> {
    if recorded == now {
        return Ok(());
    }
    Err(Difference { record: 0, recorded: format!("{recorded:?}"), now: format!("{now:?}") })
}
