//! W3C Trace Context: which trace a request belongs to, as `traceparent` and `tracestate` say.

use std::fmt;

/// Sixteen bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

/// Eight bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

/// What the caller says of the trace that its request is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    /// The caller's span.
    pub parent: SpanId,
    /// The caller records this trace.
    pub sampled: bool,
    /// What other tracing systems said, to be passed on as it is; often empty.
    pub state: String,
}

impl TraceContext {
    /// Reads the two headers. `None`: `traceparent` is not valid, and then neither counts; a `tracestate` that is not
    /// valid is left out.
    pub fn read<'a>(traceparent: &str, tracestate: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut fields = traceparent.split('-');
        let version: [u8; 1] = hex(fields.next()?)?;
        let trace: [u8; 16] = hex(fields.next()?)?;
        let parent: [u8; 8] = hex(fields.next()?)?;
        let [flags] = hex::<1>(fields.next()?)?;
        // Later versions may say more; this one may not, and 255 is none.
        let whole = version != [0] || fields.next().is_none();
        let valid = whole && version != [0xff] && trace != [0; 16] && parent != [0; 8];
        valid.then(|| Self {
            trace: TraceId(trace),
            parent: SpanId(parent),
            sampled: flags & SAMPLED != 0,
            state: state(tracestate),
        })
    }
}

/// Headers of the same name are one list. One that is too long, or not of visible ASCII, is dropped whole.
fn state<'a>(headers: impl IntoIterator<Item = &'a str>) -> String {
    let mut state = String::new();
    for header in headers.into_iter().map(str::trim).filter(|header| !header.is_empty()) {
        if !state.is_empty() {
            state.push(',');
        }
        state.push_str(header);
        if state.len() > MAX_STATE_BYTES {
            return String::new();
        }
    }
    let members = || state.split(',').map(str::trim).filter(|member| !member.is_empty());
    let valid = members().all(|member| member.contains('=') && member.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
    if valid && members().count() <= MAX_STATE_MEMBERS { state } else { String::new() }
}

/// Lower-case digits, exactly two a byte.
fn hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * BYTES {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

const SAMPLED: u8 = 1;
const MAX_STATE_BYTES: usize = 512;
const MAX_STATE_MEMBERS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    fn read(traceparent: &str) -> Option<TraceContext> {
        TraceContext::read(traceparent, [])
    }

    #[test]
    fn a_traceparent_names_the_trace_the_callers_span_and_whether_it_is_recorded() {
        for (flags, sampled) in [("00", false), ("01", true), ("03", true), ("02", false)] {
            let context = read(&format!("00-{TRACE}-{PARENT}-{flags}")).unwrap();
            assert_eq!((context.trace.to_string(), context.parent.to_string()), (TRACE.to_owned(), PARENT.to_owned()));
            assert_eq!(context.sampled, sampled, "{flags}");
        }
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        let zeros = "0".repeat(32);
        for wrong in [
            "",
            "00",
            &format!("ff-{TRACE}-{PARENT}-01"),
            &format!("00-{TRACE}-{PARENT}-01-more"),
            &format!("00-{TRACE}-{PARENT}"),
            &format!("00-{TRACE}-{PARENT}-1"),
            &format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            &format!("00-{zeros}-{PARENT}-01"),
            &format!("00-{TRACE}-0000000000000000-01"),
            &format!("00-{}-{PARENT}-01", &TRACE[1..]),
            &format!("0x-{TRACE}-{PARENT}-01"),
            &format!(" 00-{TRACE}-{PARENT}-01"),
            "00-ää7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_later_version_may_say_more() {
        assert!(read(&format!("01-{TRACE}-{PARENT}-01-more")).is_some());
    }

    #[test]
    fn the_state_of_several_headers_is_one_list_and_is_kept_as_it_came() {
        let of = |states: &[&str]| {
            TraceContext::read(&format!("00-{TRACE}-{PARENT}-01"), states.iter().copied()).unwrap().state
        };
        assert_eq!(of(&["rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE"]), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["no member"]), "");
        assert_eq!(of(&[&format!("a={}", "x".repeat(511))]), "");
        assert_eq!(of(&[&"a=b,".repeat(33)]), "");
    }
}
