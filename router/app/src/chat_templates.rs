//! Finds a model's chat templates. What is wrong with them costs the chat routes, nothing else: a warning says so.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use headrace_text::chat::{ChatTemplate, ChatTemplates, DEFAULT, TokenizerConfig};

use crate::config::HttpConfig;

/// The templates of the model in `dir`.
pub fn read(dir: &Path, config: &HttpConfig) -> ChatTemplates {
    let own = dir.join("tokenizer_config.json");
    let path = config.tokenizer_config.as_deref().unwrap_or(&own);
    let TokenizerConfig { mut templates, special_tokens } = tokenizer_config(path);
    if let Some(template) = optional(&dir.join("chat_template.jinja")) {
        templates.insert(DEFAULT.to_owned(), template);
    }
    let mut parsed = BTreeMap::new();
    for (name, source) in templates {
        match ChatTemplate::parse(&source) {
            Ok(template) => drop(parsed.insert(name, template)),
            Err(error) => tracing::warn!("chat template {name:?} is left out: {error}"),
        }
    }
    ChatTemplates::new(parsed, special_tokens)
}

fn tokenizer_config(path: &Path) -> TokenizerConfig {
    let Some(json) = optional(path) else { return TokenizerConfig::default() };
    TokenizerConfig::parse(json.as_bytes()).unwrap_or_else(|error| {
        tracing::warn!("{} is not as expected, so there is no chat template: {error}", path.display());
        TokenizerConfig::default()
    })
}

/// The file's text; `None` when there is no such file, or none that can be read.
fn optional(path: &Path) -> Option<String> {
    match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!("cannot read {}: {error}", path.display());
            None
        }
    }
}
