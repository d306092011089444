//! Clients that leave: noticed while nothing else happens, before the next step.

use headrace_http::Limits;
use serde_json::json;

use crate::raw::{connect, request};
use crate::world::{Setup, World, soon};

/// Room for `places` requests, of which `rows` run together, on a shard that answers nothing.
async fn stalled(places: u32, rows: u32) -> World {
    let limits = Limits { max_concurrent_requests: places, ..Setup::default().limits };
    let world = World::with(Setup { limits, max_batch_size: rows, ..Setup::default() }).await;
    world.handle.stall();
    world
}

/// Waits until there is a place for a request again; a wrong one takes none for long.
async fn wait_for_a_place(world: &World) {
    soon(async {
        while world.post("/generate", json!({"inputs": ""})).await.status == 429 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn wait_until(world: &World, running: u64, waiting: u64) {
    soon(async {
        while (world.engine.snapshot().running, world.engine.snapshot().waiting) != (running, waiting) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn who_leaves_during_its_first_step_is_noticed_before_that_step_ends() {
    for path in ["/generate_stream", "/generate"] {
        let world = stalled(1, 8).await;
        let client = connect(world.listen().await, request(path, 100)).await;
        wait_until(&world, 1, 0).await;
        drop(client);
        wait_for_a_place(&world).await;
        world.handle.resume();
        world.wait_until_idle().await;
        let sampled = world.engine.snapshot().totals.generated_tokens;
        assert_eq!(sampled, 0, "{path}: what was in flight is all that was computed");
    }
}

#[tokio::test]
async fn who_leaves_the_queue_is_noticed_while_it_stands() {
    for path in ["/generate_stream", "/generate"] {
        let world = stalled(2, 1).await;
        let address = world.listen().await;
        let _running = connect(address, request("/generate_stream", 100)).await;
        wait_until(&world, 1, 0).await;
        let waiting = connect(address, request(path, 100)).await;
        wait_until(&world, 1, 1).await;
        drop(waiting);
        wait_until(&world, 1, 0).await;
        wait_for_a_place(&world).await;
    }
}
