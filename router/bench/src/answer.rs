//! One streamed answer: when its tokens came, how many there were, and how it ended.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::target::Api;

/// Why a request has no whole answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AskError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("status {status}: {body}")]
    Status { status: u16, body: String },
    /// What the server said in the middle of its stream.
    #[error("{0}")]
    Said(String),
    #[error("the stream ended without a token")]
    Empty,
    #[error("an event is longer than 64 MiB")]
    TooLong,
    #[error("no whole answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("cannot make its prompt: {0}")]
    Prompt(String),
}

impl AskError {
    /// What it has in common with others, in a word or two.
    pub fn kind(&self) -> String {
        match self {
            Self::Connect(_) => "no connection".into(),
            Self::Broken(_) => "connection broke".into(),
            Self::Status { status, .. } => format!("status {status}"),
            Self::Said(_) => "error in the stream".into(),
            Self::Empty => "no token".into(),
            Self::TooLong => "event too long".into(),
            Self::Timeout(_) => "timeout".into(),
            Self::Prompt(_) => "no prompt".into(),
        }
    }
}

/// A whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// From the request to the first token.
    pub ttft: Duration,
    /// From the request to the last token.
    pub e2e: Duration,
    /// As the server counts them; where it does not say, events with text.
    pub tokens: u64,
    /// As the server counts them, if it does.
    pub prompt_tokens: Option<u64>,
}

impl Whole {
    /// After the first token. `None` if that is all there is.
    pub fn per_token(&self) -> Option<Duration> {
        let after_first = u32::try_from(self.tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        (after_first > 0).then(|| (self.e2e - self.ttft) / after_first)
    }
}

/// Follows an answer, event by event.
pub(crate) struct Answer<'a> {
    api: Api,
    /// Look into every event.
    parse: bool,
    sent: Instant,
    /// Between tokens, in microseconds. Tokens of one event or of one read have nothing between them.
    gaps: &'a mut Vec<u32>,
    first: Option<Instant>,
    last: Instant,
    events: u64,
    usage: Option<Usage>,
    details: Option<Details>,
    said: Option<String>,
    /// The two newest events, the older first. The last ones of an answer need not be tokens, and say how it ended.
    held: [Held; 2],
}

#[derive(Default)]
struct Held {
    at: Option<Instant>,
    data: Vec<u8>,
}

impl<'a> Answer<'a> {
    /// `gaps` is cleared, and filled as tokens come.
    pub fn new(api: Api, parse: bool, sent: Instant, gaps: &'a mut Vec<u32>) -> Self {
        gaps.clear();
        Self {
            api,
            parse,
            sent,
            gaps,
            first: None,
            last: sent,
            events: 0,
            usage: None,
            details: None,
            said: None,
            held: Default::default(),
        }
    }

    /// An event that came at this moment.
    pub fn event(&mut self, data: &[u8], at: Instant) {
        if data == b"[DONE]" {
            return;
        }
        if self.parse || self.first.is_none() {
            return self.look(data, at);
        }
        let [older, newer] = &mut self.held;
        std::mem::swap(older, newer);
        newer.data.clear();
        newer.data.extend_from_slice(data);
        // What was the older one has two after it: it is in the middle of the answer, and a token.
        if let Some(middle) = newer.at.replace(at) {
            self.token(middle);
        }
    }

    /// The stream has ended.
    pub fn end(mut self) -> Result<Whole, AskError> {
        for mut held in std::mem::take(&mut self.held) {
            if let Some(at) = held.at.take() {
                self.look(&held.data, at);
            }
        }
        if let Some(said) = self.said {
            return Err(AskError::Said(said));
        }
        let first = self.first.ok_or(AskError::Empty)?;
        let counted = self.usage.map(|usage| usage.completion_tokens);
        let counted = counted.or(self.details.map(|details| details.generated_tokens));
        let prompt_tokens = self.usage.map(|usage| usage.prompt_tokens);
        Ok(Whole {
            ttft: first - self.sent,
            e2e: self.last - self.sent,
            tokens: counted.unwrap_or(self.events),
            prompt_tokens: prompt_tokens.or(self.details.and_then(|details| details.input_length)),
        })
    }

    fn token(&mut self, at: Instant) {
        self.events += 1;
        match self.first {
            None => self.first = Some(at),
            Some(_) => self.gaps.push(u32::try_from((at - self.last).as_micros()).unwrap_or(u32::MAX)),
        }
        self.last = at;
    }

    fn look(&mut self, data: &[u8], at: Instant) {
        let Ok(event) = serde_json::from_slice::<Event>(data) else {
            self.said = Some(format!("an event that is no JSON: {}", shorten(&String::from_utf8_lossy(data))));
            return;
        };
        if let Some(error) = &event.error {
            self.said = Some(shorten(&sentence(error)));
            return;
        }
        self.usage = event.usage.or(self.usage);
        self.details = event.details.or(self.details);
        let token = match self.api {
            Api::Tgi => event.token.is_some(),
            Api::Completions | Api::Chat => event.choices.iter().any(Choice::has_text),
        };
        if token {
            self.token(at);
        }
    }
}

/// What is looked at of an event, of either API.
#[derive(Deserialize)]
struct Event<'a> {
    error: Option<Value>,
    token: Option<IgnoredAny>,
    details: Option<Details>,
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
}

#[derive(Clone, Copy, Deserialize)]
struct Details {
    generated_tokens: u64,
    /// Of the prompt; only newer servers say it.
    input_length: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    completion_tokens: u64,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    tool_calls: Option<IgnoredAny>,
}

impl Choice<'_> {
    fn has_text(&self) -> bool {
        let some = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|text| !text.is_empty());
        let in_delta =
            |delta: &Delta<'_>| some(&delta.content) || some(&delta.reasoning_content) || delta.tool_calls.is_some();
        some(&self.text) || self.delta.as_ref().is_some_and(in_delta)
    }
}

/// TGI's `"error": "…"`, OpenAI's `"error": {"message": "…"}`, or whatever it is.
pub(crate) fn sentence(error: &Value) -> String {
    let message = error.get("message").unwrap_or(error);
    message.as_str().map_or_else(|| message.to_string(), str::to_owned)
}

/// A beginning that is long enough to tell errors apart.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

const SHOWN_CHARS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    /// Events a millisecond apart, from one after the request.
    fn follow(api: Api, parse: bool, events: &[&str]) -> (Result<Whole, AskError>, Vec<u32>) {
        let sent = Instant::now();
        let mut gaps = vec![9];
        let mut answer = Answer::new(api, parse, sent, &mut gaps);
        for (n, event) in (1..).zip(events) {
            answer.event(event.as_bytes(), sent + Duration::from_millis(n));
        }
        let whole = answer.end();
        (whole, gaps)
    }

    fn whole(ttft: u64, e2e: u64, tokens: u64, prompt_tokens: Option<u64>) -> Result<Whole, AskError> {
        let ms = Duration::from_millis;
        Ok(Whole { ttft: ms(ttft), e2e: ms(e2e), tokens, prompt_tokens })
    }

    const TGI: [&str; 4] = [
        r#"{"index":1,"token":{"id":5,"text":" a","logprob":-1.0,"special":false},"generated_text":null,"details":null}"#,
        r#"{"index":2,"token":{"id":6,"text":"","logprob":-1.0,"special":false},"generated_text":null,"details":null}"#,
        r#"{"index":3,"token":{"id":7,"text":" b","logprob":-1.0,"special":false},"generated_text":null,"details":null}"#,
        r#"{"index":4,"token":{"id":8,"text":" c","logprob":-1.0,"special":false},"generated_text":" a b c","details":{"finish_reason":"length","generated_tokens":4,"seed":null,"input_length":3}}"#,
    ];

    #[test]
    fn every_event_of_tgi_is_a_token() {
        for parse in [false, true] {
            assert_eq!(follow(Api::Tgi, parse, &TGI), (whole(1, 4, 4, Some(3)), vec![1000; 3]));
        }
    }

    #[test]
    fn without_details_events_are_counted() {
        assert_eq!(follow(Api::Tgi, false, &TGI[..3]).0, whole(1, 3, 3, None));
    }

    #[test]
    fn role_finish_and_usage_are_no_tokens_of_a_chat() {
        let events = [
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#,
            r#"{"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": null}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"c"},"finish_reason":null}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}"#,
            "[DONE]",
        ];
        for parse in [false, true] {
            assert_eq!(follow(Api::Chat, parse, &events), (whole(2, 4, 3, Some(9)), vec![1000; 2]));
        }
    }

    #[test]
    fn where_an_event_has_several_tokens_the_servers_count_holds() {
        let events = [
            r#"{"choices":[{"index":0,"text":"a b","finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"index":0,"text":"c d","finish_reason":"length"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":4}}"#,
        ];
        assert_eq!(follow(Api::Completions, false, &events).0, whole(1, 2, 4, Some(1)));
    }

    #[test]
    fn an_error_in_the_stream_is_the_outcome_wherever_it_stands() {
        let overloaded = r#"{"error":"Model is overloaded","error_type":"overloaded"}"#;
        let said = |sentence: &str| Err(AskError::Said(sentence.into()));
        assert_eq!(follow(Api::Tgi, false, &[overloaded]).0, said("Model is overloaded"));
        let late = [TGI[0], TGI[1], TGI[2], r#"{"error":{"message":"it died","type":"x"}}"#];
        assert_eq!(follow(Api::Tgi, false, &late).0, said("it died"));
    }

    #[test]
    fn a_stream_without_tokens_is_no_answer() {
        assert_eq!(follow(Api::Completions, false, &["[DONE]"]).0, Err(AskError::Empty));
    }
}
