//! What a `tokenizer_config.json` says of chats: templates and special tokens.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::templates::DEFAULT;

/// The part of a `tokenizer_config.json` that chats need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerConfig {
    /// Texts of templates by name; a lone one is the default.
    pub templates: BTreeMap<String, String>,
    /// `bos_token` and the like by name, each as its text; `additional_special_tokens` is a list of texts.
    pub special_tokens: Map<String, Json>,
}

impl TokenizerConfig {
    /// Reads the file's contents.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let file: File = serde_json::from_slice(json)?;
        let templates = match file.chat_template {
            None => BTreeMap::new(),
            Some(Templates::One(template)) => BTreeMap::from([(DEFAULT.to_owned(), template)]),
            Some(Templates::Named(list)) => list.into_iter().map(|named| (named.name, named.template)).collect(),
        };
        let special = |(name, value): (String, Json)| special_token(&name, value).map(|value| (name, value));
        Ok(Self { templates, special_tokens: file.others.into_iter().filter_map(special).collect() })
    }
}

/// The text of a field that holds a special token, or the texts of one that lists them.
fn special_token(name: &str, value: Json) -> Option<Json> {
    match value {
        Json::Array(tokens) if name == "additional_special_tokens" => {
            Some(tokens.into_iter().filter_map(text).collect::<Vec<_>>().into())
        }
        value if name.ends_with("_token") => text(value),
        _ => None,
    }
}

/// A token is its text, or an object with its text as `content`.
fn text(value: Json) -> Option<Json> {
    match value {
        Json::String(_) => Some(value),
        Json::Object(mut token) => token.remove("content").filter(Json::is_string),
        _ => None,
    }
}

#[derive(Deserialize)]
struct File {
    chat_template: Option<Templates>,
    #[serde(flatten)]
    others: Map<String, Json>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a template, or a list of objects with `name` and `template`")]
enum Templates {
    One(String),
    Named(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> TokenizerConfig {
        TokenizerConfig::parse(json.as_bytes()).expect("a good file")
    }

    #[test]
    fn a_lone_template_is_the_default_one() {
        let config = parse(r#"{"chat_template": "Hi"}"#);
        assert_eq!(config.templates, BTreeMap::from([("default".into(), "Hi".into())]));
    }

    #[test]
    fn named_templates_keep_their_names() {
        let config = parse(
            r#"{"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]}"#,
        );
        assert_eq!(config.templates, BTreeMap::from([("default".into(), "a".into()), ("tool_use".into(), "b".into())]));
    }

    #[test]
    fn a_special_token_is_its_text_in_both_spellings() {
        let config = parse(r#"{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}}"#);
        assert_eq!(Json::Object(config.special_tokens), serde_json::json!({"bos_token": "<s>", "eos_token": "</s>"}));
    }

    #[test]
    fn what_is_no_token_is_no_variable() {
        let config =
            parse(r#"{"add_bos_token": true, "pad_token": null, "model_max_length": 7, "chat_template": null}"#);
        assert_eq!(config, TokenizerConfig::default());
    }

    #[test]
    fn additional_special_tokens_are_a_list_of_texts() {
        let config = parse(r#"{"additional_special_tokens": ["<a>", {"content": "<b>"}]}"#);
        assert_eq!(config.special_tokens["additional_special_tokens"], serde_json::json!(["<a>", "<b>"]));
    }

    #[test]
    fn a_template_of_another_type_is_an_error_that_says_what_it_must_be() {
        let error = TokenizerConfig::parse(br#"{"chat_template": 7}"#).expect_err("a number").to_string();
        assert!(error.contains("a template, or a list"), "{error}");
    }
}
