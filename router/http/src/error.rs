//! The one mapping of errors to HTTP: status, TGI's `error_type`, and `{"error", "error_type"}` as the body.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use headrace_engine::GenerationError;
use headrace_scheduler::{Micros, Overload, Rejected};
use headrace_text::chat::TemplateError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::content_coding;
use crate::invalid::{Count, Invalid};
use crate::json;
use crate::openai::later::ToolError;
use crate::payload::MAX_DEPTH;

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("Input validation error: {0}")]
    Invalid(#[from] Invalid),
    #[error(
        "Inputs and outputs length mismatch: {inputs} `inputs` and {outputs} `outputs`. Name an output for each input, or \
         leave `outputs` out"
    )]
    LengthMismatch { inputs: usize, outputs: usize },
    #[error("{reason} in `data` of input {input:?}. Send the text itself as a list of one, or its bytes in UTF-8")]
    NotText { input: String, reason: std::str::Utf8Error },
    /// A chat has no prompt.
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("Tool error: {0}")]
    Tool(#[from] ToolError),
    /// More prompts than one request may have.
    #[error(
        "Number of prompts exceeds the maximum allowed batch size of {max}. Given: {given}. Send fewer, or raise \
         {flag}"
    )]
    BatchSize { max: u32, flag: &'static str, given: usize },
    #[error("Suffix is not supported and can be achieved by preprocessing the prompt. Leave `suffix` out")]
    Suffix,
    /// `/vertex` without an instance. Both words are TGI's.
    #[error("Input validation error: `instances` must hold at least one")]
    NoInstances,
    #[error("The model {given:?} does not exist. GET /v1/models lists the names there are")]
    UnknownModel { given: String },
    /// The JSON is right and its types are not.
    #[error("Input validation error: `{path}`: {reason}")]
    WrongType { path: String, reason: String },
    #[error("The body is not valid JSON: {reason}. Send one JSON object in UTF-8, such as {example}")]
    NotJson { reason: String, example: &'static str },
    #[error("The content-type must be application/json. Given: {given}. Send `-H 'content-type: application/json'`")]
    MediaType { given: String },
    #[error(
        "The body nests {MAX_DEPTH} levels of arrays and objects or more, which no request needs. Send a flatter one"
    )]
    TooDeep,
    #[error(
        "The content-encoding must be one of {coded}. Given: {given}. Leave it out and send plain JSON, or use one of \
         these",
        coded = content_coding::ACCEPTED
    )]
    ContentEncoding { given: String },
    #[error("The body must have at most {limit} bytes. Send less, or raise --payload-limit")]
    TooLarge { limit: usize },
    #[error("The body made no progress, or was not there, within {limit:?}. Send it faster")]
    TooSlow { limit: Duration },
    #[error("The body could not be read: {reason}. Send the request again")]
    Broken { reason: String },
    #[error(
        "This server asks for an API key, and none of its own came. Send one as `Authorization: Bearer …`, or see \
         --api-key"
    )]
    Unauthorized,
    #[error("There is no route {method} {path} here. GET /docs shows which there are")]
    NoRoute { method: Method, path: String },
    #[error("{path} does not take {method}; the `allow` header says what it takes")]
    Method { method: Method, path: String },
    #[error(
        "Model is overloaded: {limit} requests are running or waiting already. Try again later, or raise \
         --max-concurrent-requests"
    )]
    Overloaded { limit: u32, retry_after: Micros },
    /// The scheduler refuses, and knows why and for how long.
    #[error("Model is overloaded: {0}")]
    Busy(Overload),
    /// Its deadline passed while it waited.
    #[error("Model is overloaded: {reason}")]
    Late { reason: String, retry_after: Micros },
    #[error("{limit} viewers watch the live view already. Close one of their pages, and try again")]
    TooManyViewers { limit: usize },
    #[error("The server is shutting down. Send the request to another replica, or try again later")]
    ShuttingDown,
    #[error(
        "The server shut down before the answer was finished. Send the request to another replica, or try again later"
    )]
    CutOff,
    #[error("The model is not loaded yet: the server is {doing}. Try again when GET /readyz answers 200")]
    Loading { doing: Cow<'static, str> },
    #[error(
        "The answer was not finished within {limit:?}, and was given up. Ask for fewer tokens, try again when there is \
         less to do, or raise --request-timeout"
    )]
    TimedOut { limit: Duration },
    #[error("Request failed during generation: {reason}")]
    Generation { reason: String },
    /// The engine ended the generation without an end: it is gone.
    #[error("Incomplete generation")]
    Incomplete,
    #[error("Incomplete generation stream")]
    IncompleteStream,
    #[error("unhealthy: {reason}")]
    Unhealthy { reason: String },
    #[error("Internal error: {0}. This is a bug in the server")]
    Internal(&'static str),
}

impl ApiError {
    /// Nothing is at the request's path.
    pub fn no_route(method: &Method, uri: &Uri) -> Self {
        Self::NoRoute { method: method.clone(), path: Self::shown_path(uri) }
    }

    /// What is at the request's path has other methods.
    pub fn wrong_method(method: &Method, uri: &Uri) -> Self {
        Self::Method { method: method.clone(), path: Self::shown_path(uri) }
    }

    /// The beginning of a path that somebody asked for.
    pub fn shown_path(uri: &Uri) -> String {
        uri.path().chars().take(SHOWN_CHARS).collect()
    }

    pub fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) | Self::WrongType { .. } | Self::Template(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::LengthMismatch { .. } | Self::NotText { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Tool(_) | Self::BatchSize { .. } | Self::Suffix | Self::NoInstances => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::NotJson { .. } | Self::TooDeep | Self::Broken { .. } => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::MediaType { .. } | Self::ContentEncoding { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::NoRoute { .. } | Self::UnknownModel { .. } => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Overloaded { .. } | Self::Busy(_) | Self::Late { .. } | Self::TooManyViewers { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::ShuttingDown | Self::CutOff | Self::Loading { .. } | Self::Unhealthy { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Generation { .. } => StatusCode::FAILED_DEPENDENCY,
            Self::Incomplete | Self::IncompleteStream | Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Clients map these to their exceptions. Down to `IncompleteStream` they are TGI's; where TGI answers in plain text we name
    /// the status.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::WrongType { .. } => "validation",
            Self::Overloaded { .. } | Self::Busy(_) | Self::Late { .. } | Self::TooManyViewers { .. } => "overloaded",
            Self::Generation { .. } => "generation",
            Self::LengthMismatch { .. } => "length mismatch",
            Self::NotText { .. } => "utf8",
            Self::Template(TemplateError::MissingVariable { .. }) => "missing_template_variable",
            Self::Template(_) => "template_error",
            Self::Tool(_) => "tool_error",
            Self::BatchSize { .. } => "batch size exceeded",
            Self::Suffix => "suffix not supported",
            Self::NoInstances => "Input validation error",
            Self::Incomplete => "incomplete_generation",
            Self::IncompleteStream => "incomplete_generation_stream",
            Self::Unhealthy { .. } => "healthcheck",
            Self::ShuttingDown | Self::CutOff => "shutting_down",
            Self::Loading { .. } => "loading",
            Self::TimedOut { .. } => "timeout",
            Self::NotJson { .. } | Self::TooDeep | Self::Broken { .. } => "bad_request",
            Self::Unauthorized => "unauthorized",
            Self::MediaType { .. } | Self::ContentEncoding { .. } => "unsupported_media_type",
            Self::TooLarge { .. } => "payload_too_large",
            Self::TooSlow { .. } => "request_timeout",
            Self::NoRoute { .. } | Self::UnknownModel { .. } => "not_found",
            Self::Method { .. } => "method_not_allowed",
            Self::Internal(_) => "internal",
        }
    }

    /// Label `err` of `tgi_request_failure`.
    pub fn failure(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::LengthMismatch { .. } | Self::NotText { .. } => "validation",
            Self::Tool(_) | Self::BatchSize { .. } | Self::Suffix | Self::NoInstances => "validation",
            Self::Overloaded { .. } | Self::Busy(_) | Self::Late { .. } | Self::TooManyViewers { .. } => "overloaded",
            Self::Generation { .. } => "generation",
            Self::Template(_) => "template",
            Self::Incomplete | Self::IncompleteStream => "incomplete",
            other => other.error_type(),
        }
    }

    /// Value of the header `retry-after`, in whole seconds, at least one: when the queue is predicted to be drained.
    pub fn retry_after(&self) -> Option<HeaderValue> {
        let time = match self {
            Self::Overloaded { retry_after, .. } | Self::Late { retry_after, .. } => retry_after,
            Self::Busy(overload) => &overload.retry_after,
            Self::TooManyViewers { .. } => &SOON,
            _ => return None,
        };
        Some(HeaderValue::from(time.whole_seconds()))
    }

    /// The field that is wrong, by its native name where it has one.
    pub fn field(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Invalid(invalid) => Some(invalid.field().into()),
            Self::Template(_) => Some("messages".into()),
            Self::Tool(ToolError::Later { field, .. }) => Some((*field).into()),
            Self::Tool(ToolError::Unknown { .. }) => Some("tool_choice".into()),
            Self::Tool(ToolError::WithGrammar) => Some("tools".into()),
            Self::BatchSize { .. } => Some("prompt".into()),
            Self::Suffix => Some("suffix".into()),
            Self::UnknownModel { .. } => Some("model".into()),
            // Of the body as a whole. A field that is missing is named by the sentence alone.
            Self::WrongType { path, reason } if path == "body" => missing_or_twice(reason).map(Cow::Borrowed),
            Self::WrongType { path, .. } => Some(path.into()),
            _ => None,
        }
    }

    /// OpenAI's code for it, where it has one.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Invalid(Invalid::TotalTokens { .. } | Invalid::InputLength { .. }) => Some("context_length_exceeded"),
            Self::UnknownModel { .. } => Some("model_not_found"),
            Self::Unauthorized => Some("invalid_api_key"),
            Self::Overloaded { .. } | Self::Busy(_) | Self::Late { .. } | Self::TooManyViewers { .. } => {
                Some("rate_limit_exceeded")
            }
            _ => None,
        }
    }

    /// What this error's answer says in a header.
    pub fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Unauthorized => Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::ContentEncoding { .. } => {
                Some((header::ACCEPT_ENCODING, HeaderValue::from_static(content_coding::ACCEPTED)))
            }
            _ => self.retry_after().map(|seconds| (header::RETRY_AFTER, seconds)),
        }
    }

    /// `{"error": …, "error_type": …}`, also the data of an error event.
    pub fn body(&self) -> ErrorBody {
        ErrorBody { error: self.to_string(), error_type: self.error_type() }
    }
}

/// The field that an object lacks, or has twice, as serde says it. Backticks of other sentences hold what was sent.
fn missing_or_twice(sentence: &str) -> Option<&str> {
    let starts = ["missing field `", "duplicate field `"];
    starts.iter().find_map(|start| sentence.strip_prefix(start))?.split('`').next()
}

/// TGI's error shape.
#[derive(Serialize, ToSchema)]
#[schema(as = ErrorResponse)]
pub(crate) struct ErrorBody {
    /// A sentence that says what is wrong, and what to do.
    pub error: String,
    /// A word for programs.
    #[schema(example = "validation")]
    pub error_type: &'static str,
}

impl From<GenerationError> for ApiError {
    fn from(error: GenerationError) -> Self {
        match error {
            GenerationError::Rejected(rejected) => rejected.into(),
            GenerationError::ShuttingDown => Self::ShuttingDown,
            GenerationError::CutOff => Self::CutOff,
            GenerationError::TimedOut { limit } => Self::TimedOut { limit },
            GenerationError::DeadlineMissed { retry_after } => Self::Late { reason: error.to_string(), retry_after },
            failed => Self::Generation { reason: failed.to_string() },
        }
    }
}

impl From<Rejected> for ApiError {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::EmptyPrompt => Invalid::EmptyInputs.into(),
            Rejected::NothingToGenerate => Invalid::NoNewTokens.into(),
            Rejected::TooLong { prompt, max_new, limit } => {
                Invalid::TotalTokens { max: limit.0, input: Count::Exactly(prompt.0 as usize), new: max_new.0 }.into()
            }
            Rejected::Overloaded(overload) => Self::Busy(overload),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let json = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status(), json, json::bytes(&self.body())).into_response();
        response.headers_mut().extend(self.header());
        // For routes whose errors have another shape, and for the log.
        response.extensions_mut().insert(self);
        response
    }
}

const SHOWN_CHARS: usize = 100;

/// A page is closed any moment.
const SOON: Micros = Micros(5_000_000);
