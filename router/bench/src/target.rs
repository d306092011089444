//! Where requests go, and what they look like there.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, InvalidHeaderValue};
use hyper::{Request, Uri};
use serde_json::json;

use crate::workload::Ask;

/// A server and the API that it is asked by.
#[derive(Clone, Debug)]
pub struct Target {
    api: Api,
    /// As `Host` names it.
    authority: String,
    /// What comes before the API's path, such as `/some/prefix`; usually nothing.
    prefix: String,
    model: String,
    authorization: Option<HeaderValue>,
}

/// Whose requests and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/generate_stream`: one event a token.
    Tgi,
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`: the prompt is one message of a user.
    Chat,
}

/// Why there is nothing to send requests to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("{url} is no URL like http://127.0.0.1:3000")]
    Url { url: String },
    #[error("{url}: only http is spoken here; measure a server behind TLS from its own machine")]
    Scheme { url: String },
    #[error("the API key has characters that no header may have")]
    Key,
}

impl Target {
    /// `url`: scheme, host and port, and a path if the API lies below one. `model` is what OpenAI's routes are asked
    /// for.
    ///
    /// # Errors
    /// `url` or `key` cannot be used.
    pub fn new(url: &str, api: Api, model: String, key: Option<&str>) -> Result<Self, TargetError> {
        let uri = Uri::from_str(url).map_err(|_| TargetError::Url { url: url.to_owned() })?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(TargetError::Url { url: url.to_owned() });
        };
        if scheme != "http" {
            return Err(TargetError::Scheme { url: url.to_owned() });
        }
        let authorization = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}"))).transpose();
        Ok(Self {
            api,
            authority: authority.to_string(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            model,
            authorization: authorization.map_err(|_: InvalidHeaderValue| TargetError::Key)?,
        })
    }

    /// Host and port to connect to.
    pub(crate) fn address(&self) -> String {
        // A port is digits after the last colon; the colons of an IPv6 address are within brackets.
        let after_host = self.authority.rsplit(']').next().unwrap_or_default();
        if after_host.contains(':') { self.authority.clone() } else { format!("{}:80", self.authority) }
    }

    pub(crate) fn api(&self) -> Api {
        self.api
    }

    /// The request that asks for a stream of exactly so many tokens, where the server knows how to go on beyond an
    /// end-of-sequence token.
    pub(crate) fn request(&self, ask: &Ask) -> Request<Full<Bytes>> {
        let path = match self.api {
            Api::Tgi => "/generate_stream",
            Api::Completions => "/v1/completions",
            Api::Chat => "/v1/chat/completions",
        };
        let mut request = Request::new(Full::new(Bytes::from(self.body(ask).to_string())));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.path(path);
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.common(headers);
        request
    }

    /// `GET /health`.
    pub(crate) fn health(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = self.path("/health");
        self.common(request.headers_mut());
        request
    }

    fn path(&self, path: &str) -> Uri {
        // Joined from the path of a URI and one of ours: always a path.
        Uri::from_str(&format!("{}{path}", self.prefix)).unwrap_or_default()
    }

    fn common(&self, headers: &mut hyper::HeaderMap) {
        if let Ok(host) = HeaderValue::from_str(&self.authority) {
            headers.insert(HOST, host);
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
    }

    fn body(&self, ask: &Ask) -> serde_json::Value {
        let Ask { prompt, output_tokens } = ask;
        if self.api == Api::Tgi {
            let parameters = json!({
                "max_new_tokens": output_tokens, "do_sample": false, "details": true, "ignore_eos_token": true
            });
            return json!({"inputs": prompt, "parameters": parameters});
        }
        let mut body = json!({
            "model": self.model, "max_tokens": output_tokens, "temperature": 0, "ignore_eos": true,
            "stream": true, "stream_options": {"include_usage": true}
        });
        match self.api {
            Api::Chat => body["messages"] = json!([{"role": "user", "content": prompt}]),
            _ => body["prompt"] = json!(prompt),
        }
        body
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tgi => "tgi",
            Self::Completions => "openai",
            Self::Chat => "openai-chat",
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, TargetError> {
        Target::new(url, Api::Completions, "m".into(), None)
    }

    #[test]
    fn a_url_without_a_port_means_port_80() {
        assert_eq!(target("http://example.org").unwrap().address(), "example.org:80");
        assert_eq!(target("http://[::1]").unwrap().address(), "[::1]:80");
        assert_eq!(target("http://[::1]:3000").unwrap().address(), "[::1]:3000");
    }

    #[test]
    fn the_path_of_the_url_comes_before_the_apis() {
        let request =
            target("http://host:1/some/where/").unwrap().request(&Ask { prompt: "a".into(), output_tokens: 1 });
        assert_eq!(request.uri(), "/some/where/v1/completions");
        assert_eq!(request.headers()[HOST], "host:1");
    }

    #[test]
    fn what_is_no_http_url_is_refused() {
        assert_eq!(target("127.0.0.1:3000").unwrap_err(), TargetError::Url { url: "127.0.0.1:3000".into() });
        assert_eq!(target("https://host").unwrap_err(), TargetError::Scheme { url: "https://host".into() });
    }
}
