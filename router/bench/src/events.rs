//! A stream of bytes becomes server-sent events, whatever is in them.

/// The `data:` lines of a stream that comes in pieces.
///
/// Every server of these APIs writes an event's JSON on one line, so a line is an event; comments, other fields and
/// empty lines are skipped.
#[derive(Default)]
pub(crate) struct Events {
    /// A line whose end has not come yet.
    partial: Vec<u8>,
}

/// A line longer than this is no event of any server.
const MAX_LINE: usize = 64 << 20;

/// The stream is no stream of events.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineTooLong;

impl Events {
    /// Gives what follows `data:` in each line that `piece` completes.
    pub fn push(&mut self, piece: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), LineTooLong> {
        let mut rest = piece;
        if !self.partial.is_empty() {
            let Some(end) = memchr::memchr(b'\n', rest) else { return self.keep(rest) };
            self.partial.extend_from_slice(&rest[..end]);
            data(&self.partial).map(&mut each);
            self.partial.clear();
            rest = &rest[end + 1..];
        }
        while let Some(end) = memchr::memchr(b'\n', rest) {
            data(&rest[..end]).map(&mut each);
            rest = &rest[end + 1..];
        }
        self.keep(rest)
    }

    fn keep(&mut self, rest: &[u8]) -> Result<(), LineTooLong> {
        if self.partial.len() + rest.len() > MAX_LINE {
            return Err(LineTooLong);
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }
}

fn data(line: &[u8]) -> Option<&[u8]> {
    let data = line.strip_prefix(b"data:")?;
    let data = data.strip_prefix(b" ").unwrap_or(data);
    Some(data.strip_suffix(b"\r").unwrap_or(data))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
        let mut events = Events::default();
        let mut seen = Vec::new();
        for piece in pieces {
            events.push(piece, |data| seen.push(String::from_utf8_lossy(data).into_owned())).unwrap();
        }
        seen
    }

    const STREAM: &[u8] = b"data: {\"a\":1}\n\n:\n\nevent: x\r\ndata:{}\r\n\r\nid: 4\ndata: [DONE]\n\ndata: cut";

    proptest! {
        #[test]
        fn events_are_the_same_however_the_stream_is_cut(sizes in prop::collection::vec(1usize..20, 1..20)) {
            let mut sizes = sizes.iter().cycle();
            let mut rest = STREAM;
            let pieces = std::iter::from_fn(|| {
                let size = sizes.next().copied().unwrap_or(1).min(rest.len());
                let (piece, after) = rest.split_at(size);
                rest = after;
                (!piece.is_empty()).then_some(piece)
            });
            prop_assert_eq!(read(pieces), ["{\"a\":1}", "{}", "[DONE]"]);
        }
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut events = Events::default();
        let piece = vec![b'x'; MAX_LINE / 4];
        let results: Vec<_> = (0..5).map(|_| events.push(&piece, |_| {})).collect();
        assert_eq!(results[4], Err(LineTooLong));
        assert!(results[..4].iter().all(Result::is_ok));
    }
}
