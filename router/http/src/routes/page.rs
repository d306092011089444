//! `GET /` for browsers: a page that tries a prompt and shows how busy the server is. One file, part of this binary.

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};

/// Whether the client asks for a page by name; `*/*`, as scripts and probes send it, does not.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = accepted.flat_map(|value| value.split(','));
    ranges.any(|range| range.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case("text/html")))
}

pub(crate) fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::VARY, "accept"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, PAGE).into_response()
}

const PAGE: &str = include_str!("page.html");

/// Nothing from elsewhere, and nothing to elsewhere: a key that was typed here stays here.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &'static str) -> bool {
        is_wanted(&[(header::ACCEPT, accept.parse().unwrap())].into_iter().collect())
    }

    #[test]
    fn browsers_want_a_page_and_scripts_and_probes_do_not() {
        assert!(wanted("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(wanted("application/json, TEXT/HTML;q=0.5"));
        for other in ["*/*", "text/*", "application/json", "", "text/htmlx"] {
            assert!(!wanted(other), "{other}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!PAGE.contains(word), "{word}");
        }
        // Its icon is a part of it: a browser would ask for one.
        let mut links = PAGE.split("href=").skip(1);
        assert!(links.all(|link| link.starts_with("\"data:image/svg+xml,")));
    }
}
