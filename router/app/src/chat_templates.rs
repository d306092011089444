//! Finds a model's chat templates and special tokens. What is wrong with them costs the chat routes, nothing else: one
//! warning says what.
//!
//! Where there are several sources the first one holds, as in Text Generation Inference and transformers: the file of
//! `--chat-template`; the templates of `--tokenizer-config-path`; the model's `chat_template.jinja` together with
//! `additional_chat_templates/*.jinja`; its `chat_template.json`; its `tokenizer_config.json`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use headrace_text::chat::{ChatTemplates, DEFAULT, TokenizerConfig};

/// The templates for the model in `dir`. `chat_template` and `other_config`: files that flags name.
pub fn read(dir: &Path, chat_template: Option<&Path>, other_config: Option<&Path>) -> ChatTemplates {
    let other = other_config.map(tokenizer_config);
    let replaced = other.is_some();
    let own = other.unwrap_or_else(|| tokenizer_config(&dir.join("tokenizer_config.json")));
    let mut special_tokens = own.special_tokens;
    // Older models name some of them there alone.
    for (name, token) in tokenizer_config(&dir.join("special_tokens_map.json")).special_tokens {
        special_tokens.entry(name).or_insert(token);
    }
    let sources: [&dyn Fn() -> Sources; 5] = [
        &|| chat_template.and_then(text).map(lone).unwrap_or_default(),
        &|| if replaced { own.templates.clone() } else { Sources::new() },
        &|| files(dir),
        &|| tokenizer_config(&dir.join("chat_template.json")).templates,
        &|| own.templates.clone(),
    ];
    let sources = sources.iter().map(|source| source()).find(|sources| !sources.is_empty()).unwrap_or_default();
    let templates = ChatTemplates::parse(&sources, special_tokens);
    for (name, error) in templates.broken() {
        tracing::warn!("the chat template {name:?} cannot be used, and chats that need it are refused: {error}");
    }
    templates
}

/// Texts of templates by name.
type Sources = BTreeMap<String, String>;

fn lone(template: String) -> Sources {
    Sources::from([(DEFAULT.to_owned(), template)])
}

/// `chat_template.jinja`, and further ones that are named as their files.
fn files(dir: &Path) -> Sources {
    let mut sources = text(&dir.join("chat_template.jinja")).map(lone).unwrap_or_default();
    let Ok(entries) = fs::read_dir(dir.join("additional_chat_templates")) else { return sources };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let jinja = path.extension().is_some_and(|extension| extension == "jinja");
        if let (Some(name), true, Some(template)) = (name, jinja, text(&path)) {
            sources.entry(name.to_owned()).or_insert(template);
        }
    }
    sources
}

fn tokenizer_config(path: &Path) -> TokenizerConfig {
    let Some(json) = text(path) else { return TokenizerConfig::default() };
    TokenizerConfig::parse(json.as_bytes()).unwrap_or_else(|error| {
        tracing::warn!("{} is not as expected, so it brings no chat template: {error}", path.display());
        TokenizerConfig::default()
    })
}

/// The file's text; `None` when there is no such file, or none that can be read.
fn text(path: &Path) -> Option<String> {
    match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!("cannot read {}, which may hold a chat template: {error}", path.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use headrace_text::chat::{Conversation, TemplateError};
    use serde_json::json;

    use super::*;

    struct Model {
        dir: tempfile::TempDir,
        chat_template: Option<PathBuf>,
        tokenizer_config: Option<PathBuf>,
    }

    /// A directory with these files.
    fn model(files: &[(&str, &str)]) -> Model {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("it is in the directory")).expect("a directory");
            fs::write(path, content).expect("a file");
        }
        Model { dir, chat_template: None, tokenizer_config: None }
    }

    impl Model {
        fn path(&self, name: &str) -> Option<PathBuf> {
            Some(self.dir.path().join(name))
        }

        fn render(&self, conversation: &Conversation) -> Result<String, TemplateError> {
            let now = jiff::civil::date(2031, 2, 3).at(0, 0, 0, 0);
            read(self.dir.path(), self.chat_template.as_deref(), self.tokenizer_config.as_deref())
                .render(conversation, &now)
        }

        fn shown(&self) -> Result<String, TemplateError> {
            self.render(&Conversation::default())
        }
    }

    const ALL: &[(&str, &str)] = &[
        ("mine.jinja", "flag"),
        ("mine.json", r#"{"chat_template": "other config"}"#),
        ("chat_template.jinja", "file"),
        ("chat_template.json", r#"{"chat_template": "json"}"#),
        ("tokenizer_config.json", r#"{"chat_template": "config"}"#),
    ];

    #[test]
    fn the_first_source_holds() {
        let mut model = model(ALL);
        model.chat_template = model.path("mine.jinja");
        model.tokenizer_config = model.path("mine.json");
        assert_eq!(model.shown().as_deref(), Ok("flag"));
        model.chat_template = None;
        assert_eq!(model.shown().as_deref(), Ok("other config"));
        model.tokenizer_config = None;
        for (file, expected) in
            [("chat_template.jinja", "file"), ("chat_template.json", "json"), ("tokenizer_config.json", "config")]
        {
            assert_eq!(model.shown().as_deref(), Ok(expected));
            fs::remove_file(model.dir.path().join(file)).expect("it was there");
        }
        assert_eq!(model.shown(), Err(TemplateError::NotFound));
    }

    #[test]
    fn chats_with_tools_take_the_template_for_tools() {
        let named =
            r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#;
        let with_tools = Conversation { tools: Some(vec![json!({})]), ..Conversation::default() };
        for files in [
            &[("tokenizer_config.json", named)][..],
            &[("chat_template.jinja", "d"), ("additional_chat_templates/tool_use.jinja", "t")][..],
        ] {
            let model = model(files);
            assert_eq!(model.shown().as_deref(), Ok("d"));
            assert_eq!(model.render(&with_tools).as_deref(), Ok("t"));
        }
    }

    #[test]
    fn a_chat_may_name_its_template() {
        let model = model(&[("chat_template.jinja", "d"), ("additional_chat_templates/rag.jinja", "r")]);
        let named = |name: &str| Conversation { template: Some(name.to_owned()), ..Conversation::default() };
        assert_eq!(model.render(&named("rag")).as_deref(), Ok("r"));
        let error = model.render(&named("other")).expect_err("there is none").to_string();
        assert!(error.contains(r#""default", "rag""#), "{error}");
    }

    #[test]
    fn special_tokens_are_variables_wherever_the_model_names_them() {
        let model = model(&[
            ("chat_template.jinja", "{{ bos_token }}{{ eos_token }}"),
            ("tokenizer_config.json", r#"{"bos_token": {"content": "<s>"}}"#),
            ("special_tokens_map.json", r#"{"bos_token": "<other>", "eos_token": "</s>"}"#),
        ]);
        assert_eq!(model.shown().as_deref(), Ok("<s></s>"));
    }

    #[test]
    fn a_template_that_does_not_parse_is_the_answer_to_those_who_need_it() {
        let model = model(&[("chat_template.jinja", "{% if %}"), ("additional_chat_templates/rag.jinja", "r")]);
        assert!(matches!(model.shown(), Err(TemplateError::Syntax { .. })));
        let rag = Conversation { template: Some("rag".to_owned()), ..Conversation::default() };
        assert_eq!(model.render(&rag).as_deref(), Ok("r"));
    }

    #[test]
    fn a_broken_tokenizer_config_leaves_the_templates_of_files() {
        let model = model(&[("chat_template.jinja", "file"), ("tokenizer_config.json", "{")]);
        assert_eq!(model.shown().as_deref(), Ok("file"));
    }
}
