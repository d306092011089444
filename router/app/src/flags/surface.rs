//! Flags about who may ask, how long an answer may take, and which routes there are.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use clap::Args;
use clap::builder::BoolishValueParser;

#[derive(Debug, Args)]
pub struct SurfaceFlags {
    /// Key that clients must send as `Authorization: Bearer KEY`; may be repeated, or be a list with commas. Routes that
    /// cost something ask for one, those that say how the server is do not. Requests without an x-tenant-id are those of
    /// tenant key-1, key-2, …, by the key's place. A variable hides keys from the machine's list of processes; they are
    /// never logged. Default: everybody may ask.
    #[arg(long, env, value_name = "KEY", value_delimiter = ',', num_args = 1..)]
    pub api_key: Vec<Secret>,
    /// Seconds of silence after which a stream gets a comment, so that proxies keep its connection; 0 sends none.
    #[arg(long, env, value_name = "SECONDS", default_value_t = 15)]
    pub sse_ping_interval: u64,
    /// Seconds that a request may take, from its arrival to the end of its answer. Then it is cancelled, and answered 504
    /// or, on a stream, with an error as its last event. Default: as long as it takes.
    #[arg(long, env, value_name = "SECONDS")]
    pub request_timeout: Option<u32>,
    /// Serve KServe's routes below /v2 too.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub kserve: bool,
    /// Path at which Vertex AI asks for predictions; it is answered as /vertex.
    #[arg(long, env, value_name = "PATH", value_parser = path)]
    pub aip_predict_route: Option<String>,
    /// Path at which Vertex AI asks for the server's health.
    #[arg(long, env, value_name = "PATH", value_parser = path)]
    pub aip_health_route: Option<String>,
}

fn path(text: &str) -> Result<String, String> {
    let whole = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
    if whole { Ok(text.to_owned()) } else { Err("not a path such as /predict".to_owned()) }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
