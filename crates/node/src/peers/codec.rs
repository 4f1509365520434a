//! Messages as bytes: postcard in the frames of gRPC, through tonic's own traits, so that there is no interface to generate.

use std::marker::PhantomData;

use bytes::{Buf, BufMut, Bytes};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// What agents call of each other: one stream of messages, for as long as it lasts.
pub(super) const METHOD: &str = "/nephila.Site/Deliver";

/// A message as it is sent.
pub(crate) fn encode<M: Serialize>(message: &M) -> Result<Bytes, postcard::Error> {
    postcard::to_stdvec(message).map(Bytes::from)
}

/// A message that came, and how long it was.
pub(crate) struct Sized<M> {
    pub(crate) message: M,
    pub(crate) bytes: usize,
}

/// Sends messages that are encoded already, because they were counted when they were queued; receives them decoded.
pub(crate) struct Postcard<M>(PhantomData<fn() -> M>);

impl<M> Postcard<M> {
    pub(crate) fn new() -> Postcard<M> {
        Postcard(PhantomData)
    }
}

impl<M: DeserializeOwned + Send + 'static> Codec for Postcard<M> {
    type Encode = Bytes;
    type Decode = Sized<M>;
    type Encoder = Encoded;
    type Decoder = Postcard<M>;

    fn encoder(&mut self) -> Encoded {
        Encoded
    }

    fn decoder(&mut self) -> Postcard<M> {
        Postcard::new()
    }
}

pub(crate) struct Encoded;

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(item.len());
        to.put(item);
        Ok(())
    }
}

impl<M: DeserializeOwned> Decoder for Postcard<M> {
    type Item = Sized<M>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Sized<M>>, Status> {
        let bytes = from.remaining();
        let whole = from.copy_to_bytes(bytes);
        match postcard::take_from_bytes(&whole) {
            Ok((message, [])) => Ok(Some(Sized { message, bytes })),
            Ok(_) => Err(Status::invalid_argument("a message is longer than what it says")),
            Err(error) => Err(Status::invalid_argument(format!("a message is not understood: {error}"))),
        }
    }
}
