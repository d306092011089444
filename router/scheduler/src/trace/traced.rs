//! A scheduler that may be writing a trace.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;

use crate::config::Config;
use crate::event::Event;
use crate::plan::{StepOutcome, StepPlan};
use crate::request::{Rejected, Request};
use crate::scheduler::Scheduler;
use crate::trace::record::Record;
use crate::trace::recorder::Recorder;
use crate::units::{Epoch, Micros, RequestId, Row, StepId};

/// A [`Scheduler`] with the same commands; queries go through to it. While it records, whoever owns it must take the
/// bytes ([`take_trace`](Self::take_trace)) and say when a segment is long enough ([`begin_segment`](Self::begin_segment)).
pub struct TracedScheduler {
    scheduler: Scheduler,
    recorder: Option<Recorder>,
}

impl TracedScheduler {
    /// Records nothing yet.
    pub fn new(config: Config) -> Self {
        Self { scheduler: Scheduler::new(config), recorder: None }
    }

    /// Begins a segment, the first or the next. Costs a copy of the scheduler.
    pub fn begin_segment(&mut self) {
        let sampling = self.recorder.take().map_or_else(VecDeque::new, Recorder::into_sampling);
        self.recorder = Some(Recorder::begin(&self.scheduler, sampling));
    }

    /// Stops recording.
    pub fn end_trace(&mut self) {
        self.recorder = None;
    }

    /// What was recorded since the last call.
    pub fn take_trace(&mut self) -> Vec<u8> {
        self.recorder.as_mut().map(Recorder::take).unwrap_or_default()
    }

    /// Bytes of the segment so far; 0 while nothing is recorded.
    pub fn segment_bytes(&self) -> u64 {
        self.recorder.as_ref().map_or(0, Recorder::len)
    }

    /// [`Scheduler::submit`].
    ///
    /// # Errors
    /// As there.
    pub fn submit(&mut self, request: Request, now: Micros) -> Result<RequestId, Rejected> {
        let Some(recorder) = &mut self.recorder else { return self.scheduler.submit(request, now) };
        let taken = self.scheduler.submit(request.clone(), now);
        recorder.submitted(&request, now, taken.as_ref().ok().copied());
        taken
    }

    /// [`Scheduler::cancel`].
    pub fn cancel(&mut self, request: RequestId, now: Micros) {
        self.record(&Record::Cancelled { at: now, request });
        self.scheduler.cancel(request, now);
    }

    /// [`Scheduler::stop`].
    pub fn stop(&mut self, request: RequestId, now: Micros) {
        self.record(&Record::Stopped { at: now, request });
        self.scheduler.stop(request, now);
    }

    /// [`Scheduler::plan_step`].
    pub fn plan_step(&mut self, now: Micros) -> Option<StepPlan> {
        let plan = self.scheduler.plan_step(now);
        if let Some(recorder) = &mut self.recorder {
            recorder.planned(now, plan.as_ref());
        }
        plan
    }

    /// [`Scheduler::complete_step`].
    pub fn complete_step(&mut self, step: StepId, outcome: StepOutcome, now: Micros) {
        if let Some(recorder) = &mut self.recorder {
            recorder.landed(step, &outcome, now);
        }
        self.scheduler.complete_step(step, outcome, now);
    }

    /// [`Scheduler::session_lost`].
    pub fn session_lost(&mut self, now: Micros) {
        if let Some(recorder) = &mut self.recorder {
            recorder.session_lost(now);
        }
        self.scheduler.session_lost(now);
    }

    /// [`Scheduler::poll_event`].
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.scheduler.poll_event()?;
        if let (Some(recorder), Event::Finished { request, .. }) = (&mut self.recorder, &event) {
            recorder.finished(*request);
        }
        Some(event)
    }

    /// [`Scheduler::poll_release`].
    pub fn poll_release(&mut self) -> Option<(Row, Epoch)> {
        self.scheduler.poll_release()
    }

    fn record(&mut self, record: &Record) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(record);
        }
    }
}

impl fmt::Debug for TracedScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scheduler.fmt(f)
    }
}

impl Deref for TracedScheduler {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}
