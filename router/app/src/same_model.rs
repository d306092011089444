//! Whether the shards have loaded the model whose tokenizer and templates the router has read. Those that the launcher
//! starts have; a router that attaches to shards elsewhere is given a directory of its own.

use std::path::PathBuf;

use headrace_shard::ShardFacts;
use headrace_text::Tokenizer;

use crate::model::ServedModel;

/// With another model's tokenizer, every token id means another text: answers would be nonsense, without any error.
#[derive(Debug, thiserror::Error)]
#[error(
    "--model-id {} is not the model that the shards have loaded: {what} is {here} here and {there} there; name the \
     directory that they were started with, or a copy of it",
    dir.display()
)]
pub struct OtherModel {
    dir: PathBuf,
    what: &'static str,
    here: String,
    there: String,
}

/// # Errors
/// The first thing that differs. What one of the sides does not know is not compared.
pub fn same_model(model: &ServedModel, tokenizer: &Tokenizer, facts: &ShardFacts) -> Result<(), OtherModel> {
    let vocab_size = model.model.vocab_size.map(|size| size.to_string());
    let compared = [
        ("config.json's model_type", Some(model.model.model_type.clone()), Some(facts.model_type.clone())),
        ("config.json's vocab_size", vocab_size, Some(facts.vocab_size.to_string())),
        ("the SHA-256 of tokenizer.json", Some(tokenizer.sha256().to_owned()), facts.tokenizer.clone()),
    ];
    for (what, here, there) in compared {
        if let (Some(here), Some(there)) = (here, there)
            && here != there
        {
            return Err(OtherModel { dir: model.dir.clone(), what, here, there });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use headrace_shard::{FakeShard, LogicalShard};

    use super::*;
    use crate::model::Model;

    const TOKENIZER: &[u8] = br#"{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}"#;

    async fn compared(config: &str, change: impl FnOnce(&mut ShardFacts)) -> Result<(), String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("config.json"), config).expect("a file");
        let model = Model::read(dir.path(), None).expect("a model");
        let model = ServedModel { model, dir: "/models/mine".into(), model_id: String::new(), revision: None };
        let tokenizer = Tokenizer::from_bytes(TOKENIZER).expect("a tokenizer");
        let mut facts = LogicalShard::fake(FakeShard::new()).facts().await.expect("facts");
        facts.tokenizer = Some(tokenizer.sha256().to_owned());
        change(&mut facts);
        same_model(&model, &tokenizer, &facts).map_err(|other| other.to_string())
    }

    const FAKE: &str = r#"{"model_type": "fake", "vocab_size": 32000}"#;

    #[tokio::test]
    async fn the_same_model_is_accepted_also_where_one_side_does_not_know_all_of_it() {
        assert_eq!(compared(FAKE, |_| ()).await, Ok(()));
        assert_eq!(compared(FAKE, |facts| facts.tokenizer = None).await, Ok(()));
        assert_eq!(compared(r#"{"model_type": "fake"}"#, |facts| facts.vocab_size = 7).await, Ok(()));
    }

    #[tokio::test]
    async fn another_one_is_named_with_what_differs() {
        let said = compared(FAKE, |facts| facts.model_type = "llama".into()).await;
        assert_eq!(
            said,
            Err("--model-id /models/mine is not the model that the shards have loaded: config.json's model_type is fake \
                 here and llama there; name the directory that they were started with, or a copy of it"
                .to_owned())
        );
        let said = compared(FAKE, |facts| facts.vocab_size = 7).await.expect_err("another vocabulary");
        assert!(said.contains("config.json's vocab_size is 32000 here and 7 there"), "{said}");
        let said = compared(FAKE, |facts| facts.tokenizer = Some("abc".into())).await.expect_err("another tokenizer");
        assert!(said.contains("the SHA-256 of tokenizer.json is ") && said.contains(" here and abc there"), "{said}");
    }
}
