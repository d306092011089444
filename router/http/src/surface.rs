//! What the server offers and to whom, beside the limits of a request.

use std::time::Duration;

use crate::auth::ApiKeys;
use crate::vertex_ai::VertexAi;

/// Checked before it gets here.
#[derive(Clone, Debug)]
pub struct Surface {
    /// Who may use the routes that cost something; nobody named: everybody.
    pub api_keys: ApiKeys,
    /// How long a stream is silent until a comment shows that it lives. `None`: for ever.
    pub sse_ping: Option<Duration>,
    /// From a request's arrival to the end of its answer. `None`: as long as it takes.
    pub request_timeout: Option<Duration>,
    /// KServe's routes below `/v2`.
    pub kserve: bool,
    /// Paths that Vertex AI chose.
    pub vertex_ai: VertexAi,
}

impl Default for Surface {
    /// TGI's.
    fn default() -> Self {
        Self {
            api_keys: ApiKeys::default(),
            sse_ping: Some(Duration::from_secs(15)),
            request_timeout: None,
            kserve: false,
            vertex_ai: VertexAi::default(),
        }
    }
}
