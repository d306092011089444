//! The body of `/v1/chat/completions`.

use serde::Deserialize;
use utoipa::ToSchema;

use super::body::{Common, Reports};
use super::later::Later;
use crate::chat::ChatInput;
use crate::error::ApiError;
use crate::numbers::whole;
use crate::payload::FromJson;

/// Views of one object: each reads its own fields past the others', so that an error names the field's whole path.
#[derive(Clone, Debug, ToSchema)]
#[schema(as = ChatRequest)]
pub(crate) struct ChatBody {
    #[serde(flatten)]
    pub common: Common,
    #[serde(flatten)]
    pub own: Chat,
    #[serde(flatten)]
    pub input: ChatInput,
    #[serde(flatten)]
    pub later: Later,
}

/// What no other route reads.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Chat {
    /// Tell the log-probability of each token.
    pub logprobs: Option<bool>,
    /// Where `logprobs` is true: tell so many likely tokens beside each, at most 20 or `--max-top-n-tokens`.
    #[serde(default, deserialize_with = "whole")]
    pub top_logprobs: Option<u32>,
}

impl FromJson for ChatBody {
    fn from_json(bytes: &[u8]) -> Result<Self, ApiError> {
        let (common, own) = (Common::from_json(bytes)?, Chat::from_json(bytes)?);
        Ok(Self { common, own, input: ChatInput::from_json(bytes)?, later: Later::from_json(bytes)? })
    }
}

impl Chat {
    pub fn reports(&self) -> Reports {
        let logprobs = self.logprobs == Some(true);
        let top = if logprobs { self.top_logprobs.unwrap_or(0) } else { 0 };
        Reports { logprobs, top, prompt: false }
    }
}
