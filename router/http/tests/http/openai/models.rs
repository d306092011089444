//! Names of the model.

use serde_json::json;

use super::{complete, completion};
use crate::world::{Setup, World};

async fn named() -> World {
    let served_model_names = vec!["first".to_owned(), "team/second".to_owned()];
    World::with(Setup { served_model_names, ..Setup::default() }).await
}

#[tokio::test]
async fn the_list_has_the_model_by_its_id() {
    let answer = World::new().await.get("/v1/models").await.json();
    assert_eq!((&answer["object"], answer["data"].as_array().unwrap().len()), (&json!("list"), 1));
    let model = &answer["data"][0];
    assert_eq!(
        (&model["id"], &model["object"], &model["owned_by"]),
        (&json!("org/model"), &json!("model"), &json!("org/model"))
    );
    assert!(model["created"].as_u64().unwrap() > 1_700_000_000);
}

#[tokio::test]
async fn one_model_is_found_by_name_slashes_and_all_and_others_are_404() {
    let world = World::new().await;
    for path in ["/v1/models/org/model", "/v1/models/org%2Fmodel"] {
        assert_eq!(world.get(path).await.json()["id"], "org/model");
    }
    assert_eq!(world.get("/v1/models/tgi").await.json()["id"], "tgi", "requests may name it so");
    let missing = world.get("/v1/models/nope").await;
    assert_eq!((missing.status.as_u16(), missing.error_type().as_str()), (404, "not_found"));
    assert_eq!(missing.json()["error"]["code"], "model_not_found");
}

#[tokio::test]
async fn any_name_is_taken_and_repeated() {
    let world = World::new().await;
    for (asked, told) in [
        (json!(null), "org/model"),
        (json!("tgi"), "org/model"),
        (json!("dummy"), "dummy"),
        (json!("http://localhost:3000/"), "http://localhost:3000/"),
    ] {
        assert_eq!(complete(&world, json!({"model": asked})).await["model"], told);
    }
}

#[tokio::test]
async fn a_server_with_names_knows_those_its_id_and_tgi() {
    let world = named().await;
    let list = world.get("/v1/models").await.json();
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["first", "team/second"]);
    for (asked, told) in [
        ("first", "first"),
        ("team/second", "team/second"),
        ("org/model", "org/model"),
        ("tgi", "first"),
        ("", "first"),
    ] {
        assert_eq!(complete(&world, json!({"model": asked})).await["model"], told, "{asked}");
    }
    let unknown = world.post("/v1/completions", completion(json!({"model": "gpt-4"}))).await;
    assert_eq!((unknown.status.as_u16(), &unknown.json()["error"]["param"]), (404, &json!("model")));
}
