//! `headrace router`: serve with shards that run elsewhere, or with a fake one in this process.

use std::sync::Arc;
use std::time::Duration;

use headrace_http::Front;
use headrace_scheduler::{Blocks, Tokens};
use headrace_shard::{CostModel, FakeShard, LogicalShard, ShardError, ShardFacts};

use crate::config::{RouterConfig, Shards};
use crate::connect::{connect, deadlines};
use crate::failure::Failure;
use crate::flags::FakeFlags;
use crate::listen::Door;
use crate::model::{Model, ServedModel};
use crate::service::{self, Plan};
use crate::signals::Signals;
use crate::timeline::Timeline;

/// Where config.json does not say.
const FAKE_CONTEXT: Tokens = Tokens(8192);
const FAKE_VOCAB_SIZE: u32 = 32_000;
/// KV bytes of one token, as a small model has them; the fake only reports it.
const FAKE_KV_BYTES: u64 = 16 * 1024;

/// Runs the command. Ends well when a signal asked for the end; the shards stay, they are not ours.
pub async fn run(config: RouterConfig, signals: &mut Signals) -> Result<(), Failure> {
    let timeline = Timeline::start();
    let door = Door::open(&config.service.http, "connecting to the shards")?;
    let model = Arc::new(ServedModel {
        model: Model::read(&config.model_dir, config.service.http.tokenizer_config.as_deref())?,
        dir: config.model_dir.clone(),
        model_id: config.model_dir.display().to_string(),
        revision: None,
    });
    let front = door.front.clone();
    let plan = Plan { config: &config.service, model: model.clone(), door, timeline };
    let service = tokio::select! {
        service = service::start(plan, reach(&config, &model.model, front)) => service?,
        signal = signals.next() => {
            tracing::info!("{signal} before the server was ready");
            return Ok(());
        }
    };
    service.run(signals, std::future::pending()).await
}

async fn reach(config: &RouterConfig, model: &Model, front: Front) -> Result<LogicalShard, ShardError> {
    let deadlines = deadlines(config.service.step_timeout);
    match &config.shards {
        Shards::At(addresses) => connect(addresses, deadlines, &front).await,
        Shards::Fake(flags) => {
            let fake = fake_shard(flags, model, config.service.batching.max_batch_size);
            Ok(LogicalShard::fake(fake.with_deadlines(deadlines)))
        }
    }
}

/// Pretends to hold the model. Its memory has room for a full batch of the longest requests: only
/// `--max-batch-total-tokens` makes it short.
fn fake_shard(flags: &FakeFlags, model: &Model, max_batch_size: u32) -> FakeShard {
    let context = model.context.unwrap_or(FAKE_CONTEXT);
    let block_size = Tokens(flags.block_size);
    let facts = ShardFacts {
        model_type: model.model_type.clone(),
        dtype: "float32".to_owned(),
        device: "cpu".to_owned(),
        vocab_size: model.vocab_size.unwrap_or(FAKE_VOCAB_SIZE),
        max_positions: context,
        block_size,
        kv_bytes_per_token: FAKE_KV_BYTES,
        ranks: 1,
        tokenizer: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let cost = CostModel {
        step: Duration::from_micros(flags.fake_step_us),
        token: Duration::from_micros(flags.fake_token_us),
        row: Duration::from_micros(flags.fake_row_us),
    };
    let blocks = Blocks(context.blocks(block_size).0.saturating_mul(max_batch_size));
    FakeShard::new().with_facts(facts).with_blocks(blocks).with_cost(cost)
}
