//! Who may ask: API keys.
//!
//! Only digests are kept, and all of them are compared to the end: neither the time of a refusal nor a dump of this
//! process tells a key, its length, or how much of it was right.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::error::ApiError;
use crate::payload;
use crate::state::ServerState;

/// The keys of which a client must have one. Without any, everybody may ask.
#[derive(Clone, Default)]
pub struct ApiKeys(Arc<[[u8; 32]]>);

/// Which key a request came with; in its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyNumber(u32);

impl ApiKeys {
    pub fn new(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self(keys.into_iter().map(|key| Sha256::digest(key).into()).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, given: &[u8]) -> Option<KeyNumber> {
        let given: [u8; 32] = Sha256::digest(given).into();
        let mut found = 0;
        for (number, key) in (1u32..).zip(self.0.iter()) {
            found.conditional_assign(&number, key.ct_eq(&given));
        }
        (found > 0).then_some(KeyNumber(found))
    }
}

impl KeyNumber {
    /// The tenant of requests with this key that name none.
    pub fn tenant(self) -> Box<str> {
        format!("key-{}", self.0).into()
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}

/// Lets requests with a key pass, and notes which one it was.
pub(crate) async fn middleware(State(state): State<ServerState>, mut request: Request, next: Next) -> Response {
    match bearer(request.headers()).and_then(|key| state.surface.api_keys.find(key)) {
        Some(number) => {
            request.extensions_mut().insert(number);
            next.run(request).await
        }
        None => {
            payload::discard_unread(request).await;
            ApiError::Unauthorized.into_response()
        }
    }
}

/// The key of the one `Authorization: Bearer …`; the scheme's case is free, the key's is not.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (given.next()?.as_bytes(), given.next()) else { return None };
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    let key = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME) && rest.starts_with(b" ") && !key.is_empty()).then_some(key)
}

const SCHEME: &[u8] = b"bearer";

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn found(authorization: &[&'static str]) -> Option<u32> {
        let values = authorization.iter().map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value)));
        let keys = ApiKeys::new(["secret", "Other", "secret "]);
        bearer(&values.collect()).and_then(|key| keys.find(key)).map(|key| key.0)
    }

    #[test]
    fn a_key_is_found_by_its_number_whatever_the_case_of_the_scheme() {
        assert_eq!(found(&["Bearer secret"]), Some(1));
        assert_eq!(found(&["bearer Other"]), Some(2));
        assert_eq!(found(&["BEARER  secret"]), Some(1));
    }

    #[test]
    fn what_is_not_exactly_one_of_the_keys_is_none() {
        for authorization in [
            &["Bearer Secret"][..],
            &["Bearer other"],
            &["Bearer secre"],
            &["Bearer secretx"],
            &["Bearersecret"],
            &["Bearer"],
            &["Bearer "],
            &["Basic secret"],
            &["secret"],
            &[""],
            &[],
            &["Bearer secret", "Bearer secret"],
        ] {
            assert_eq!(found(authorization), None, "{authorization:?}");
        }
    }

    #[test]
    fn what_is_shown_of_keys_is_how_many_they_are() {
        assert_eq!(format!("{:?}", ApiKeys::new(["a", "b"])), "ApiKeys(2)");
    }
}
