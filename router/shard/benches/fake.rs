//! How fast the fake shard is: it must never be what a benchmark of the router measures.
//!
//! `cargo bench -p headrace-shard` prints decode rows per second; more than a million are wanted.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use headrace_scheduler::{Admission, BlockId, Blocks, Chunk, Decode, Epoch, RequestId, Row, StepId, StepPlan, Tokens};
use headrace_shard::{FakeShard, LogicalShard, Sampling, Session, ShardError, WarmupLimits};

const ROWS: u32 = 256;
const TABLE: u32 = 16;
const STEPS: u64 = 256;

/// Row r owns the blocks from `TABLE * r`.
fn blocks() -> Vec<BlockId> {
    (0..ROWS * TABLE).map(BlockId).collect()
}

fn plan(step: u64) -> StepPlan {
    StepPlan { blocks: blocks(), ..StepPlan::new(StepId(step)) }
}

fn prefill() -> StepPlan {
    let mut plan = plan(1);
    for row in 0..ROWS {
        let (request, blocks) = (RequestId(row.into()), row * TABLE..(row + 1) * TABLE);
        let (row, epoch, none) = (Row(row), Epoch(u64::from(row) + 1), Tokens(0));
        plan.admitted.push(Admission { request, row, epoch, tokens: vec![1], generated: none, computed: none });
        plan.chunks.push(Chunk { request, row, start: none, tokens: Tokens(1), samples: true, blocks });
    }
    plan
}

fn decode(step: u64) -> StepPlan {
    let mut plan = plan(step);
    plan.decodes = (0..ROWS)
        .map(|row| Decode {
            request: RequestId(row.into()),
            row: Row(row),
            position: Tokens(step as u32 - 1),
            blocks: row * TABLE..(row + 1) * TABLE,
        })
        .collect();
    plan
}

async fn open() -> Result<Session, ShardError> {
    let shard = LogicalShard::fake(FakeShard::new().with_blocks(Blocks(ROWS * TABLE)));
    let limits = WarmupLimits {
        max_batch_size: ROWS,
        max_batch_prefill_tokens: Tokens(512),
        max_total_tokens: None,
        blocks: None,
        host_bytes: 0,
    };
    shard.warmup(&limits).await?;
    let mut session = shard.open_session().await?;
    session.send_step(&prefill(), &vec![Sampling::greedy(); ROWS as usize])?;
    session.next_result().await?;
    Ok(session)
}

async fn run(mut session: Session, plans: &[StepPlan]) -> Result<Session, ShardError> {
    for plan in plans {
        session.send_step(plan, &[])?;
        assert_eq!(session.next_result().await?.error, None);
    }
    Ok(session)
}

fn decode_rows(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let plans: Vec<_> = (2..2 + STEPS).map(decode).collect();
    let mut group = criterion.benchmark_group("fake");
    group.throughput(Throughput::Elements(u64::from(ROWS) * STEPS)).sample_size(10);
    group.bench_function("decode_256_rows", |bencher| {
        bencher.iter_batched(
            || runtime.block_on(open()).expect("a fake opens"),
            |session| runtime.block_on(run(session, &plans)).expect("right plans"),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, decode_rows);
criterion_main!(benches);
