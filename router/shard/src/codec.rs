//! A gRPC codec for messages that were encoded before: one encoding serves all ranks.

use std::marker::PhantomData;

use bytes::{BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// Sends bytes as they are, receives `T`.
#[derive(Debug)]
pub(crate) struct EncodedCodec<T>(PhantomData<T>);

impl<T> Default for EncodedCodec<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Default + 'static> Codec for EncodedCodec<T> {
    type Encode = Bytes;
    type Decode = T;
    type Encoder = CopyEncoder;
    type Decoder = ProstDecoder<T>;

    fn encoder(&mut self) -> CopyEncoder {
        CopyEncoder
    }

    fn decoder(&mut self) -> ProstDecoder<T> {
        ProstDecoder::default()
    }
}

#[derive(Debug)]
pub(crate) struct CopyEncoder;

impl Encoder for CopyEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.len());
        buffer.put(message);
        Ok(())
    }
}
