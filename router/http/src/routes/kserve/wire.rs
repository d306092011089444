//! The JSON of KServe's routes.

use std::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::numbers::Object;
use crate::parameters::{Given, Parameters};

/// An entry of a list: an object.
pub(super) type Entry<T> = Object<T>;

#[derive(Deserialize, ToSchema)]
pub(super) struct InferenceRequest {
    /// Comes back with the answer; without one, the request's id does.
    pub id: Option<String>,
    #[serde(default)]
    #[schema(value_type = Parameters, required = false)]
    pub parameters: Given,
    #[schema(value_type = Vec<Input>)]
    pub inputs: Vec<Entry<Input>>,
    /// As many as there are inputs. Left out, outputs are called like their inputs.
    #[schema(value_type = Option<Vec<Output>>)]
    pub outputs: Option<Vec<Entry<Output>>>,
}

/// `shape` and `datatype`, which the protocol has too, are read past: `data` says it all.
#[derive(Deserialize, ToSchema)]
pub(super) struct Input {
    #[schema(example = "prompt")]
    pub name: String,
    #[schema(value_type = TextOrBytes)]
    pub data: Data,
}

#[derive(Deserialize, ToSchema)]
pub(super) struct Output {
    #[schema(example = "answer")]
    pub name: String,
}

/// The text itself in a list of one, or its bytes in UTF-8.
pub(super) enum Data {
    Text(String),
    Bytes(Vec<u8>),
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(DataVisitor)
    }
}

struct DataVisitor;

impl<'de> Visitor<'de> for DataVisitor {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of one text, or of bytes (whole numbers from 0 to 255)")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Data, A::Error> {
        let mut bytes = Vec::new();
        while let Some(item) = list.next_element()? {
            match item {
                Item::Byte(byte) => bytes.push(byte),
                Item::Text(text) if bytes.is_empty() && list.next_element::<Item>()?.is_none() => {
                    return Ok(Data::Text(text));
                }
                Item::Text(_) => return Err(A::Error::custom("`data` must be one text, or bytes alone")),
            }
        }
        Ok(Data::Bytes(bytes))
    }
}

enum Item {
    Byte(u8),
    Text(String),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl Visitor<'_> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a whole number from 0 to 255")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Item, E> {
        let byte = u8::try_from(value);
        byte.map(Item::Byte).map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Text(text.to_owned()))
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct InferenceOutput {
    pub id: String,
    pub outputs: Vec<OutputChunk>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct OutputChunk {
    name: String,
    /// `[1, number of bytes]`, or `[1]` for a text.
    shape: Vec<usize>,
    #[schema(example = "BYTES")]
    datatype: &'static str,
    #[schema(value_type = TextOrBytes)]
    data: OutputData,
}

/// In the way that the input came.
#[derive(Serialize)]
#[serde(untagged)]
enum OutputData {
    Text([String; 1]),
    Bytes(Vec<u8>),
}

impl OutputChunk {
    pub fn new(name: String, text: String, as_text: bool) -> Self {
        let (shape, data) = match as_text {
            true => (vec![1], OutputData::Text([text])),
            false => (vec![1, text.len()], OutputData::Bytes(text.into_bytes())),
        };
        Self { name, shape, datatype: "BYTES", data }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = LiveResponse)]
pub(super) struct Liveness {
    pub live: bool,
}

/// TGI says `live`, the protocol `ready`.
#[derive(Serialize, ToSchema)]
#[schema(as = ReadyResponse)]
pub(super) struct Readiness {
    pub live: bool,
    pub ready: bool,
}

#[derive(Serialize, ToSchema)]
#[schema(as = MetadataServerResponse)]
pub(super) struct Metadata<'a> {
    pub name: &'a str,
    pub version: &'a str,
    pub extensions: &'a [&'a str],
}

/// The schema of `data`.
struct TextOrBytes;

impl ToSchema for TextOrBytes {}

impl PartialSchema for TextOrBytes {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let byte = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(u8::MAX));
        OneOfBuilder::new()
            .description(Some("A list of one text, or the bytes of one in UTF-8"))
            .item(ArrayBuilder::new().items(text).min_items(Some(1)).max_items(Some(1)))
            .item(ArrayBuilder::new().items(byte))
            .into()
    }
}
