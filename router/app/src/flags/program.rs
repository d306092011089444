//! The names that the binary answers to. Text Generation Inference has three programs; scripts call them by name, as a
//! link to this binary or as its first word (`headrace text-generation-launcher …`), which needs no link.

use std::ffi::{OsStr, OsString};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Headrace,
    /// `headrace serve`.
    Launcher,
    /// `headrace router`, attached to the shard at the socket where `text-generation-server` puts it.
    Router,
}

const NAMES: &[(&str, Program)] =
    &[("text-generation-launcher", Program::Launcher), ("text-generation-router", Program::Router)];

impl Program {
    /// Whose name was called, and its words, the name first.
    pub fn called(mut words: Vec<OsString>) -> (Self, Vec<OsString>) {
        if let Some(program) = words.first().and_then(|word| Self::named(word)) {
            return (program, words);
        }
        match words.get(1).and_then(|word| Self::named(word)) {
            Some(program) => {
                words.remove(0);
                (program, words)
            }
            None => (Self::Headrace, words),
        }
    }

    /// As it is typed.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, program)| *program == self).map_or("headrace", |(name, _)| name)
    }

    fn named(word: &OsStr) -> Option<Self> {
        let name = Path::new(word).file_name()?;
        NAMES.iter().find(|(known, _)| name == *known).map(|&(_, program)| program)
    }
}
