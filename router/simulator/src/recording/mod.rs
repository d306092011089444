//! What a trace of a server tells: who asked for what, when each token came, and what each step cost.
//!
//! Segments that follow each other are read as one. Requests are numbered over a scheduler's whole life, so one that
//! begins in a segment may end in the next; only numbers of blocks mean something within their segment alone.

mod reader;
mod step;

use std::collections::BTreeMap;

use headrace_scheduler::trace::{self, Arrival, SegmentError};
use headrace_scheduler::{Config, Micros, RequestId};

use reader::Reader;
pub(crate) use step::Step;

/// A trace, read.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What the server ran with.
    pub config: Config,
    pub(crate) requests: Vec<Recorded>,
    /// Steps that landed and did not fail.
    pub(crate) steps: Vec<Step>,
    /// Requests that run in the trace and came before it: nothing is known of their prompts.
    pub left_out: usize,
    /// The first and the last moment.
    pub(crate) began: Micros,
    pub(crate) ended: Micros,
}

/// A request that came while the trace was written, in the order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub at: Micros,
    pub arrival: Arrival,
    /// It was not refused.
    pub taken: bool,
    /// When its first step was planned.
    pub planned: Option<Micros>,
    /// When each token of its answer landed.
    pub tokens: Vec<Micros>,
    pub end: Option<End>,
    /// Contents of full blocks by place: equal numbers, equal contents. Of the prompt, and of the answer as far as it
    /// filled blocks.
    pub blocks: BTreeMap<u32, u64>,
}

/// How an answer ended, as far as the trace says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By its length, an end of sequence or a stop string, with its last token.
    Itself,
    /// Its client left.
    Left(Micros),
    /// On the shard.
    Failed,
}

/// Why segments are no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    #[error("there is no segment")]
    Empty,
    #[error("segment {segment}: {reason}")]
    Segment { segment: usize, reason: SegmentError },
    #[error(
        "segment {segment} begins with request {begins}, but the one before it ends before request {expected}: they are \
         not of one run, or one between them is missing; name a single segment"
    )]
    Gap { segment: usize, expected: RequestId, begins: RequestId },
}

impl Recording {
    /// Reads segments in the order in which they were written.
    ///
    /// # Errors
    ///
    /// A segment cannot be read, or does not follow the one before it. Segments count from 1.
    pub fn read(segments: &[Vec<u8>]) -> Result<Self, RecordingError> {
        let at = |segment: usize| move |reason| RecordingError::Segment { segment, reason };
        let first = segments.first().ok_or(RecordingError::Empty)?;
        let mut reader = Reader::new(trace::first_request(first).map_err(at(1))?);
        for (index, bytes) in segments.iter().enumerate() {
            let number = index + 1;
            let begins = trace::first_request(bytes).map_err(at(number))?;
            reader.begin_segment(begins).map_err(|expected| RecordingError::Gap {
                segment: number,
                expected,
                begins,
            })?;
            trace::records(bytes).map_err(at(number))?.into_iter().for_each(|record| reader.read(record));
        }
        Ok(reader.finish(trace::config(first).map_err(at(1))?))
    }

    /// From the first record to the last.
    pub fn duration(&self) -> Micros {
        self.ended.saturating_sub(self.began)
    }

    /// Requests that came while the trace was written.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }
}

/// Bytes at a segment's end that make no whole record. There are some where a server died while it wrote, and where a
/// record's length is damaged: all that follows it is lost.
pub fn unread_bytes(segment: &[u8]) -> usize {
    /// Of the words with which a segment begins.
    const MAGIC: usize = 8;
    let mut rest = segment.get(MAGIC..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        match after.get(u32::from_le_bytes(*length) as usize..) {
            Some(after) => rest = after,
            None => break,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests;
