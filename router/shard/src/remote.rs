//! A session of N ranks: one message to all, a step complete when all have answered.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use headrace_scheduler::{Epoch, Row, StepPlan};
use tokio::time::{Instant, Sleep, sleep};

use crate::error::ShardError;
use crate::expected::{Expected, RowAsks};
use crate::hang::Inquiry;
use crate::proto;
use crate::rank::Rank;
use crate::result::StepResult;
use crate::sampling::Sampling;
use crate::streams::RankStreams;
use crate::wire::{check_plan, encode_filter, encode_step, result};

/// Everything is driven by `next_result`: no task of its own, so nothing outlives the session.
#[derive(Debug)]
pub(crate) struct RemoteSession {
    ranks: Arc<[Rank]>,
    /// By rank; empty when the session is over.
    streams: Vec<RankStreams>,
    vocab_size: u32,
    /// Of the last message sent.
    sequence: u64,
    /// Unanswered steps, oldest first.
    steps: VecDeque<Step>,
    asks: RowAsks,
    limit: Duration,
    /// The oldest step's; meaningless without one.
    deadline: Pin<Box<Sleep>>,
    /// Begun when the deadline has passed; an answer that comes meanwhile is not too late.
    inquiry: Option<Inquiry>,
    ended: Option<ShardError>,
}

#[derive(Debug)]
struct Step {
    sequence: u64,
    expected: Expected,
    /// By rank.
    answers: Vec<Option<proto::StepResult>>,
}

impl RemoteSession {
    /// Both in the order of ranks; at least one. Must be called in a tokio runtime.
    pub(crate) fn new(ranks: Arc<[Rank]>, streams: Vec<RankStreams>, vocab_size: u32) -> Self {
        let limit = ranks[0].step_deadline();
        Self {
            ranks,
            streams,
            vocab_size,
            sequence: 0,
            steps: VecDeque::new(),
            asks: RowAsks::default(),
            limit,
            deadline: Box::pin(sleep(limit)),
            inquiry: None,
            ended: None,
        }
    }

    pub(crate) fn send_filter(&mut self, rows: &[(Row, Epoch)]) -> Result<(), ShardError> {
        self.run(|session| {
            session.asks.filter(rows);
            session.sequence += 1;
            let sequence = session.sequence;
            let message = encode_filter(sequence, rows);
            session.streams.iter_mut().try_for_each(|rank| rank.send_filter(sequence, message.clone()))
        })
    }

    pub(crate) fn send_step(&mut self, plan: &StepPlan, sampling: &[Sampling]) -> Result<(), ShardError> {
        self.run(|session| {
            check_plan(plan, sampling, session.steps.len())?;
            let sequence = session.sequence + 1;
            let (kind, message) = encode_step(sequence, plan, sampling)?;
            session.sequence = sequence;
            for rank in &mut session.streams {
                rank.send_step(kind, sequence, message.clone())?;
            }
            if session.steps.is_empty() {
                session.restart_deadline();
            }
            let answers = session.streams.iter().map(|_| None).collect();
            session.steps.push_back(Step { sequence, expected: session.asks.expect(plan, sampling), answers });
            Ok(())
        })
    }

    /// Cancel-safe: all state is in `self`, and nothing is taken out before the result is returned.
    pub(crate) async fn next_result(&mut self) -> Result<StepResult, ShardError> {
        poll_fn(|cx| self.poll_result(cx)).await
    }

    fn poll_result(&mut self, cx: &mut Context<'_>) -> Poll<Result<StepResult, ShardError>> {
        if self.ended.is_none()
            && let Err(error) = self.take_answers(cx)
        {
            self.end(error);
        }
        self.poll_oldest(cx)
    }

    /// Files every answer that is there. Also notices broken streams when no step is under way.
    fn take_answers(&mut self, cx: &mut Context<'_>) -> Result<(), ShardError> {
        for (rank, streams) in self.streams.iter_mut().enumerate() {
            while let Poll::Ready(answer) = streams.poll_answer(cx) {
                file(&mut self.steps, rank, answer?)?;
            }
        }
        Ok(())
    }

    /// The oldest step's result if all ranks have answered, also when the session has ended since; who holds it up if
    /// they had the time.
    fn poll_oldest(&mut self, cx: &mut Context<'_>) -> Poll<Result<StepResult, ShardError>> {
        let complete = self.steps.front().map(Step::is_complete);
        if complete == Some(true)
            && let Some(step) = self.steps.pop_front()
        {
            self.restart_deadline();
            let answers: Vec<_> = step.answers.into_iter().flatten().collect();
            return Poll::Ready(result(&step.expected, &answers, self.vocab_size).map_err(|error| self.end(error)));
        }
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        let Some(oldest) = self.steps.front() else { return Poll::Pending };
        let inquiry = match &mut self.inquiry {
            Some(inquiry) => inquiry,
            none => {
                ready!(self.deadline.as_mut().poll(cx));
                none.insert(Inquiry::begin(oldest.missing(&self.ranks), self.limit))
            }
        };
        let error = ready!(inquiry.poll(cx));
        Poll::Ready(Err(self.end(error)))
    }

    /// A step's time begins when nothing older is under way.
    fn restart_deadline(&mut self) {
        self.inquiry = None;
        self.deadline.as_mut().reset(Instant::now() + self.limit);
    }

    /// Sends something in an open session; the first error ends it.
    fn run(&mut self, send: impl FnOnce(&mut Self) -> Result<(), ShardError>) -> Result<(), ShardError> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        send(self).map_err(|error| self.end(error))
    }

    fn end(&mut self, error: ShardError) -> ShardError {
        self.streams.clear(); // the shards see their streams end
        self.ended.get_or_insert(error).clone()
    }
}

impl Step {
    fn is_complete(&self) -> bool {
        self.answers.iter().all(Option::is_some)
    }

    /// Those of `ranks` that have not answered.
    fn missing(&self, ranks: &[Rank]) -> Vec<Rank> {
        ranks.iter().zip(&self.answers).filter(|(_, answer)| answer.is_none()).map(|(rank, _)| rank.clone()).collect()
    }
}

fn file(steps: &mut VecDeque<Step>, rank: usize, answer: proto::StepResult) -> Result<(), ShardError> {
    let protocol = |reason| Err(ShardError::Protocol { rank: rank as u32, reason });
    let sequence = answer.sequence;
    let Some(step) = steps.iter_mut().find(|step| step.sequence == sequence) else {
        return protocol(format!("it answered message {sequence}, which is no step under way"));
    };
    if answer.step != step.expected.step.0 {
        let expected = step.expected.step;
        return protocol(format!("message {sequence} was step {expected}, it answered for step {}", answer.step));
    }
    step.answers[rank] = Some(answer);
    Ok(())
}
