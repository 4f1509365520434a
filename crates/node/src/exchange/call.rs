//! Calls of other sites: one connection to each gateway that is in use.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;
use tonic::body::Body;
use tonic::client::Grpc;

use crate::peers::codec::{self, Postcard};
use crate::peers::tasks::lock;
use crate::peers::{Calls, Foreign, Name};

/// What is not answered by then was not heard.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// How often a silent gateway is asked whether it is there, while a connection stands,
const PING_EVERY: Duration = Duration::from_secs(30);
/// and how long it has to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_BYTES_MAX: u32 = 8 << 10;
/// How much of what another site says is shown.
const ERROR_CHARS_MAX: usize = 200;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(super) struct Calling {
    foreign: Arc<Foreign>,
    /// Connections that stand, by site and gateway.
    connections: Mutex<HashMap<(Name, String), SendRequest<Body>>>,
}

impl Calling {
    pub(super) fn new(foreign: Arc<Foreign>) -> Calling {
        Calling { foreign, connections: Mutex::default() }
    }

    /// Calls another site and says what it has answered in time; nothing if it has no time for it now.
    pub(super) async fn call<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        method: &'static str,
        site: &Name,
        gateway: &str,
        said: Vec<u8>,
        patience: Duration,
    ) -> Result<Option<R>, BoxError> {
        let answered = timeout(patience, self.ask(method, site, gateway, said)).await;
        let answered = answered
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()));
        if answered.is_err() {
            lock(&self.connections).remove(&(site.clone(), gateway.to_owned()));
        }
        answered
    }

    async fn ask<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        method: &'static str,
        site: &Name,
        gateway: &str,
        said: Vec<u8>,
    ) -> Result<Option<R>, BoxError> {
        let key = (site.clone(), gateway.to_owned());
        let standing = lock(&self.connections).get(&key).filter(|sender| !sender.is_closed()).cloned();
        let sender = match standing {
            Some(sender) => sender,
            None => {
                let sender = self.connect(site, gateway).await?;
                lock(&self.connections).insert(key, sender.clone());
                sender
            }
        };
        let mut grpc = Grpc::with_origin(Calls(sender), format!("https://{site}").parse()?);
        grpc.ready().await?;
        let request = tonic::Request::new(codec::encode(&said)?);
        let answer = grpc.unary(request, PathAndQuery::from_static(method), Postcard::<R>::new()).await;
        match answer {
            Ok(answer) => Ok(Some(answer.into_inner().message)),
            Err(status) if status.code() == Code::ResourceExhausted => Ok(None),
            // The other side chose the words.
            Err(status) => Err(one_line(status.message()).into()),
        }
    }

    async fn connect(&self, site: &Name, gateway: &str) -> Result<SendRequest<Body>, BoxError> {
        let stream = TcpStream::connect(gateway).await?;
        stream.set_nodelay(true)?;
        let stream = self.foreign.connect(site, stream).await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(HEADER_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        // It ends with the last of its senders, or when the other side is gone: the next call says so.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// The beginning of the first line of a text.
fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|char| !char.is_control()).take(ERROR_CHARS_MAX).collect()
}
