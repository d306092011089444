//! What a model's JSON files say that the router must know: its context, its vocabulary, and what ends an answer.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use headrace_scheduler::{TokenId, Tokens};
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("{} does not exist; a model directory needs it", path.display())]
    Missing { path: PathBuf },
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{} is not as expected: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
}

/// A model directory and what it is called.
#[derive(Debug)]
pub struct ServedModel {
    pub model: Model,
    pub dir: PathBuf,
    pub model_id: String,
    pub revision: Option<String>,
}

/// Facts of a model directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Such as "llama".
    pub model_type: String,
    /// Longest sequence the positions allow; `None` where the file does not say.
    pub context: Option<Tokens>,
    /// The position embedding is stretched beyond `context`; only the shard knows how far.
    stretched: bool,
    /// Rows of the output embedding.
    pub vocab_size: Option<u32>,
    eos_ids: Vec<TokenId>,
    eos_text: Option<String>,
}

impl Model {
    /// Reads `config.json` and, where they exist, `generation_config.json` and `tokenizer_config.json` (the latter from
    /// `tokenizer_config` if given).
    pub fn read(dir: &Path, tokenizer_config: Option<&Path>) -> Result<Self, ModelError> {
        let path = dir.join("config.json");
        let config: ConfigFile = optional(&path)?.ok_or(ModelError::Missing { path })?;
        let generation: Option<GenerationFile> = optional(&dir.join("generation_config.json"))?;
        let tokenizer: Option<TokenizerFile> = match tokenizer_config {
            Some(path) => Some(optional(path)?.ok_or_else(|| ModelError::Missing { path: path.to_owned() })?),
            None => optional(&dir.join("tokenizer_config.json"))?,
        };
        let eos_ids = generation.and_then(|file| file.eos_token_id).or(config.eos_token_id);
        Ok(Self {
            model_type: config.model_type,
            context: config.max_position_embeddings.map(Tokens),
            stretched: [config.rope_scaling, config.rope_parameters].iter().flatten().any(Rope::stretches),
            vocab_size: config.vocab_size,
            eos_ids: eos_ids.map_or_else(Vec::new, Ids::into_vec),
            eos_text: tokenizer.and_then(|file| file.eos_token).map(AddedToken::into_text),
        })
    }

    /// The context where config.json alone settles it.
    pub fn plain_context(&self) -> Option<Tokens> {
        self.context.filter(|_| !self.stretched)
    }

    /// Tokens that end an answer, ascending: what generation_config.json lists (else config.json), and the tokenizer's
    /// own end-of-sequence, which instruction-tuned models often set without telling the other files.
    pub fn eos(&self, token_id: impl Fn(&str) -> Option<TokenId>) -> Vec<TokenId> {
        let mut ids = self.eos_ids.clone();
        ids.extend(self.eos_text.as_deref().and_then(token_id));
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

#[derive(Deserialize)]
struct ConfigFile {
    model_type: String,
    max_position_embeddings: Option<u32>,
    vocab_size: Option<u32>,
    eos_token_id: Option<Ids>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>,
}

/// Whatever stands there: the shard reads it, here only the kind matters.
#[derive(Deserialize)]
#[serde(transparent)]
struct Rope(serde_json::Value);

impl Rope {
    fn stretches(&self) -> bool {
        let kind = self.0.get("rope_type").or_else(|| self.0.get("type"));
        kind.and_then(serde_json::Value::as_str) != Some("default")
    }
}

#[derive(Deserialize)]
struct GenerationFile {
    eos_token_id: Option<Ids>,
}

#[derive(Deserialize)]
struct TokenizerFile {
    eos_token: Option<AddedToken>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a token id or a list of token ids")]
enum Ids {
    One(TokenId),
    Many(Vec<TokenId>),
}

impl Ids {
    fn into_vec(self) -> Vec<TokenId> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a token's text or an object with its `content`")]
enum AddedToken {
    Text(String),
    Object { content: String },
}

impl AddedToken {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { content: text } => text,
        }
    }
}

/// The file's content; `None` when there is no such file.
fn optional<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ModelError> {
    let path = path.to_owned();
    let json = match fs::read(&path) {
        Ok(json) => json,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ModelError::Unreadable { path, reason: error.to_string() }),
    };
    match serde_json::from_slice(&json) {
        Ok(content) => Ok(Some(content)),
        Err(error) => Err(ModelError::Malformed { path, reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (name, content) in files {
            fs::write(dir.path().join(name), content).expect("a file");
        }
        dir
    }

    fn read(files: &[(&str, &str)]) -> Result<Model, ModelError> {
        Model::read(directory(files).path(), None)
    }

    fn eos(files: &[(&str, &str)]) -> Vec<TokenId> {
        read(files).expect("a good directory").eos(|text| (text == "<|im_end|>").then_some(7))
    }

    const CONFIG: &str =
        r#"{"model_type": "llama", "max_position_embeddings": 8192, "vocab_size": 49152, "eos_token_id": 2}"#;

    #[test]
    fn the_configuration_gives_type_context_and_vocabulary() {
        let model = read(&[("config.json", CONFIG)]).expect("a good directory");
        assert_eq!(
            (model.model_type.as_str(), model.context, model.vocab_size),
            ("llama", Some(Tokens(8192)), Some(49152))
        );
    }

    #[test]
    fn a_stretched_context_is_left_to_the_shard() {
        let context = |rope: &str| {
            let config = format!(r#"{{"model_type": "llama", "max_position_embeddings": 8192, {rope}}}"#);
            read(&[("config.json", &config)]).expect("a good directory").plain_context()
        };
        for plain in [r#""rope_scaling": null"#, r#""rope_parameters": {"rope_type": "default", "rope_theta": 1e4}"#] {
            assert_eq!(context(plain), Some(Tokens(8192)), "{plain}");
        }
        assert_eq!(context(r#""rope_scaling": {"type": "yarn", "factor": 4.0}"#), None);
    }

    #[test]
    fn a_generation_config_overrules_the_config() {
        assert_eq!(eos(&[("config.json", CONFIG)]), [2]);
        assert_eq!(eos(&[("config.json", CONFIG), ("generation_config.json", r#"{"eos_token_id": 3}"#)]), [3]);
        assert_eq!(eos(&[("config.json", CONFIG), ("generation_config.json", r#"{"eos_token_id": [5, 4]}"#)]), [4, 5]);
        assert_eq!(eos(&[("config.json", CONFIG), ("generation_config.json", "{}")]), [2]);
    }

    #[test]
    fn the_tokenizers_end_of_sequence_counts_too_in_both_spellings() {
        let text = r#"{"eos_token": "<|im_end|>"}"#;
        let object = r#"{"eos_token": {"content": "<|im_end|>", "lstrip": false}}"#;
        for file in [text, object] {
            assert_eq!(eos(&[("config.json", CONFIG), ("tokenizer_config.json", file)]), [2, 7]);
        }
    }

    #[test]
    fn an_end_of_sequence_named_twice_or_unknown_to_the_vocabulary_adds_nothing() {
        let seven = r#"{"model_type": "llama", "eos_token_id": 7}"#;
        assert_eq!(eos(&[("config.json", seven), ("tokenizer_config.json", r#"{"eos_token": "<|im_end|>"}"#)]), [7]);
        assert_eq!(eos(&[("config.json", CONFIG), ("tokenizer_config.json", r#"{"eos_token": "</s>"}"#)]), [2]);
    }

    #[test]
    fn another_tokenizer_config_replaces_the_models() {
        let dir = directory(&[("config.json", CONFIG), ("tokenizer_config.json", r#"{"eos_token": "<|im_end|>"}"#)]);
        let other = directory(&[("mine.json", r#"{"eos_token": null}"#)]);
        let model = Model::read(dir.path(), Some(&other.path().join("mine.json"))).expect("good files");
        assert_eq!(model.eos(|_| Some(7)), [2]);
        assert!(matches!(Model::read(dir.path(), Some(Path::new("/no/such"))), Err(ModelError::Missing { .. })));
    }

    #[test]
    fn what_is_missing_or_broken_is_one_line_that_names_the_file() {
        let cases: [(&[(&str, &str)], &str); 4] = [
            (&[], "config.json does not exist"),
            (&[("config.json", "{")], "config.json is not as expected"),
            (&[("config.json", "{}")], "missing field `model_type`"),
            (&[("config.json", CONFIG), ("generation_config.json", r#"{"eos_token_id": "x"}"#)], "a list of token ids"),
        ];
        for (files, part) in cases {
            let error = read(files).expect_err(part).to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
