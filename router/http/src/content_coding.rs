//! Bodies that come compressed: decoded within the limit of any body, or refused.

use std::io::{self, Read};

use axum::body::Bytes;
use axum::http::{HeaderMap, header};

use crate::error::ApiError;

/// How the bytes of a body stand for its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Brotli,
}

/// What the header `accept-encoding` of a refusal says.
pub(crate) const ACCEPTED: &str = "gzip, br";

impl Coding {
    /// From `content-encoding`; one coding at most.
    pub fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut given = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(value) = given.next() else { return Ok(Self::Identity) };
        let word = value.to_str().unwrap_or("?").trim().to_ascii_lowercase();
        match word.as_str() {
            _ if given.next().is_some() => Err(ApiError::ContentEncoding { given: "more than one".into() }),
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "br" => Ok(Self::Brotli),
            _ => Err(ApiError::ContentEncoding { given: word.chars().take(SHOWN_CHARS).collect() }),
        }
    }

    /// The content of `body`, which has at most `limit` bytes: no more than that is ever held, however much the body
    /// would become.
    pub fn decode(self, body: Bytes, limit: usize) -> Result<Bytes, ApiError> {
        match self {
            Self::Identity if body.len() > limit => Err(ApiError::TooLarge { limit }),
            Self::Identity => Ok(body),
            Self::Gzip => read(flate2::read::MultiGzDecoder::new(&body[..]), "gzip", limit),
            Self::Brotli => read(brotli_decompressor::Decompressor::new(&body[..], BUFFER), "brotli", limit),
        }
    }
}

fn read(content: impl Read, coding: &str, limit: usize) -> Result<Bytes, ApiError> {
    let mut decoded = Vec::new();
    match content.take(limit as u64 + 1).read_to_end(&mut decoded) {
        Ok(_) if decoded.len() > limit => Err(ApiError::TooLarge { limit }),
        Ok(_) => Ok(decoded.into()),
        Err(error) => Err(ApiError::Broken { reason: format!("it is not {coding}: {}", shown(&error)) }),
    }
}

fn shown(error: &io::Error) -> String {
    error.to_string().chars().take(SHOWN_CHARS).collect()
}

const BUFFER: usize = 4096;
const SHOWN_CHARS: usize = 40;
