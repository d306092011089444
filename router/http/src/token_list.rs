//! The answer of a route that tokenizes a long text. Digits have a token each, and a token takes fifty bytes of JSON: it is
//! written piece by piece, as its client takes it, and never there as a whole.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use headrace_text::Encoding;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ApiError;
use crate::json;
use crate::state::ServerState;
use crate::wire::simple_token;

/// A text, its tokens, and how much of them is written.
pub(crate) struct TokenList {
    text: String,
    encoding: Encoding,
    next: Part,
    shape: Shape,
}

/// What is around the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// `/tokenize`: nothing.
    List,
    /// `/chat_tokenize`: an object that has the text, too.
    WithText,
}

/// What is written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    /// The token at this place, or what comes after the last one.
    Token(usize),
    /// The text from this byte on.
    Text(usize),
    End,
}

impl TokenList {
    /// As `/tokenize` answers.
    pub fn new(text: String, encoding: Encoding) -> Self {
        Self { text, encoding, next: Part::Head, shape: Shape::List }
    }

    /// As `/chat_tokenize` answers.
    pub fn with_text(text: String, encoding: Encoding) -> Self {
        Self { shape: Shape::WithText, ..Self::new(text, encoding) }
    }

    /// The answer, whose pieces are written where no stream waits for them. It gives its place back when all of it was
    /// taken, or its client is gone.
    pub fn respond(self, state: ServerState, place: OwnedSemaphorePermit) -> Response {
        // An error ends the connection: half a list is none.
        let pieces = stream::try_unfold((self, state, place), |(mut list, state, place)| async move {
            let write = move || (list.piece(), list);
            let (piece, list) = state.tokenization.run_admitted(write).await?;
            Ok::<_, ApiError>(piece.map(|piece| (piece, (list, state, place))))
        });
        ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response()
    }

    /// The next of its pieces, a little longer than [`PIECE_BYTES`] at most; `None` after the last.
    fn piece(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::with_capacity(PIECE_BYTES + PIECE_BYTES / 8);
        while out.len() < PIECE_BYTES && self.next != Part::End {
            self.next = self.write_next(&mut out);
        }
        (!out.is_empty()).then(|| out.freeze())
    }

    fn write_next(&self, out: &mut BytesMut) -> Part {
        match (self.next, self.shape) {
            (Part::Head, Shape::List) => out.put_slice(b"["),
            (Part::Head, Shape::WithText) => out.put_slice(br#"{"tokenize_response":["#),
            (Part::Token(place), shape) => match (simple_token(&self.text, &self.encoding, place), shape) {
                (Some(token), _) => {
                    out.put_slice(if place == 0 { b"" } else { b"," });
                    json::write(out, &token);
                    return Part::Token(place + 1);
                }
                (None, Shape::List) => out.put_slice(b"]"),
                (None, Shape::WithText) => {
                    out.put_slice(br#"],"templated_text":""#);
                    return Part::Text(0);
                }
            },
            (Part::Text(at), _) if at < self.text.len() => {
                let enough = self.text.len().min(at + TEXT_BYTES);
                let end = (enough..).find(|&end| self.text.is_char_boundary(end)).unwrap_or(enough);
                let quoted = json::bytes(&&self.text[at..end]);
                out.put_slice(&quoted[1..quoted.len() - 1]);
                return Part::Text(end);
            }
            (Part::Text(_), _) => out.put_slice(br#""}"#),
            (Part::End, _) => {}
        }
        if self.next == Part::Head { Part::Token(0) } else { Part::End }
    }
}

/// Large beside what it takes to hand a piece over, small beside what a text and its tokens hold.
const PIECE_BYTES: usize = 256 * 1024;
/// Of a text that is written in one go: escaped, it may be six times as long.
const TEXT_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// One token per character.
    fn encoding(text: &str) -> Encoding {
        let offsets: Vec<_> = text.char_indices().map(|(at, letter)| (at, at + letter.len_utf8())).collect();
        Encoding { ids: (0..offsets.len() as u32).collect(), offsets }
    }

    fn pieces(mut list: TokenList) -> Vec<Bytes> {
        std::iter::from_fn(|| list.piece()).collect()
    }

    fn expected(text: &str) -> Value {
        let token = |(id, (at, letter)): (usize, (usize, char))| json!({"id": id, "text": letter.to_string(), "start": at, "stop": at + letter.len_utf8()});
        text.char_indices().enumerate().map(token).collect()
    }

    #[test]
    fn pieces_are_short_and_together_are_the_whole_list() {
        for text in [String::new(), "a".into(), "7".repeat(30_000), "\u{2028}\"\n\u{1}日本é".repeat(5_000)] {
            let pieces = pieces(TokenList::new(text.clone(), encoding(&text)));
            assert!(pieces.iter().all(|piece| piece.len() < PIECE_BYTES + PIECE_BYTES / 8));
            assert_eq!(pieces.len() > 1, text.len() > 10_000, "{}", pieces.len());
            let shown: Value = serde_json::from_slice(&pieces.concat()).unwrap();
            assert!(shown == expected(&text), "{} bytes", text.len());
        }
    }

    #[test]
    fn with_its_text_the_pieces_are_an_object_of_both() {
        for text in [String::new(), "a".into(), "\u{2028}\"\\\n\u{1}日本é".repeat(20_000)] {
            let pieces = pieces(TokenList::with_text(text.clone(), encoding(&text)));
            assert!(pieces.iter().all(|piece| piece.len() < PIECE_BYTES + PIECE_BYTES / 8));
            let shown: Value = serde_json::from_slice(&pieces.concat()).unwrap();
            assert!(
                shown == json!({"tokenize_response": expected(&text), "templated_text": text}),
                "{} bytes",
                text.len()
            );
        }
    }
}
