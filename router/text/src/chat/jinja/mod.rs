//! Jinja as transformers renders it: jinja2 in Python's sandbox. minijinja does the work; here is what it does otherwise.
//!
//! - `generation` and `rewrite` change a template before it is compiled (`program`): a tag that only transformers has, and
//!   operators that mean something else in Python.
//! - `print` and `json` show values as Python does.
//! - `filters`, `predicates` (jinja2's tests) and `methods` replace minijinja's, by way of `args`, `strings`, `iterators`.
//! - `environment` puts them together, with a bound on what one rendering may cost.

mod args;
mod environment;
mod filters;
mod generation;
mod globals;
mod iterators;
mod json;
mod methods;
mod operators;
mod predicates;
mod print;
mod program;
mod rewrite;
mod strings;
mod value;

pub use environment::{FUEL, Refusal};
pub use program::Program;
