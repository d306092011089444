//! What every object of an answer has around its choices.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use utoipa::ToSchema;

use super::usage::Usage;
use crate::state::Shared;

/// Equal in all objects of one answer.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    id: String,
    created: u64,
    model: String,
    system_fingerprint: String,
}

/// An answer, or a chunk of one.
#[derive(Serialize, ToSchema)]
pub(crate) struct Enveloped<'a, C> {
    #[schema(value_type = String)]
    object: &'static str,
    /// Not empty, and the same in all chunks of an answer.
    id: &'a str,
    /// When the answer was begun, in seconds since 1970.
    created: u64,
    /// As the request named it.
    model: &'a str,
    /// The server's version and build.
    system_fingerprint: &'a str,
    choices: &'a [C],
    usage: Option<Usage>,
}

impl Envelope {
    /// `prefix` says which route answers; the rest of the id is the request's, so that it is found in the log.
    pub fn new(state: &Shared, prefix: &str, request_id: &str, model: String) -> Self {
        let info = &state.info;
        let build = info.docker_label.as_deref().unwrap_or("native");
        Self {
            id: format!("{prefix}-{request_id}"),
            created: unix_seconds(),
            model,
            system_fingerprint: format!("{}-{build}", info.version),
        }
    }

    pub fn around<'a, C>(&'a self, object: &'static str, choices: &'a [C], usage: Option<Usage>) -> Enveloped<'a, C> {
        Enveloped {
            object,
            id: &self.id,
            created: self.created,
            model: &self.model,
            system_fingerprint: &self.system_fingerprint,
            choices,
            usage,
        }
    }
}

/// Now, as OpenAI counts time.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
