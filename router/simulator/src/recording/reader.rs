//! Follows records one by one, as far as needed to know whose token each sample was.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headrace_scheduler::trace::{Arrival, Ended, Outcome, PlanRecord, Record};
use headrace_scheduler::{Blocks, Config, Micros, RequestId, StepId};

use super::step::{Behind, Planned, Step};
use super::{End, Recorded, Recording};

pub(super) struct Reader {
    requests: Vec<Recorded>,
    /// Places of taken requests.
    places: BTreeMap<RequestId, usize>,
    next: RequestId,
    steps: Vec<Step>,
    /// Oldest first.
    in_flight: VecDeque<Planned>,
    /// Seen in plans, but came before the trace.
    earlier: BTreeSet<RequestId>,
    segment: u64,
    began: Option<Micros>,
    ended: Micros,
}

impl Reader {
    pub fn new(next: RequestId) -> Self {
        Self {
            requests: Vec::new(),
            places: BTreeMap::new(),
            next,
            steps: Vec::new(),
            in_flight: VecDeque::new(),
            earlier: BTreeSet::new(),
            segment: 0,
            began: None,
            ended: Micros::ZERO,
        }
    }

    /// The error is the request with which a segment that follows would begin.
    pub fn begin_segment(&mut self, begins: RequestId) -> Result<(), RequestId> {
        self.segment += 1;
        if begins == self.next { Ok(()) } else { Err(self.next) }
    }

    pub fn read(&mut self, record: Record) {
        match record {
            Record::Submitted { at, arrival, taken } => self.submitted(at, arrival, taken),
            Record::Cancelled { at, request } => {
                self.at(at);
                self.end(request, End::Left(at));
            }
            Record::Stopped { at, request } => {
                self.at(at);
                self.end(request, End::Itself);
            }
            Record::SessionLost { at } => {
                self.at(at);
                self.in_flight.clear();
            }
            Record::Planned { at, plan } => {
                self.at(at);
                if let Some(plan) = plan {
                    self.planned(at, &plan);
                }
            }
            Record::Landed { at, step, ended } => self.landed(at, step, &ended),
            Record::Filled { request, index: Blocks(index), number } => {
                let number = self.number(number);
                if let Some(&place) = self.places.get(&request) {
                    self.requests[place].blocks.insert(index, number);
                }
            }
        }
    }

    pub fn finish(self, config: Config) -> Recording {
        Recording {
            config,
            requests: self.requests,
            steps: self.steps,
            left_out: self.earlier.len(),
            began: self.began.unwrap_or_default(),
            ended: self.ended,
        }
    }

    fn at(&mut self, moment: Micros) {
        self.began.get_or_insert(moment);
        self.ended = moment;
    }

    /// A block's number that no other segment gives.
    fn number(&self, number: u32) -> u64 {
        self.segment << 32 | u64::from(number)
    }

    fn submitted(&mut self, at: Micros, arrival: Arrival, taken: bool) {
        self.at(at);
        if taken {
            self.places.insert(self.next, self.requests.len());
            self.next.0 += 1;
        }
        let blocks = arrival.blocks.iter().enumerate();
        let blocks = blocks.map(|(index, &number)| (index as u32, self.number(number))).collect();
        self.requests.push(Recorded { at, arrival, taken, planned: None, tokens: Vec::new(), end: None, blocks });
    }

    fn planned(&mut self, at: Micros, plan: &PlanRecord) {
        let behind = if self.in_flight.is_empty() { Behind::Nothing } else { Behind::Running };
        let planned = Planned::new(plan, at, behind);
        for (request, _) in &planned.members {
            match self.places.get(request) {
                Some(&place) => _ = self.requests[place].planned.get_or_insert(at),
                None => _ = self.earlier.insert(*request),
            }
        }
        self.in_flight.push_back(planned);
    }

    /// Steps that were in flight when the trace began are not known; nor are those of a lost session any more. Older
    /// ones landed where a server that could not write fast enough left some records out.
    fn landed(&mut self, at: Micros, step: StepId, ended: &Ended) {
        self.at(at);
        self.in_flight.retain(|planned| planned.step >= step);
        if self.in_flight.front().is_none_or(|oldest| oldest.step != step) {
            return;
        }
        let Some(planned) = self.in_flight.pop_front() else { return };
        if let Some(next) = self.in_flight.front_mut() {
            next.behind = Behind::Landed(at);
        }
        match ended {
            Ended::Done(outcome) => {
                self.steps.push(planned.landed(at, outcome.took));
                self.take(at, &planned, outcome);
            }
            Ended::OutOfMemory => {} // its requests come again
            Ended::Failed => planned.members.iter().for_each(|(request, _)| self.end(*request, End::Failed)),
        }
    }

    fn take(&mut self, at: Micros, planned: &Planned, outcome: &Outcome) {
        for (request, row) in &planned.members {
            if outcome.failed_rows.contains(&row.0) {
                self.end(*request, End::Failed);
            }
        }
        for (place, (request, _)) in planned.members[..planned.samples].iter().enumerate() {
            let place = place as u32;
            if place >= outcome.samples || outcome.failed_samples.contains(&place) {
                self.end(*request, End::Failed);
            } else {
                self.token(*request, at, outcome.ends.contains(&place));
            }
        }
    }

    fn token(&mut self, request: RequestId, at: Micros, ends: bool) {
        let Some(recorded) = self.running(request) else { return };
        recorded.tokens.push(at);
        let full = recorded.tokens.len() as u32 >= recorded.arrival.max_new_tokens.0;
        if full || (ends && !recorded.arrival.ignore_eos) {
            recorded.end = Some(End::Itself);
        }
    }

    fn end(&mut self, request: RequestId, end: End) {
        if let Some(recorded) = self.running(request) {
            recorded.end = Some(end);
        }
    }

    /// A request of the trace that has not ended.
    fn running(&mut self, request: RequestId) -> Option<&mut Recorded> {
        let recorded = self.places.get(&request).map(|&place| &mut self.requests[place])?;
        recorded.end.is_none().then_some(recorded)
    }
}
