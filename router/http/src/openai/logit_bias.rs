//! `logit_bias`: OpenAI's object of token ids, or TGI's clients' list.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use utoipa::ToSchema;

use crate::numbers::{Key, Real};

/// A list says a number for each token id from 0 on: TGI's clients type it so, though TGI never read it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogitBias(BTreeMap<Key, Real>);

/// Token ids in quotes and what is added to their logits, or a list with a number for each id from 0 on.
#[derive(ToSchema)]
#[schema(as = LogitBias)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
pub(crate) enum LogitBiasShape {
    Map(BTreeMap<String, f32>),
    List(Vec<f32>),
}

impl LogitBias {
    pub fn into_map(self) -> BTreeMap<Key, Real> {
        self.0
    }
}

impl<'de> Deserialize<'de> for LogitBias {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LogitBiasVisitor)
    }
}

struct LogitBiasVisitor;

impl<'de> Visitor<'de> for LogitBiasVisitor {
    type Value = LogitBias;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of token ids and numbers, such as {\"50\": -100}")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LogitBias, A::Error> {
        BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(LogitBias)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<LogitBias, A::Error> {
        let list = Vec::<Real>::deserialize(SeqAccessDeserializer::new(list))?;
        let named = (0..).map(Key).zip(list).filter(|(_, bias)| bias.0 != 0.0);
        Ok(LogitBias(named.collect()))
    }
}
