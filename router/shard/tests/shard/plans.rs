//! Plans written by hand. Row r owns blocks 4r … 4r + 3 and belongs to request r.

use headrace_scheduler::{Admission, BlockId, Chunk, Decode, Epoch, RequestId, Row, StepId, StepPlan, TokenId, Tokens};

pub fn plan(step: u64) -> StepPlan {
    StepPlan::new(StepId(step))
}

/// A step whose only row gets its whole prompt.
pub fn prefill(step: u64, row: u32, epoch: u64, tokens: &[TokenId]) -> StepPlan {
    plan(step).admit(row, epoch, tokens).chunk(row, 0, tokens.len() as u32, true)
}

/// A step of decode rows only: (row, position).
pub fn decode(step: u64, rows: &[(u32, u32)]) -> StepPlan {
    rows.iter().fold(plan(step), |plan, &(row, position)| plan.decode(row, position))
}

/// Adds rows to a plan.
pub trait With: Sized {
    fn admit(self, row: u32, epoch: u64, tokens: &[TokenId]) -> Self;
    fn chunk(self, row: u32, start: u32, tokens: u32, samples: bool) -> Self;
    fn decode(self, row: u32, position: u32) -> Self;
}

impl With for StepPlan {
    fn admit(mut self, row: u32, epoch: u64, tokens: &[TokenId]) -> Self {
        self.admitted.push(Admission {
            request: RequestId(row.into()),
            row: Row(row),
            epoch: Epoch(epoch),
            tokens: tokens.to_vec(),
            generated: Tokens(0),
            computed: Tokens(0),
        });
        self
    }

    fn chunk(mut self, row: u32, start: u32, tokens: u32, samples: bool) -> Self {
        let blocks = add_table(&mut self, row);
        let (request, row) = (RequestId(row.into()), Row(row));
        self.chunks.push(Chunk { request, row, start: Tokens(start), tokens: Tokens(tokens), samples, blocks });
        self
    }

    fn decode(mut self, row: u32, position: u32) -> Self {
        let blocks = add_table(&mut self, row);
        self.decodes.push(Decode { request: RequestId(row.into()), row: Row(row), position: Tokens(position), blocks });
        self
    }
}

fn add_table(plan: &mut StepPlan, row: u32) -> std::ops::Range<u32> {
    let start = plan.blocks.len() as u32;
    plan.blocks.extend((4 * row..4 * row + 4).map(BlockId));
    start..start + 4
}
