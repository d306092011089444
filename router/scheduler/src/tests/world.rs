//! Scheduler, pretend shard and virtual clock; notes every request's story and checks each event against it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use super::shard::{EOS, Executed, Fault, Shard, answer};
use crate::in_flight::MAX_IN_FLIGHT;
use crate::sequence::Place;
use crate::trace::TracedScheduler;
use crate::{
    AdmissionRule, BlockId, Blocks, Config, Epoch, Event, FinishReason, Micros, Rejected, Request, RequestId, Row,
    StepId, StepOutcome, StepPlan, TokenId, Tokens,
};

/// Roomy: 64 blocks of 4 tokens, 8 rows, 16 prompt tokens a step, no watermark, no gate.
pub fn roomy() -> Config {
    Config {
        block_size: Tokens(4),
        total_blocks: Blocks(64),
        max_batch_size: 8,
        max_batch_prefill_tokens: Tokens(16),
        max_total_tokens: Tokens(128),
        admission: AdmissionRule::Watermark,
        watermark_permille: 0,
        max_skips: 0,
        eos: vec![EOS],
        ..Config::default()
    }
}

/// Roomy but for its pool; one request may fill it.
pub fn with_blocks(total_blocks: u32) -> Config {
    Config { total_blocks: Blocks(total_blocks), max_total_tokens: Tokens(4 * total_blocks), ..roomy() }
}

/// What is known of a request outside the scheduler.
pub struct Story {
    pub prompt: Vec<TokenId>,
    pub max_new: u32,
    pub ignore_eos: bool,
    pub answer: Vec<TokenId>,
    pub finished: Option<FinishReason>,
    pub preemptions: u32,
    /// Known tokens of the answer at each preemption.
    pub lost_at: Vec<u32>,
    pub deadline: Option<Micros>,
    /// Something of it went wrong on the shard, so it may end with `Failed`.
    doomed: bool,
    /// What the caller did to it.
    ordered: Option<FinishReason>,
}

/// A step sent whose outcome the scheduler does not know.
struct Sent {
    step: StepId,
    executed: Executed,
}

pub struct World {
    pub scheduler: TracedScheduler,
    pub shard: Shard,
    pub config: Config,
    pub stories: BTreeMap<RequestId, Story>,
    /// Every plan and event in order.
    pub trace: String,
    /// What goes wrong in the next step.
    pub fault: Option<Fault>,
    /// Filters go out after the newest plan instead of before it.
    pub filter_late: bool,
    /// Whole segments of the trace; the first one begins when `next_segment` is called.
    pub segments: Vec<Vec<u8>>,
    sent: VecDeque<Sent>,
    /// Outcomes of lost sessions.
    stale: Vec<(StepId, StepOutcome)>,
    released: Vec<(Row, Epoch)>,
    now: Micros,
}

impl World {
    pub fn new(config: Config) -> Self {
        Self {
            scheduler: TracedScheduler::new(config.clone()),
            shard: Shard::new(&config),
            config,
            stories: BTreeMap::new(),
            trace: String::new(),
            fault: None,
            filter_late: false,
            segments: Vec::new(),
            sent: VecDeque::new(),
            stale: Vec::new(),
            released: Vec::new(),
            now: Micros(0),
        }
    }

    pub fn now(&self) -> Micros {
        self.now
    }

    /// Ends a segment of the trace and begins the next.
    pub fn next_segment(&mut self) {
        let segment = self.scheduler.take_trace();
        if !segment.is_empty() {
            self.segments.push(segment);
        }
        self.scheduler.begin_segment();
    }

    /// Time goes by, and nothing else happens.
    pub fn wait(&mut self, time: Micros) {
        self.now += time;
    }

    fn tick(&mut self) -> Micros {
        self.now += Micros(1000);
        self.now
    }

    pub fn try_submit(&mut self, request: Request) -> Result<RequestId, Rejected> {
        let now = self.tick();
        let (prompt, max_new) = (request.prompt.clone(), request.max_new_tokens.0);
        let (ignore_eos, deadline) = (request.ignore_eos, request.deadline);
        let id = self.scheduler.submit(request, now)?;
        let story = Story {
            prompt,
            max_new,
            ignore_eos,
            answer: Vec::new(),
            finished: None,
            preemptions: 0,
            lost_at: Vec::new(),
            deadline,
            doomed: false,
            ordered: None,
        };
        assert!(self.stories.insert(id, story).is_none(), "ids are used once");
        self.hear();
        Ok(id)
    }

    /// A prompt of `prompt` tokens, different for each request, whose answer has no end-of-sequence.
    pub fn submit(&mut self, prompt: u32, max_new: u32) -> RequestId {
        let salt = self.stories.len() as u32 % 50;
        let prompt = (0..prompt).map(|position| 1 + salt + position % 7).collect();
        self.try_submit(Request::new(prompt, Tokens(max_new))).expect("it fits")
    }

    pub fn cancel(&mut self, request: RequestId) {
        self.order(request, FinishReason::Cancelled);
        let now = self.tick();
        self.scheduler.cancel(request, now);
        self.hear();
    }

    pub fn stop(&mut self, request: RequestId) {
        self.order(request, FinishReason::StopString);
        let now = self.tick();
        self.scheduler.stop(request, now);
        self.hear();
    }

    fn order(&mut self, request: RequestId, reason: FinishReason) {
        if let Some(story) = self.stories.get_mut(&request) {
            story.ordered = Some(reason);
        }
    }

    /// Plans a step and sends it to the shard, which computes it at once; the outcome waits for `land`.
    pub fn plan(&mut self) -> Option<StepPlan> {
        let now = self.tick();
        let plan = self.scheduler.plan_step(now);
        self.hear();
        if !self.filter_late || plan.is_none() {
            self.send_filters();
        }
        let plan = plan?;
        writeln!(self.trace, "{plan:?}").expect("a string takes everything");
        self.check_limits(&plan);
        self.check_admissions(&plan);
        let executed = self.shard.execute(&plan, self.fault.take());
        self.check_blocks_in_flight(&executed);
        for request in &executed.doomed {
            self.stories.get_mut(request).expect("a request of a plan was submitted").doomed = true;
        }
        self.sent.push_back(Sent { step: plan.step, executed });
        assert!(self.sent.len() <= MAX_IN_FLIGHT, "two steps in flight at most");
        self.send_filters();
        Some(plan)
    }

    /// Delivers the oldest outcome; `false` if none is under way.
    pub fn land(&mut self) -> bool {
        let Some(sent) = self.sent.pop_front() else { return false };
        let now = self.tick();
        self.scheduler.complete_step(sent.step, sent.executed.outcome, now);
        self.hear();
        true
    }

    /// Plans a step and delivers its outcome: nothing stays in flight.
    pub fn step(&mut self) -> Option<StepPlan> {
        let plan = self.plan();
        while self.land() {}
        plan
    }

    /// Steps one at a time until it has come to that.
    pub fn step_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("it did not come to that in 1,000 steps:\n{:?}", self.scheduler);
    }

    /// Runs with two steps in flight until the request ends; returns the samples planned till then.
    pub fn samples_until_finished(&mut self, request: RequestId) -> usize {
        let mut samples = 0;
        for _ in 0..1000 {
            if self.stories[&request].finished.is_some() {
                return samples;
            }
            while let Some(plan) = self.plan() {
                samples += plan.sampling_rows().count();
            }
            self.land();
        }
        panic!("it did not end in 1,000 steps:\n{:?}", self.scheduler);
    }

    pub fn lose_session(&mut self) {
        let now = self.tick();
        self.stale.extend(self.sent.drain(..).map(|sent| (sent.step, sent.executed.outcome)));
        self.shard.restart();
        self.scheduler.session_lost(now);
        assert_eq!(self.scheduler.poll_release(), None, "a new shard holds no rows");
        self.hear();
    }

    /// An outcome of a lost session comes late.
    pub fn deliver_stale(&mut self) {
        if let Some((step, outcome)) = self.stale.pop() {
            let now = self.tick();
            self.scheduler.complete_step(step, outcome, now);
            assert_eq!(self.scheduler.poll_event(), None, "a late outcome of a lost session changes nothing");
        }
    }

    pub fn unfinished(&self) -> Vec<RequestId> {
        let unfinished = self.stories.iter().filter(|(_, story)| story.finished.is_none());
        unfinished.map(|(&request, _)| request).collect()
    }

    /// Runs until every request has ended, with two steps in flight where possible, and returns the number of steps.
    pub fn drain(&mut self) -> u32 {
        let mut steps = 0;
        while !self.unfinished().is_empty() {
            let before = self.sent.len();
            while self.plan().is_some() {
                steps += 1;
            }
            let idle = before == 0 && self.sent.is_empty() && !self.unfinished().is_empty();
            if let Some(wake) = self.scheduler.wakes_at().filter(|wake| idle && *wake > self.now) {
                self.now = wake;
                continue;
            }
            assert!(!idle, "somebody waits and nothing runs:\n{:?}", self.scheduler);
            assert!(steps < 10_000, "no end in sight:\n{:?}", self.scheduler);
            self.land();
        }
        while self.land() {}
        self.plan();
        steps
    }

    fn send_filters(&mut self) {
        while let Some((row, epoch)) = self.scheduler.poll_release() {
            assert!(!self.released.contains(&(row, epoch)), "epoch {epoch} is released once");
            self.released.push((row, epoch));
            self.shard.filter(row, epoch);
        }
    }

    fn hear(&mut self) {
        while let Some(event) = self.scheduler.poll_event() {
            writeln!(self.trace, "{event:?}").expect("a string takes everything");
            self.check_event(&event);
        }
    }

    /// Tokens come in order, each once, and are the model's; every request ends once, for a reason that holds.
    fn check_event(&mut self, event: &Event) {
        let (Event::Token { request, .. } | Event::Preempted { request } | Event::Finished { request, .. }) = event;
        let story = self.stories.get_mut(request).expect("events name submitted requests");
        assert_eq!(story.finished, None, "nothing follows the end: {event:?}");
        match *event {
            Event::Token { token, index, .. } => {
                assert_eq!(index as usize, story.answer.len(), "tokens come in order: {event:?}");
                assert!(!story.is_complete(), "no token follows the last: {event:?}");
                story.answer.push(token);
                assert_eq!(story.answer, answer(&story.prompt, index + 1), "the model's answer: {event:?}");
            }
            Event::Preempted { .. } => {
                assert!(!story.is_complete(), "an answer that is complete ends: {event:?}");
                story.preemptions += 1;
                story.lost_at.push(story.answer.len() as u32);
            }
            Event::Finished { reason, generated, .. } => {
                assert_eq!(generated.0 as usize, story.answer.len(), "{event:?}");
                story.check_reason(reason);
                story.finished = Some(reason);
            }
        }
    }

    fn check_limits(&self, plan: &StepPlan) {
        let rows = plan.chunks.iter().map(|chunk| chunk.row).chain(plan.decodes.iter().map(|decode| decode.row));
        let mut rows: Vec<Row> = rows.collect();
        let members = rows.len();
        assert!(members > 0, "a plan computes something");
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), members, "a row appears once: {plan:?}");
        assert!(members <= self.config.max_batch_size as usize, "rows: {plan:?}");
        assert!(rows.iter().all(|row| row.0 < self.config.max_batch_size), "rows: {plan:?}");
        let prompt: u32 = plan.chunks.iter().map(|chunk| chunk.tokens.0).sum();
        assert!(prompt <= self.config.max_batch_prefill_tokens.0, "{prompt} prompt tokens: {plan:?}");
        assert_eq!(plan.tokens().0, prompt + plan.decodes.len() as u32);
        assert!(plan.blocks.iter().all(|block| block.0 < self.config.total_blocks.0), "blocks: {plan:?}");
    }

    fn check_admissions(&self, plan: &StepPlan) {
        for admission in &plan.admitted {
            let story = &self.stories[&admission.request];
            let tokens: Vec<TokenId> = story.prompt.iter().chain(&story.answer).copied().collect();
            assert_eq!(admission.tokens, tokens, "prompt and answer so far: {admission:?}");
            assert_eq!(admission.generated.0 as usize, story.answer.len(), "{admission:?}");
            assert!(!self.released.contains(&(admission.row, admission.epoch)), "released before: {admission:?}");
        }
    }

    /// No block is given away while a step in flight may write it for somebody else: blocks that one step writes are in
    /// no table of another epoch's row in the other step.
    fn check_blocks_in_flight(&self, executed: &Executed) {
        for sent in &self.sent {
            for (written, tables) in
                [(&sent.executed.written, &executed.tables), (&executed.written, &sent.executed.tables)]
            {
                for (block, epoch) in written {
                    let others = tables.iter().filter(|(named, by)| named == block && by != epoch).count();
                    assert_eq!(others, 0, "block {block} is written for one epoch and in a table of another");
                }
            }
        }
    }

    /// No block is free while a step in flight may write it.
    pub fn check_no_free_block_is_in_flight(&self) {
        for sent in &self.sent {
            for block in self.scheduler.kv.free_blocks() {
                assert!(
                    !sent.executed.tables.iter().any(|(named, _)| named == block),
                    "block {block} is free and in step {}",
                    sent.step
                );
            }
        }
    }

    /// Every block is free, cached or held, and its holders are exactly the tables and the steps that name it.
    pub fn check_books(&self) {
        let scheduler = &self.scheduler;
        let mut holders = vec![(0, 0); self.config.total_blocks.0 as usize];
        for handle in scheduler.sequences.handles() {
            let sequence = &scheduler.sequences[handle];
            sequence.blocks.iter().for_each(|block| holders[block.0 as usize].0 += 1);
        }
        for flight in scheduler.in_flight.flights() {
            flight.frees.iter().for_each(|block| holders[block.0 as usize].1 += 1);
        }
        let mut free = vec![0; holders.len()];
        scheduler.kv.free_blocks().iter().for_each(|block| free[block.0 as usize] += 1);
        let tree = scheduler.kv.tree();
        tree.check();
        let mut cached = 0;
        for (block, &(sequences, steps)) in holders.iter().enumerate() {
            let id = BlockId(block as u32);
            let counted = scheduler.kv.holders(id);
            assert_eq!((counted.sequences, counted.steps), (sequences, steps), "holders of block {block}");
            assert_eq!(counted.published, tree.holds(id), "block {block} is published if the tree names it");
            assert!(sequences <= 1 || counted.published, "block {block} has two owners");
            let idle = (sequences, steps) == (0, 0);
            assert_eq!(free[block], u32::from(idle && !counted.published), "block {block}: free, cached or held");
            cached += u32::from(idle && counted.published);
        }
        let stats = scheduler.stats();
        let leaving = holders.iter().filter(|(sequences, steps)| *sequences == 0 && *steps > 0).count();
        assert_eq!(stats.blocks.cached.0, cached);
        assert_eq!(stats.blocks.free + stats.blocks.cached + stats.blocks.held, stats.blocks.total);
        assert_eq!(stats.blocks.leaving.0 as usize, leaving);
        assert_eq!(stats.running, stats.prefilling + stats.decoding);
        assert_eq!((stats.waiting + stats.running + stats.ending) as usize, self.unfinished().len());
        assert_eq!(stats.finished.total() as usize, self.stories.len() - self.unfinished().len());
        self.check_published();
    }

    /// What a running request counts as published is in the tree, in its own table's order, and whatever it holds of the
    /// tree it holds from the root on.
    fn check_published(&self) {
        for handle in self.scheduler.sequences.handles() {
            let sequence = &self.scheduler.sequences[handle];
            let published = sequence.published.0 as usize;
            let mut found = Vec::new();
            let limit = Blocks(sequence.blocks.len() as u32);
            self.scheduler.kv.find(&sequence.root, &sequence.tokens, limit, &mut found);
            assert!(found.len() >= published, "request {}: published blocks are found", handle.request);
            assert_eq!(found[..published], sequence.blocks[..published], "request {}", handle.request);
            let beyond = sequence.blocks[published..].iter().filter(|block| self.scheduler.kv.tree().holds(**block));
            assert_eq!(beyond.count(), 0, "request {}: unpublished blocks are not in the tree", handle.request);
        }
    }

    /// Nobody holds a block it does not need: running requests what their positions fill, all others none, and steps
    /// only while they are in flight.
    pub fn check_nothing_is_kept(&self) {
        for handle in self.scheduler.sequences.handles() {
            let sequence = &self.scheduler.sequences[handle];
            let need = match sequence.place {
                Place::Running(_) => sequence.computed.blocks(self.config.block_size),
                Place::Waiting | Place::Ending => Blocks::ZERO,
            };
            assert_eq!(sequence.blocks.len() as u32, need.0, "request {}: {sequence:?}", handle.request);
        }
        let host = self.scheduler.sequences.handles().filter_map(|handle| {
            let sequence = &self.scheduler.sequences[handle];
            assert!(sequence.swapped.is_none() || sequence.place == Place::Waiting, "only who waits is in host memory");
            sequence.swapped.as_ref().map(|swapped| swapped.blocks.len() as u32)
        });
        assert_eq!(self.scheduler.stats().host_blocks_used.0, host.sum::<u32>(), "host blocks are somebody's or free");
        if self.sent.is_empty() {
            assert_eq!(self.scheduler.kv.leaving(), Blocks::ZERO, "no step is in flight");
        }
    }

    /// Everything has ended and everything is back.
    pub fn check_all_is_back(&self) {
        let stats = self.scheduler.stats();
        assert_eq!((stats.waiting, stats.running, stats.ending, stats.steps_in_flight), (0, 0, 0, 0));
        assert_eq!(stats.blocks.free + stats.blocks.cached, self.config.total_blocks);
        assert_eq!(self.shard.rows(), 0, "every row was released");
    }
}

impl Story {
    /// The last token of the answer is known.
    fn is_complete(&self) -> bool {
        self.answer.len() as u32 == self.max_new || (!self.ignore_eos && self.answer.last() == Some(&EOS))
    }

    fn check_reason(&self, reason: FinishReason) {
        let ended_by_eos = !self.ignore_eos && self.answer.last() == Some(&EOS);
        let holds = match reason {
            FinishReason::EndOfSequence => ended_by_eos,
            FinishReason::Length => self.answer.len() as u32 == self.max_new && !ended_by_eos,
            FinishReason::Failed => self.doomed,
            FinishReason::StopString | FinishReason::Cancelled => self.ordered == Some(reason),
            FinishReason::DeadlineMissed => self.deadline.is_some() && self.answer.is_empty(),
            FinishReason::Displaced => self.answer.is_empty(),
        };
        assert!(holds, "{reason:?} after {:?} of at most {}", self.answer, self.max_new);
    }
}
