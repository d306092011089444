//! `prompt`: a text, a list of texts, the token ids of one prompt, or a list of such lists.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use utoipa::ToSchema;

use crate::admission::Prompt;
use crate::numbers::Whole;

/// At least one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompts(Vec<Sent>);

/// A text, a list of texts, the token ids of one prompt, or a list of such lists.
#[derive(ToSchema)]
#[schema(as = Prompt)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
pub(crate) enum PromptsShape {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    Lists(Vec<Vec<u32>>),
}

/// One prompt as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent {
    Text(String),
    Tokens(Vec<u32>),
}

impl Prompts {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Some token id that no vocabulary of this size has.
    pub fn outside(&self, vocab_size: u32) -> Option<u32> {
        let ids = self.0.iter().flat_map(|prompt| match prompt {
            Sent::Text(_) => &[],
            Sent::Tokens(ids) => ids.as_slice(),
        });
        ids.copied().find(|&id| id >= vocab_size)
    }

    pub fn into_list(self) -> Vec<Prompt> {
        let prompt = |sent| match sent {
            Sent::Text(text) => Prompt::Text(text),
            Sent::Tokens(ids) => Prompt::Tokens(ids),
        };
        self.0.into_iter().map(prompt).collect()
    }
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list of texts, a list of token ids, or a list of lists of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts(vec![Sent::Text(text.to_owned())]))
    }

    /// The first entry says which list it is.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
        match list.next_element::<Entry>()? {
            None => Err(A::Error::custom("at least one prompt must be given")),
            Some(Entry::Prompt(first)) => {
                let mut prompts = vec![first];
                while let Some(next) = list.next_element::<Entry>()? {
                    match (next, &prompts[0]) {
                        (Entry::Prompt(next @ Sent::Text(_)), Sent::Text(_)) => prompts.push(next),
                        (Entry::Prompt(next @ Sent::Tokens(_)), Sent::Tokens(_)) => prompts.push(next),
                        _ => {
                            return Err(A::Error::custom(
                                "a list of prompts must hold either texts or lists of token ids",
                            ));
                        }
                    }
                }
                Ok(Prompts(prompts))
            }
            Some(Entry::Id(first)) => {
                let mut ids = vec![first];
                ids.append(&mut token_ids(list)?);
                Ok(Prompts(vec![Sent::Tokens(ids)]))
            }
        }
    }
}

/// An entry of a list.
enum Entry {
    Prompt(Sent),
    Id(u32),
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text, a list of token ids, or a token id from 0 to {}", u32::MAX)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Entry, E> {
        Ok(Entry::Prompt(Sent::Text(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Entry, E> {
        let id = u32::try_from(id);
        id.map(Entry::Id).map_err(|error| E::custom(format_args!("a token id must be at most {}: {error}", u32::MAX)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, ids: A) -> Result<Entry, A::Error> {
        token_ids(ids).map(|ids| Entry::Prompt(Sent::Tokens(ids)))
    }
}

fn token_ids<'de, A: SeqAccess<'de>>(list: A) -> Result<Vec<u32>, A::Error> {
    let ids = Vec::<Whole<u32>>::deserialize(SeqAccessDeserializer::new(list))?;
    Ok(ids.into_iter().map(|id| id.0).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(prompt: Value) -> Result<Vec<Sent>, String> {
        serde_json::from_value::<Prompts>(prompt).map(|prompts| prompts.0).map_err(|error| error.to_string())
    }

    #[test]
    fn four_forms_are_read() {
        let text = |text: &str| Sent::Text(text.to_owned());
        assert_eq!(read(json!("a")), Ok(vec![text("a")]));
        assert_eq!(read(json!(["a", ""])), Ok(vec![text("a"), text("")]));
        assert_eq!(read(json!([1, 2])), Ok(vec![Sent::Tokens(vec![1, 2])]));
        assert_eq!(read(json!([[1], [], [2, 3]])), Ok([vec![1], vec![], vec![2, 3]].map(Sent::Tokens).to_vec()));
    }

    #[test]
    fn anything_else_is_told_what_a_prompt_is() {
        for (prompt, sentence) in [
            (json!([]), "at least one prompt"),
            (json!(null), "a text, a list of texts"),
            (json!({"text": "a"}), "a text, a list of texts"),
            (json!(5), "a text, a list of texts"),
            (json!([-1]), "a token id from 0 to 4294967295"),
            (json!([1.5]), "a token id from 0 to 4294967295"),
            (json!([true]), "a token id"),
            (json!([5_000_000_000_u64]), "a token id must be at most 4294967295"),
            (json!(["a", 1]), "either texts or lists"),
            (json!(["a", [1]]), "either texts or lists"),
            (json!([[1], "a"]), "either texts or lists"),
            (json!([1, "a"]), "expected a whole number from 0 to 4294967295"),
            (json!([[1, "a"]]), "expected a whole number from 0 to 4294967295"),
        ] {
            let error = read(prompt.clone()).unwrap_err();
            assert!(error.contains(sentence), "{prompt}: {error}");
        }
    }
}
