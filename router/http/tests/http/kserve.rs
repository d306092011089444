//! KServe's routes.

use headrace_http::{ApiKeys, Surface};
use serde_json::{Value, json};

use crate::world::{Answer, Setup, World};

const MODEL: &str = "/v2/models/any/versions/1";

async fn world() -> World {
    World::with(Setup { surface: Surface { kserve: true, ..Surface::default() }, ..Setup::default() }).await
}

async fn infer(world: &World, body: Value) -> Answer {
    world.post(&format!("{MODEL}/infer"), body).await
}

fn bytes(name: &str, text: &str) -> Value {
    json!({"name": name, "shape": [1, text.len()], "datatype": "BYTES", "data": text.as_bytes()})
}

/// What the model answers to a prompt in three tokens.
fn greedy() -> Value {
    json!({"max_new_tokens": 3})
}

#[tokio::test]
async fn without_the_flag_there_is_no_such_route() {
    assert_eq!(World::new().await.get("/v2").await.status, 404);
}

#[tokio::test]
async fn metadata_and_health_are_tgis_and_the_protocols() {
    let world = world().await;
    assert_eq!(world.get("/v2").await.json()["extensions"], json!(["health", "models", "metrics"]));
    assert_eq!(world.get("/v2/health/live").await.json(), json!({"live": true}));
    assert_eq!(world.get("/v2/health/ready").await.json(), json!({"live": true, "ready": true}));
    let model = world.get(MODEL).await.json();
    assert_eq!(model, json!({"name": "any", "version": "1", "extensions": ["infer", "ready"]}));
    assert_eq!(world.get(&format!("{MODEL}/ready")).await.json()["ready"], true);
    world.engine.drain();
    assert_eq!(world.get("/v2/health/live").await.status, 200);
    assert_eq!(world.get("/v2/health/ready").await.status, 503);
}

#[tokio::test]
async fn outputs_are_in_the_order_of_inputs_under_the_names_that_were_asked_for() {
    let world = world().await;
    let body = json!({
        "id": "42", "parameters": greedy(), "inputs": [bytes("a", "first"), bytes("b", "another")],
        "outputs": [{"name": "x"}, {"name": "y"}],
    });
    let answer = infer(&world, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let chunk = |name: &str, prompt: &str| {
        let text = world.expected(prompt, 3);
        json!({"name": name, "shape": [1, text.len()], "datatype": "BYTES", "data": text.as_bytes()})
    };
    assert_eq!(answer.json(), json!({"id": "42", "outputs": [chunk("x", "first"), chunk("y", "another")]}));
}

#[tokio::test]
async fn a_text_is_answered_by_a_text() {
    let world = world().await;
    let inputs = json!([{"name": "a", "shape": [1], "datatype": "BYTES", "data": ["Hello"]}]);
    let answer = infer(&world, json!({"parameters": greedy(), "inputs": inputs})).await;
    let text = world.expected("Hello", 3);
    let outputs = json!([{"name": "a", "shape": [1], "datatype": "BYTES", "data": [text]}]);
    assert_eq!(answer.json()["outputs"], outputs, "{}", answer.text);
    assert_eq!(answer.json()["id"], answer.header("x-request-id"));
}

#[tokio::test]
async fn failures_are_what_they_are() {
    let world = world().await;
    let input = |data: Value| json!({"inputs": [{"name": "a", "data": data}], "outputs": [{"name": "x"}]});
    for (body, status, error_type) in [
        (json!({"inputs": [bytes("a", "b")], "outputs": []}), 422, "length mismatch"),
        (input(json!([255, 254])), 422, "utf8"),
        (input(json!([256])), 422, "validation"),
        (input(json!([-1])), 422, "validation"),
        (input(json!(["a", "b"])), 422, "validation"),
        (input(json!([97, "b"])), 422, "validation"),
        (input(json!("text")), 422, "validation"),
        (input(json!([])), 422, "validation"),
        (json!({"inputs": []}), 422, "validation"),
        (json!({"inputs": [bytes("a", "b")], "parameters": {"temperature": -1}}), 422, "validation"),
        (json!({"inputs": vec![bytes("a", "b"); 9]}), 422, "validation"),
    ] {
        let answer = infer(&world, body.clone()).await;
        assert_eq!((answer.status.as_u16(), answer.error_type().as_str()), (status, error_type), "{body}");
    }
    world.handle.fail_next_step();
    assert_eq!(infer(&world, json!({"inputs": [bytes("a", "b")]})).await.status, 424);
}

#[tokio::test]
async fn only_what_costs_something_asks_for_a_key() {
    let surface = Surface { kserve: true, api_keys: ApiKeys::new(["a"]), ..Surface::default() };
    let world = World::with(Setup { surface, ..Setup::default() }).await;
    assert_eq!(infer(&world, json!({"inputs": [bytes("a", "b")]})).await.status, 401);
    assert_eq!(world.get("/v2/health/ready").await.status, 200);
}
