//! `stop`: one text or a list of them.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stops(Vec<String>);

/// One text or a list of them.
#[derive(ToSchema)]
#[schema(as = Stop)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
pub(crate) enum StopsShape {
    One(String),
    Several(Vec<String>),
}

impl Stops {
    pub fn into_list(self) -> Vec<String> {
        self.0
    }
}

impl<'de> Deserialize<'de> for Stops {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StopsVisitor)
    }
}

struct StopsVisitor;

impl<'de> Visitor<'de> for StopsVisitor {
    type Value = Stops;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Stops, E> {
        Ok(Stops(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, texts: A) -> Result<Stops, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(texts)).map(Stops)
    }
}
