//! What happens before the first step: connecting, facts, warm-up, health.

use std::cell::RefCell;
use std::net::TcpListener;
use std::time::Duration;

use crate::test_shard::{TestShard, info};
use crate::{connect_to, connected, deadlines};
use headrace_scheduler::{Blocks, Micros, Tokens};
use headrace_shard::proto::InfoResponse;
use headrace_shard::{Deadlines, LogicalShard, ShardAddress, ShardError, WarmupLimits};

const LIMITS: WarmupLimits = WarmupLimits {
    max_batch_size: 8,
    max_batch_prefill_tokens: Tokens(512),
    max_total_tokens: None,
    blocks: None,
    host_bytes: 0,
};

#[tokio::test]
async fn facts_of_one_rank_are_what_it_says() {
    let (_shards, logical) = connected(1).await;
    let facts = logical.facts().await.unwrap();
    assert_eq!((facts.model_type.as_str(), facts.dtype.as_str()), ("llama", "bfloat16"));
    assert_eq!((facts.vocab_size, facts.block_size, facts.ranks), (1000, Tokens(32), 1));
}

#[tokio::test]
async fn rank_0_says_which_tokenizer_its_model_has_if_it_has_one() {
    let (shards, logical) = connected(2).await;
    assert_eq!(logical.facts().await.unwrap().tokenizer, None);
    shards[0].settings.change(|unary| unary.info.tokenizer_sha256 = "abc".into());
    assert_eq!(logical.facts().await.unwrap().tokenizer.as_deref(), Some("abc"));
}

#[tokio::test]
async fn a_rank_is_reached_over_tcp_too() {
    let shard = TestShard::on_tcp(info(0, 1));
    let logical = connect_to(std::slice::from_ref(&shard)).await.unwrap();
    assert_eq!(logical.health().await, Ok(()));
}

#[tokio::test]
async fn connecting_waits_for_a_rank_that_starts_later() {
    let late = TestShard::on_unix(info(0, 1));
    let ShardAddress::Unix(path) = late.address.clone() else { unreachable!() };
    let hidden = path.with_extension("not-yet");
    std::fs::rename(&path, &hidden).unwrap();

    let addresses = [late.address.clone()];
    let mut connecting = Box::pin(LogicalShard::connect(&addresses, deadlines(), |_| ()));
    tokio::select! {
        biased;
        _ = &mut connecting => panic!("nobody listens yet"),
        () = tokio::task::yield_now() => {} // one attempt was made
    }
    std::fs::rename(&hidden, &path).unwrap();
    assert!(connecting.await.is_ok());
}

#[tokio::test]
async fn a_rank_that_never_accepts_is_named_with_its_address_and_the_last_reason() {
    let shard = TestShard::on_unix(info(0, 2));
    let deadlines = Deadlines { connect: Duration::from_millis(50), ..deadlines() };
    let error =
        LogicalShard::connect(&[shard.address.clone(), nobody()], deadlines, |_| ()).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot reach rank 1 at unix:/nonexistent/shard.sock: "), "{error}");
    assert!(error.contains("No such file"), "{error}");
}

fn nobody() -> ShardAddress {
    ShardAddress::Unix("/nonexistent/shard.sock".into())
}

/// Connects to a rank that says this of itself, and to an address where no rank is, with little patience; what is said
/// meanwhile, and the end.
async fn with_one_missing(info: InfoResponse, missing: ShardAddress, connect: Duration) -> (Vec<String>, String) {
    let shard = TestShard::on_unix(info);
    let addresses = [shard.address.clone(), missing];
    let said = RefCell::new(Vec::new());
    let waiting = |sentence: &str| said.borrow_mut().push(sentence.to_owned());
    let (patience, health) = (Duration::from_millis(1), Duration::from_millis(50)); // asked again and again
    let deadlines = Deadlines { connect, patience, health, ..deadlines() };
    let end = LogicalShard::connect(&addresses, deadlines, waiting)
        .await
        .unwrap_err()
        .to_string()
        .replace(&shard.address.to_string(), "a");
    (said.into_inner(), end)
}

#[tokio::test]
async fn who_is_missing_is_said_with_address_and_reason_until_the_time_is_up() {
    let (said, end) = with_one_missing(info(0, 2), nobody(), Duration::from_secs(1)).await;
    let last = said.last().unwrap();
    assert!(last.starts_with("waiting for rank 1 at unix:/nonexistent/shard.sock (No such file"), "{last}");
    assert!(end.contains("No such file") && end.contains("tried for 1s"), "{end}");
}

#[tokio::test]
async fn who_accepts_and_says_nothing_is_missing_too() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let (said, end) = with_one_missing(info(0, 2), ShardAddress::Tcp(address.clone()), Duration::from_secs(1)).await;
    let why = format!("rank 1 at {address} (it accepts connections, but does not answer)");
    assert_eq!(said.last().unwrap(), &format!("waiting for {why}"));
    let why = format!("rank 1 at {address}: it accepts connections, but does not answer (tried for 1s)");
    assert_eq!(end, format!("cannot reach {why}"));
}

#[tokio::test]
async fn nobody_waits_for_ranks_that_there_are_none_of() {
    let (_, end) = with_one_missing(info(0, 1), nobody(), Duration::from_secs(60)).await;
    assert_eq!(
        end,
        "--shards must name every rank of one model once, in rank order, but a is rank 0 of 1 and 2 addresses are given; \
         name those of the 1 that were started together"
    );
}

#[tokio::test]
async fn no_addresses_are_an_error() {
    assert!(matches!(LogicalShard::connect(&[], deadlines(), |_| ()).await, Err(ShardError::Misuse { .. })));
}

#[tokio::test]
async fn ranks_that_disagree_are_named_with_both_values() {
    type Change = fn(&mut headrace_shard::proto::InfoResponse);
    let changes: [(Change, [&str; 3]); 5] = [
        (|info| info.dtype = "float32".into(), ["dtype", "float32", "bfloat16"]),
        (|info| info.model_type = "qwen3".into(), ["model_type", "qwen3", "llama"]),
        (|info| info.block_size = 16, ["block_size", "16", "32"]),
        (|info| info.vocab_size = 999, ["vocab_size", "999", "1000"]),
        (|info| info.version = "2.0".into(), ["version", "2.0", "1.0"]),
    ];
    let (shards, logical) = connected(3).await;
    for (change, words) in changes {
        shards[2].settings.change(|unary| change(&mut unary.info));
        let error = logical.facts().await.unwrap_err();
        assert!(matches!(error, ShardError::Protocol { rank: 2, .. }), "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
        assert!(logical.open_session().await.is_err());
        shards[2].settings.change(|unary| unary.info = info(2, 3));
    }
    assert_eq!(logical.facts().await.unwrap().ranks, 3);
}

/// What is said of ranks at a, b, … that say (rank, world size) of themselves.
async fn complaint(says: &[(u32, u32)]) -> String {
    let shards: Vec<_> = says.iter().map(|&(rank, world_size)| TestShard::on_unix(info(rank, world_size))).collect();
    let logical = connect_to(&shards).await.unwrap();
    let said = logical.facts().await.unwrap_err().to_string();
    assert!(logical.open_session().await.is_err());
    shards
        .iter()
        .zip('a'..)
        .fold(said, |said, (shard, letter)| said.replace(&shard.address.to_string(), &letter.to_string()))
}

#[tokio::test]
async fn addresses_in_another_order_are_told_theirs() {
    assert_eq!(
        complaint(&[(2, 3), (0, 3), (1, 3)]).await,
        "--shards must name every rank of one model once, in rank order, but a is rank 2 of 3 and b is rank 0 of 3 and c \
         is rank 1 of 3; write --shards b,c,a"
    );
}

#[tokio::test]
async fn addresses_that_are_not_all_ranks_once_are_told_what_to_change() {
    for (says, remedy) in [
        (&[(0, 3), (1, 3)][..], "rank 2 is missing"),
        (&[(1, 2)], "rank 0 is missing"),
        (&[(1, 3)], "rank 0 and rank 2 are missing"),
        (&[(0, 2), (0, 2)], "rank 1 is missing"),
        (&[(0, 2), (1, 2), (1, 2)], "write --shards a,b"),
        (&[(0, 2), (1, 3)], "these were started for different models: name those that were started together"),
    ] {
        let said = complaint(says).await;
        assert!(said.ends_with(&format!("; {remedy}")), "{said}");
    }
}

#[tokio::test]
async fn the_smallest_pool_is_agreed_with_every_rank() {
    let (shards, logical) = connected(3).await;
    shards[1].settings.change(|unary| unary.blocks = 60);
    let report = logical.warmup(&LIMITS).await.unwrap();
    assert_eq!(report.blocks, Blocks(60));
    for shard in &shards {
        let asked: Vec<_> = shard.settings.warmups().iter().map(|request| request.num_blocks).collect();
        assert_eq!(asked, [None, Some(60)]);
    }
}

#[tokio::test]
async fn equal_pools_are_agreed_in_one_round() {
    let (shards, logical) = connected(2).await;
    assert_eq!(logical.warmup(&LIMITS).await.unwrap().blocks, Blocks(100));
    let requests = shards[0].settings.warmups();
    assert_eq!((requests.len(), requests[0].max_batch_size, requests[0].max_batch_prefill_tokens), (1, 8, 512));
}

#[tokio::test]
async fn host_memory_is_asked_of_every_rank_and_the_slowest_and_smallest_counts() {
    let (shards, logical) = connected(2).await;
    let limits = WarmupLimits { host_bytes: 5000, ..LIMITS };
    shards[0].settings.change(|unary| (unary.host_blocks, unary.swap_us) = (9, 30));
    shards[1].settings.change(|unary| (unary.host_blocks, unary.swap_us) = (8, 20));
    let report = logical.warmup(&limits).await.unwrap();
    assert_eq!((report.host_blocks, report.swap_time), (Blocks(8), Micros(30)));
    assert!(shards.iter().all(|shard| shard.settings.warmups()[0].host_bytes == 5000));
}

#[tokio::test]
async fn a_pool_that_does_not_fit_is_refused_with_the_ranks_name_and_both_numbers() {
    let (shards, logical) = connected(2).await;
    shards[1].settings.change(|unary| unary.blocks = 60);
    let limits = WarmupLimits { blocks: Some(Blocks(90)), ..LIMITS };
    let error = logical.warmup(&limits).await.unwrap_err();
    assert_eq!(error.to_string(), "rank 1: 90 blocks asked, 60 fit");
}

#[tokio::test]
async fn a_pool_of_no_blocks_is_a_protocol_error() {
    let (shards, logical) = connected(2).await;
    shards[1].settings.change(|unary| unary.blocks = 0);
    let error = logical.warmup(&LIMITS).await.unwrap_err();
    assert!(matches!(error, ShardError::Protocol { rank: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_dead_rank_is_unhealthy_and_named() {
    let (mut shards, logical) = connected(3).await;
    assert_eq!(logical.health().await, Ok(()));
    shards[2].die();
    let error = logical.health().await.unwrap_err();
    assert!(matches!(error, ShardError::Unreachable { rank: 2, .. }), "{error}");
}
