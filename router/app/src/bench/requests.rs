//! What is asked, with its files read.

use std::sync::Arc;
use std::time::Duration;

use headrace_bench::{Asks, Listed, Shape, Words, Workload};

use super::BenchError;
use crate::config::bench::{Requests, What};

pub struct Requested {
    pub workload: Workload,
    /// When each request of a file is due, if it says so.
    pub times: Option<Arc<[Duration]>>,
}

pub fn read(requests: &Requests) -> Result<Requested, BenchError> {
    let words = requests.tokenizer.as_deref().map_or_else(|| Ok(Words::common()), Words::of_tokenizer);
    let words = words.map_err(BenchError::Tokenizer)?;
    let (name, asks, times) = match &requests.what {
        What::Same { prompt, output_tokens } => {
            let (prompt, output_tokens) = (prompt.clone(), *output_tokens);
            (format!("one prompt, {output_tokens} out"), Asks::Same { prompt, output_tokens }, None)
        }
        What::Custom { prompt_tokens: prompt, output_tokens: output } => {
            let (prompt, output) = (*prompt, *output);
            (format!("{prompt} in, {output} out"), Asks::Shaped(Shape::Fixed { prompt, output }), None)
        }
        What::Named(name, shape) => ((*name).to_owned(), Asks::Shaped(*shape), None),
        What::File(path) => {
            let listed = Listed::read(path)?;
            let times = listed.iter().map(|request| request.at).collect();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, Asks::Listed(listed.into()), times)
        }
    };
    Ok(Requested { workload: Workload { name, asks, words, seed: requests.seed }, times })
}

impl Requested {
    /// How many requests a file has.
    pub fn listed(&self) -> Option<u64> {
        match &self.workload.asks {
            Asks::Listed(listed) => Some(listed.len() as u64),
            _ => None,
        }
    }
}
