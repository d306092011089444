//! KServe's `/v2/…` routes, as TGI had them: mounted when a flag says so.
//!
//! Where TGI answers every failure with 500 `Incomplete generation`, these answer with the error itself, and the outputs
//! are in the order of the inputs. What TGI leaves out of the protocol is taken too: `data` as a list of one text, no
//! `id`, no `outputs`.

mod wire;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::wire::{Data, InferenceOutput, InferenceRequest, Input, Liveness, Metadata, Output, OutputChunk, Readiness};
use crate::admission::{self, Admitted, Prompt};
use crate::call::{Call, Summary};
use crate::collect::collect;
use crate::error::ApiError;
use crate::in_path::InPath;
use crate::invalid::Invalid;
use crate::openapi::GenerateErrors;
use crate::payload::Payload;
use crate::request_id::Caller;
use crate::routes::health::HealthErrors;
use crate::state::ServerState;
use crate::terms::HeaderTerms;
use crate::validation::{self, Checked, Delivery};
use crate::{best_of, json};

/// Routes that anybody may ask.
pub(crate) fn open() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(server_metadata))
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(model_metadata))
        .routes(routes!(model_ready))
}

/// The one that generates.
pub(crate) fn generating() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(infer))
}

/// The model that a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is of use: there is one model, whatever it is called")]
struct ModelPath {
    #[param(min_length = 1, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", example = "model")]
    model_name: String,
    #[param(min_length = 1, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", example = "1")]
    model_version: String,
}

/// What the server is.
#[utoipa::path(get, path = "/v2", tag = "KServe", responses((status = OK, description = "Names", body = Metadata)))]
async fn server_metadata() -> Response {
    answer(&Metadata {
        name: "headrace",
        version: env!("CARGO_PKG_VERSION"),
        extensions: &["health", "models", "metrics"],
    })
}

/// Whether the process and its engine turn.
#[utoipa::path(
    get, path = "/v2/health/live", tag = "KServe",
    responses((status = OK, description = "They do", body = Liveness), HealthErrors)
)]
async fn live(State(state): State<ServerState>) -> Result<Response, ApiError> {
    state.engine.alive().map_err(|reason| ApiError::Unhealthy { reason })?;
    Ok(answer(&Liveness { live: true }))
}

/// Whether requests are taken and every shard answers.
#[utoipa::path(
    get, path = "/v2/health/ready", tag = "KServe",
    responses((status = OK, description = "Ready", body = Readiness), HealthErrors)
)]
async fn ready(State(state): State<ServerState>) -> Result<Response, ApiError> {
    state.engine.ready().map_err(|reason| ApiError::Unhealthy { reason })?;
    Ok(answer(&Readiness { live: true, ready: true }))
}

/// The model under the name that was asked for: there is one, whatever it is called.
#[utoipa::path(
    get, path = "/v2/models/{model_name}/versions/{model_version}", tag = "KServe",
    params(ModelPath),
    responses((status = OK, description = "Names", body = Metadata))
)]
async fn model_metadata(InPath((name, version)): InPath<(String, String)>) -> Response {
    answer(&Metadata { name: &name, version: &version, extensions: &["infer", "ready"] })
}

/// `/v2/health/ready`: there is one model.
#[utoipa::path(
    get, path = "/v2/models/{model_name}/versions/{model_version}/ready", tag = "KServe",
    params(ModelPath),
    responses((status = OK, description = "Ready", body = Readiness), HealthErrors)
)]
async fn model_ready(state: State<ServerState>) -> Result<Response, ApiError> {
    ready(state).await
}

/// Generates from each input, and answers when all is there.
#[utoipa::path(
    post, path = "/v2/models/{model_name}/versions/{model_version}/infer", tag = "KServe",
    params(ModelPath),
    request_body = InferenceRequest,
    responses((status = OK, description = "The answers, in the inputs' order", body = InferenceOutput), GenerateErrors)
)]
async fn infer(
    State(state): State<ServerState>,
    caller: Caller,
    terms: HeaderTerms,
    Payload { body, received }: Payload<InferenceRequest>,
) -> Response {
    let id = body.id.clone().unwrap_or_else(|| caller.id().to_owned());
    let mut call = Call::begin(state, caller, terms, received);
    match outputs(&mut call, body).await {
        Ok(outputs) => answer(&InferenceOutput { id, outputs }),
        Err(error) => {
            call.failed(&error);
            error.into_response()
        }
    }
}

async fn outputs(call: &mut Call, body: InferenceRequest) -> Result<Vec<OutputChunk>, ApiError> {
    let InferenceRequest { parameters, inputs, outputs, .. } = body;
    let parameters = parameters.0;
    let names = names(&inputs, outputs)?;
    let as_text: Vec<bool> = inputs.iter().map(|input| matches!(input.0.data, Data::Text(_))).collect();
    let texts = inputs.into_iter().map(|input| text(input.0)).collect::<Result<Vec<_>, _>>()?;

    let state = call.state().clone();
    let choices = validation::best_of(&parameters, &state.limits, Delivery::Whole)?;
    let generations = u32::try_from(texts.len()).ok().and_then(|inputs| inputs.checked_mul(choices));
    let max = state.limits.max_concurrent_requests;
    let Some(generations) = generations.filter(|&all| all <= max) else {
        return Err(Invalid::TooManyInputs { max: max / choices, given: texts.len() }.into());
    };
    let permit = admission::enter(call, generations)?;
    let empty = texts.is_empty() || texts.iter().any(String::is_empty);
    let (limits, seed) = (&state.limits, rand::random());
    let checked = validation::check(empty, &parameters, choices, limits, state.model(), Delivery::Whole, seed)?;
    let prompts = texts.into_iter().map(Prompt::Text).collect();
    let admission = admission::start(call, permit, prompts, checked).await?;
    let answers = answers(call, admission.prompts, &admission.checked).await?;
    let named = answers.into_iter().zip(names).zip(as_text);
    Ok(named.map(|((text, name), as_text)| OutputChunk::new(name, text, as_text)).collect())
}

/// One name per input: those that were asked for, or the inputs' own.
fn names(inputs: &[wire::Entry<Input>], outputs: Option<Vec<wire::Entry<Output>>>) -> Result<Vec<String>, ApiError> {
    match outputs {
        None => Ok(inputs.iter().map(|input| input.0.name.clone()).collect()),
        Some(outputs) if outputs.len() == inputs.len() => Ok(outputs.into_iter().map(|output| output.0.name).collect()),
        Some(outputs) => Err(ApiError::LengthMismatch { inputs: inputs.len(), outputs: outputs.len() }),
    }
}

fn text(input: Input) -> Result<String, ApiError> {
    match input.data {
        Data::Text(text) => Ok(text),
        Data::Bytes(bytes) => String::from_utf8(bytes)
            .map_err(|error| ApiError::NotText { input: input.name, reason: error.utf8_error() }),
    }
}

/// Waits for all answers; the first that fails fails the request.
async fn answers(call: &mut Call, prompts: Vec<Admitted>, checked: &Checked) -> Result<Vec<String>, ApiError> {
    let whole = prompts.into_iter().map(async |Admitted { text, generations, .. }| {
        let answers = collect(generations, checked.choices > 1).await?;
        let (best, _) = best_of::pick(answers).ok_or(ApiError::Incomplete)?;
        Ok::<_, ApiError>((text, best.finished))
    });
    let whole = futures::future::try_join_all(whole).await?;
    let mut summary = Summary::new(checked.shown_seed(0));
    whole.iter().for_each(|(_, finished)| summary.add(finished));
    call.succeeded(&summary);
    let prepend = checked.return_full_text == Some(true);
    let shown = |(prompt, answer): (String, headrace_engine::Finished)| {
        if prepend { prompt + &answer.text } else { answer.text }
    };
    Ok(whole.into_iter().map(shown).collect())
}

fn answer(body: &impl serde::Serialize) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json::bytes(body)).into_response()
}
