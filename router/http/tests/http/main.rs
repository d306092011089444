//! The HTTP surface over a fake shard: through the router, and through real sockets where connections matter.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod answers;
mod bad_bodies;
mod bad_fields;
mod document;
mod facts;
mod limits;
mod slow;
mod sockets;
mod streams;
mod terms;
mod tokenizer;
mod world;
