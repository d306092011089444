//! Whose a request is, how urgent, and what it may share: `x-tenant-id`, `x-priority`, `x-deadline-ms`, and the
//! parameters `priority`, `deadline_ms` and `cache_salt`.
//!
//! A gateway sets headers for all that passes through it, a body is about one request: where both say something, the
//! body holds. Only a header names the tenant, so that a gateway can vouch for it; without one, the number of the API
//! key does.

use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use headrace_engine::{DEFAULT_TENANT, Terms};
use headrace_scheduler::{CacheRoot, Priority};

use crate::auth::KeyNumber;
use crate::error::ApiError;
use crate::invalid::Invalid;
use crate::numbers::WholeRange;
use crate::within::Within;

/// Larger is more urgent; −100 is work that fills what others leave.
pub(crate) type Band = Within<-100, 100>;
/// Milliseconds from the arrival of the request's last byte, up to 49 days.
pub(crate) type DeadlineMs = Within<1, { u32::MAX as i64 }>;

/// Bytes of a tenant's name, and of a salt.
pub(crate) const MAX_NAME_BYTES: usize = 64;

/// What the headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderTerms {
    pub tenant: Option<Box<str>>,
    pub priority: Option<Band>,
    pub deadline: Option<DeadlineMs>,
}

/// What the body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyTerms {
    pub priority: Option<Band>,
    pub deadline: Option<DeadlineMs>,
    pub cache_salt: Option<Box<str>>,
}

impl<S: Sync> FromRequestParts<S> for HeaderTerms {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut terms = Self::read(&parts.headers)?;
        if terms.tenant.is_none() {
            terms.tenant = parts.extensions.get::<KeyNumber>().map(|key| key.tenant());
        }
        Ok(terms)
    }
}

impl HeaderTerms {
    fn read(headers: &HeaderMap) -> Result<Self, Invalid> {
        Ok(Self {
            tenant: tenant(headers)?,
            priority: number(headers, "x-priority")?,
            deadline: number(headers, "x-deadline-ms")?,
        })
    }

    /// The tenant's name, also of those who have none.
    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(DEFAULT_TENANT)
    }

    /// What holds for a request that had arrived at `received`.
    pub fn with(&self, body: &BodyTerms, received: Instant) -> Terms {
        let band = body.priority.or(self.priority).and_then(|band| Priority::new(band.get()));
        let deadline = body.deadline.or(self.deadline).map(|ms| Duration::from_millis(ms.get().unsigned_abs()));
        Terms {
            tenant: self.tenant.clone(),
            priority: band.unwrap_or_default(),
            deadline: deadline.map(|time| (received + time).into()),
            cache_root: CacheRoot { salt: body.cache_salt.clone(), ..CacheRoot::default() },
        }
    }
}

/// Printable ASCII only: names go into logs.
fn tenant(headers: &HeaderMap) -> Result<Option<Box<str>>, Invalid> {
    let Some(value) = only(headers, "x-tenant-id")? else { return Ok(None) };
    match value.to_str() {
        Ok(name) if (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains('\t') => Ok(Some(name.into())),
        _ => Err(Invalid::TenantHeader { max: MAX_NAME_BYTES, given: value.len() }),
    }
}

fn number<const MIN: i64, const MAX: i64>(
    headers: &HeaderMap,
    name: &'static str,
) -> Result<Option<Within<MIN, MAX>>, Invalid> {
    let Some(value) = only(headers, name)? else { return Ok(None) };
    let (min, max) = (Within::<MIN, MAX>::MIN.get(), Within::<MIN, MAX>::MAX.get());
    let given = String::from_utf8_lossy(value.as_bytes());
    match given.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(Invalid::NumberHeader { name, min, max, given: given.chars().take(SHOWN_CHARS).collect() }),
    }
}

/// A header's one value. With several, a client could speak before its gateway, or after it.
fn only<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a HeaderValue>, Invalid> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.count()) {
        (first, 0) => Ok(first),
        (_, more) => Err(Invalid::RepeatedHeader { name, times: 1 + more }),
    }
}

/// Characters of a header that an error repeats.
const SHOWN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn read(headers: &[(&'static str, &str)]) -> Result<HeaderTerms, Invalid> {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
        let headers = headers.iter().map(|(name, text)| (name.parse().unwrap(), value(text)));
        let mut all = HeaderMap::new();
        headers.for_each(|(name, value): (HeaderName, HeaderValue)| {
            all.append(name, value);
        });
        HeaderTerms::read(&all)
    }

    fn band(band: i64) -> Option<Band> {
        Some(Band::try_from(band).unwrap())
    }

    #[test]
    fn without_headers_a_request_is_the_default_tenants_and_ordinary() {
        let terms = read(&[]).unwrap();
        assert_eq!((terms.tenant(), &terms), ("default", &HeaderTerms::default()));
        let resolved = terms.with(&BodyTerms::default(), Instant::now());
        assert_eq!((resolved.tenant, resolved.priority, resolved.deadline), (None, Priority::NORMAL, None));
    }

    #[test]
    fn the_ends_of_every_range_are_taken() {
        let longest = "t".repeat(64);
        for (name, text) in [
            ("x-tenant-id", "t"),
            ("x-tenant-id", longest.as_str()),
            ("x-tenant-id", "Team 7 <a@b>"),
            ("x-priority", "-100"),
            ("x-priority", "100"),
            ("x-priority", "+5"),
            ("x-deadline-ms", "1"),
            ("x-deadline-ms", "4294967295"),
        ] {
            read(&[(name, text)]).unwrap();
        }
    }

    #[test]
    fn what_is_outside_names_the_header_and_its_range() {
        let too_long = "t".repeat(65);
        for (name, text, range) in [
            ("x-tenant-id", "", "1 to 64"),
            ("x-tenant-id", too_long.as_str(), "1 to 64"),
            ("x-tenant-id", "a\tb", "1 to 64"),
            ("x-tenant-id", "é", "1 to 64"),
            ("x-priority", "101", "-100 to 100"),
            ("x-priority", "-101", "-100 to 100"),
            ("x-priority", "1.5", "-100 to 100"),
            ("x-priority", "", "-100 to 100"),
            ("x-priority", "99999999999999999999", "-100 to 100"),
            ("x-deadline-ms", "0", "1 to 4294967295"),
            ("x-deadline-ms", "soon", "1 to 4294967295"),
        ] {
            let error = read(&[(name, text)]).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")) && error.contains(range), "{name}: {text}: {error}");
        }
    }

    #[test]
    fn a_header_that_comes_twice_is_refused() {
        for name in ["x-tenant-id", "x-priority", "x-deadline-ms"] {
            let error = read(&[(name, "1"), (name, "1")]).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}` came 2 times")), "{error}");
        }
    }

    #[test]
    fn the_body_holds_where_a_header_says_otherwise() {
        let header = read(&[("x-priority", "7"), ("x-deadline-ms", "1000"), ("x-tenant-id", "a")]).unwrap();
        let received = Instant::now();
        let alone = header.with(&BodyTerms::default(), received);
        assert_eq!((alone.tenant.as_deref(), alone.priority.band()), (Some("a"), 7));
        assert_eq!(alone.deadline, Some((received + Duration::from_secs(1)).into()));
        let body =
            BodyTerms { priority: band(-3), deadline: Some(20i64.try_into().unwrap()), cache_salt: Some("s".into()) };
        let both = header.with(&body, received);
        assert_eq!((both.priority.band(), both.cache_root.salt.as_deref()), (-3, Some("s")));
        assert_eq!(both.deadline, Some((received + Duration::from_millis(20)).into()));
    }
}
