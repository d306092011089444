//! `POST /vertex`, which Vertex AI calls: several requests in one, answered by their texts alone.
//!
//! An instance is a body of `/generate` or of a chat. All run at once, each as a request of its own; one that fails fails
//! all, with its own status and sentence. As in TGI an instance of the first kind samples unless it says otherwise.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::answer;
use crate::call::Call;
use crate::error::ApiError;
use crate::json;
use crate::openai::chat;
use crate::openai::chat_body::ChatBody;
use crate::openapi::GenerateErrors;
use crate::parameters::GenerateBody;
use crate::payload::{FromJson, Payload};
use crate::request_id::Caller;
use crate::state::ServerState;
use crate::terms::HeaderTerms;

/// Answers several requests by their texts.
#[utoipa::path(
    post, path = "/vertex", tag = "Text generation", request_body = VertexBody,
    responses((status = OK, description = "A text for each instance", body = Predictions), GenerateErrors)
)]
pub(crate) async fn vertex(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<VertexBody>,
) -> Response {
    if body.instances.is_empty() {
        return ApiError::NoInstances.into_response();
    }
    let begin = |_| Call::begin(state.clone(), caller.clone(), terms.clone(), received);
    let mut calls: Vec<Call> = body.instances.iter().map(begin).collect();
    let predicting = calls.iter_mut().zip(body.instances).map(|(call, instance)| predict(call, instance));
    match try_join_all(predicting).await {
        Ok(predictions) => {
            ([(header::CONTENT_TYPE, "application/json")], json::bytes(&Predictions { predictions })).into_response()
        }
        Err(error) => {
            // Nobody has left the others: what failed the one failed them too.
            calls.iter_mut().filter(|call| !call.has_ended()).for_each(|call| call.failed(&error));
            error.into_response()
        }
    }
}

async fn predict(call: &mut Call, instance: Instance) -> Result<String, ApiError> {
    match instance {
        Instance::Generate(body) => answer::text(call, body.inputs, &body.parameters.0).await,
        Instance::Chat(body) => chat::text(call, *body).await,
    }
}

#[derive(Deserialize, ToSchema)]
#[schema(as = VertexRequest)]
pub(crate) struct VertexBody {
    #[schema(min_items = 1)]
    instances: Vec<Instance>,
}

#[derive(ToSchema)]
#[schema(as = VertexInstance)]
#[serde(untagged)]
enum Instance {
    Generate(Box<GenerateBody>),
    Chat(Box<ChatBody>),
}

#[derive(Serialize, ToSchema)]
#[schema(as = VertexResponse)]
pub(crate) struct Predictions {
    predictions: Vec<String>,
}

impl<'de> Deserialize<'de> for Instance {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let read = match fields.contains_key("messages") {
            true => instance(fields).map(Box::new).map(Self::Chat),
            false => {
                if let Some(Value::Object(parameters)) = fields.get_mut("parameters") {
                    parameters.entry("do_sample").or_insert(Value::Bool(true));
                }
                instance(fields).map(Box::new).map(Self::Generate)
            }
        };
        read.map_err(serde::de::Error::custom)
    }
}

/// The sentence names the field within the instance; which instance it was is known outside.
fn instance<T: FromJson>(fields: Map<String, Value>) -> Result<T, String> {
    T::from_json(Value::Object(fields).to_string().as_bytes()).map_err(|error| match error {
        ApiError::WrongType { path, reason } => format!("`{path}`: {reason}"),
        other => other.to_string(),
    })
}
