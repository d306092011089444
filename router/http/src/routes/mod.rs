//! One file per family of routes: what comes in, which answer goes out.

pub(crate) mod chat_tokenize;
pub(crate) mod compat;
pub(crate) mod docs;
pub(crate) mod generate;
pub(crate) mod health;
pub(crate) mod info;
pub(crate) mod invocations;
pub(crate) mod kserve;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod stream;
pub(crate) mod tokenize;
pub(crate) mod vertex;
