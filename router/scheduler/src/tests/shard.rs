//! A pretend shard: it believes nothing but the plans, and stops the test at the first one that makes no sense.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    BlockId, Config, Epoch, HostBlock, Micros, RequestId, Row, Sample, StepOutcome, StepPlan, TokenId, Tokens,
};

/// Ends an answer.
pub const EOS: TokenId = 0;

/// A prompt that starts with `EOS_AT + n` has end-of-sequence as the answer's token `n`; other answers have none.
pub const EOS_AT: TokenId = 100;

/// What the pretend model says after `tokens`, as token `index` of the answer. Depends on every token before.
pub fn next_token(tokens: &[TokenId], index: u32) -> TokenId {
    if tokens[0].checked_sub(EOS_AT) == Some(index) {
        return EOS;
    }
    let hash = tokens.iter().fold(7_u32, |hash, &token| (hash ^ token).wrapping_mul(0x0100_0193));
    1 + (hash >> 8) % 7
}

/// The whole answer to a prompt.
pub fn answer(prompt: &[TokenId], length: u32) -> Vec<TokenId> {
    let mut tokens = prompt.to_vec();
    for index in 0..length {
        tokens.push(next_token(&tokens, index));
    }
    tokens.split_off(prompt.len())
}

/// What goes wrong in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Step,
    /// There was no memory for the step. Its rows fail until they get a new epoch.
    Memory,
    /// The row at this place (modulo the number of rows) of the step.
    Row(usize),
}

/// The KV of one slot: what it is the KV of. It depends on every token before, so it says them all, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    position: u32,
    tokens: u64,
}

struct RowState {
    epoch: Epoch,
    request: RequestId,
    tokens: Vec<TokenId>,
    generated: u32,
    computed: u32,
    /// Failed: it stays so until a new epoch.
    broken: bool,
    /// And it is no use to compute it again.
    doomed: bool,
}

pub struct Shard {
    block_size: u32,
    slots: Vec<Option<Written>>,
    /// Requests with a row that failed: what they had computed may be anything, until the scheduler knows and ends them.
    doomed: BTreeSet<RequestId>,
    /// Slots of each host block.
    host: BTreeMap<HostBlock, Vec<Option<Written>>>,
    rows: BTreeMap<Row, RowState>,
    last_epoch: Epoch,
}

/// One step as the shard executed it.
pub struct Executed {
    pub outcome: StepOutcome,
    /// Every block of the step's tables, with whose table it is.
    pub tables: Vec<(BlockId, Epoch)>,
    /// Those that the step wrote.
    pub written: Vec<(BlockId, Epoch)>,
    /// Those that may end as failed.
    pub doomed: Vec<RequestId>,
}

impl Shard {
    pub fn new(config: &Config) -> Self {
        let slots = vec![None; (config.total_blocks.0 * config.block_size.0) as usize];
        Self {
            block_size: config.block_size.0,
            slots,
            doomed: BTreeSet::new(),
            host: BTreeMap::new(),
            rows: BTreeMap::new(),
            last_epoch: Epoch(0),
        }
    }

    /// A session is lost: nothing is remembered.
    pub fn restart(&mut self) {
        self.slots.fill(None);
        self.host.clear();
        self.rows.clear();
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    pub fn filter(&mut self, row: Row, epoch: Epoch) {
        if self.rows.get(&row).is_some_and(|state| state.epoch == epoch) {
            self.rows.remove(&row);
        }
    }

    /// Computes the step and panics if the plan is not sound.
    pub fn execute(&mut self, plan: &StepPlan, fault: Option<Fault>) -> Executed {
        self.move_blocks(plan, fault);
        self.admit(plan);
        let rows: Vec<Row> =
            plan.chunks.iter().map(|chunk| chunk.row).chain(plan.decodes.iter().map(|decode| decode.row)).collect();
        self.break_rows(&rows, fault);
        let mut executed = Executed {
            outcome: StepOutcome::Failed,
            tables: vec![],
            written: vec![],
            doomed: self.doomed_requests(&rows),
        };
        let mut samples = Vec::new();
        for chunk in &plan.chunks {
            assert!(chunk.tokens > Tokens::ZERO, "a chunk has at least one token: {chunk:?}");
            let table = &plan.blocks[chunk.blocks.start as usize..chunk.blocks.end as usize];
            let state = &self.rows[&chunk.row];
            assert_eq!(chunk.request, state.request, "row {} belongs to another request", chunk.row);
            assert_eq!(chunk.start.0, state.computed, "a chunk starts where the last one ended: {chunk:?}");
            let reaches_end = (chunk.start + chunk.tokens).0 == state.tokens.len() as u32;
            assert_eq!(chunk.samples, reaches_end, "a row samples when its chunk reaches the end: {chunk:?}");
            let sample = self.compute(chunk.row, chunk.tokens.0, table, chunk.samples, &mut executed);
            samples.extend(chunk.samples.then_some(sample));
        }
        for decode in &plan.decodes {
            let table = &plan.blocks[decode.blocks.start as usize..decode.blocks.end as usize];
            let state = &self.rows[&decode.row];
            assert_eq!(decode.request, state.request, "row {} belongs to another request", decode.row);
            assert_eq!(decode.position.0, state.computed, "a decode computes the next position: {decode:?}");
            assert_eq!(state.tokens.len() as u32, state.computed + 1, "a row decodes what it sampled: {decode:?}");
            samples.push(self.compute(decode.row, 1, table, true, &mut executed));
        }
        if fault == Some(Fault::Memory) {
            executed.outcome = StepOutcome::OutOfMemory;
            if plan.tokens() == Tokens(1) {
                executed.doomed = rows.iter().map(|row| self.rows[row].request).collect();
            }
        } else if fault != Some(Fault::Step) {
            let failed = rows.into_iter().filter(|row| self.rows[row].broken).collect();
            let took = Micros(100 + u64::from(plan.tokens().0));
            executed.outcome = StepOutcome::Done { samples, failed, took };
        }
        executed
    }

    fn move_blocks(&mut self, plan: &StepPlan, fault: Option<Fault>) {
        let size = self.block_size as usize;
        let slots = |block: BlockId| block.0 as usize * size..(block.0 as usize + 1) * size;
        for swap in &plan.swaps_out {
            match fault {
                // It failed before, or while, this was done.
                Some(Fault::Step | Fault::Memory) => self.host.remove(&swap.host),
                _ => self.host.insert(swap.host, self.slots[slots(swap.block)].to_vec()),
            };
        }
        for swap in &plan.swaps_in {
            match self.host.get(&swap.host) {
                Some(kept) => self.slots[slots(swap.block)].copy_from_slice(kept),
                None => assert!(fault.is_some(), "nothing was copied to {:?}", swap.host),
            }
        }
        for copy in &plan.copies {
            self.slots.copy_within(slots(copy.from), slots(copy.to).start);
        }
    }

    fn admit(&mut self, plan: &StepPlan) {
        let first_chunks: Vec<RequestId> = plan.chunks.iter().map(|chunk| chunk.request).collect();
        let mut place = 0;
        for admission in &plan.admitted {
            let offset = first_chunks[place..].iter().position(|request| *request == admission.request);
            place += offset.expect("admissions stand in the order of their chunks") + 1;
            assert!(admission.epoch > self.last_epoch, "epochs grow: {admission:?}");
            self.last_epoch = admission.epoch;
            let state = RowState {
                epoch: admission.epoch,
                request: admission.request,
                tokens: admission.tokens.clone(),
                generated: admission.generated.0,
                computed: admission.computed.0,
                broken: self.doomed.contains(&admission.request),
                doomed: self.doomed.contains(&admission.request),
            };
            self.rows.insert(admission.row, state);
        }
    }

    fn break_rows(&mut self, rows: &[Row], fault: Option<Fault>) {
        for (place, row) in rows.iter().enumerate() {
            let hit = match fault {
                Some(Fault::Step | Fault::Memory) => true,
                Some(Fault::Row(n)) => n % rows.len() == place,
                None => false,
            };
            let state = self.rows.get_mut(row).expect("a row of the plan was admitted");
            state.broken |= hit;
            state.doomed |= hit && fault != Some(Fault::Memory);
            if state.doomed {
                self.doomed.insert(state.request);
            }
        }
    }

    fn doomed_requests(&self, rows: &[Row]) -> Vec<RequestId> {
        rows.iter().map(|row| &self.rows[row]).filter(|state| state.doomed).map(|state| state.request).collect()
    }

    /// Writes the KV of the row's next `tokens` positions, then reads every position before them.
    fn compute(&mut self, row: Row, tokens: u32, table: &[BlockId], samples: bool, executed: &mut Executed) -> Sample {
        let state = self.rows.get_mut(&row).expect("checked by the caller");
        let end = state.computed + tokens;
        assert!(end <= table.len() as u32 * self.block_size, "the table of row {row} ends before position {end}");
        for (place, &block) in table.iter().enumerate() {
            assert!(!table[..place].contains(&block), "block {block} is twice in the table of row {row}");
            executed.tables.push((block, state.epoch));
        }
        let slot = |position: u32| {
            (table[(position / self.block_size) as usize].0 * self.block_size + position % self.block_size) as usize
        };
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let kv = |position: u32, hash: &mut u64| {
            *hash = (*hash ^ u64::from(state.tokens[position as usize])).wrapping_mul(0x0100_0000_01b3);
            Written { position, tokens: *hash }
        };
        for position in 0..end {
            let kv = kv(position, &mut hash);
            if position < state.computed {
                // A row that failed is told of no more: its neighbours must not read it, and it may read anything.
                let right = self.slots[slot(position)] == Some(kv);
                assert!(right || state.broken, "row {row} reads KV at {position} that is not its own");
            } else {
                self.slots[slot(position)] = (!state.broken).then_some(kv);
            }
        }
        for position in state.computed..end {
            executed.written.push((table[(position / self.block_size) as usize], state.epoch));
        }
        state.computed = end;
        if !samples {
            return Sample::Failed; // not used
        }
        let token = next_token(&state.tokens, state.generated);
        state.tokens.push(token);
        state.generated += 1;
        if state.broken { Sample::Failed } else { Sample::Token(token) }
    }
}
