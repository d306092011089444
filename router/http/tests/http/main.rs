//! The HTTP surface over a fake shard: through the router, and through real sockets where connections matter.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod answers;
mod auth;
mod bad_bodies;
mod bad_fields;
mod bounds;
mod chats;
mod codings;
mod connections;
mod document;
mod facts;
mod invocations;
mod kserve;
mod leaving;
mod limits;
mod live;
mod methods;
mod openai;
mod probes;
mod raw;
mod slow;
mod sockets;
mod streams;
mod terms;
mod timeouts;
mod tokenizer;
mod traces;
mod world;
