//! A visitor for the tests of the lab's web: says exactly what it is told to, and shows exactly what came back.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails where this does")]

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use hickory_proto::{
    op::{Message, MessageType, OpCode, Query},
    rr::{Name, RecordType},
};
use nephila_lab::web::{Web, plan::Host};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
};
use tokio_rustls::client::TlsStream;

trait Both: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Both for T {}

pub(crate) struct Client {
    stream: Box<dyn Both>,
    name: String,
}

impl Client {
    pub(crate) async fn connect(web: &Web, host: &Host<'_>, https: bool) -> Client {
        Client::try_connect(web, host, https).await.unwrap()
    }

    pub(crate) async fn try_connect(web: &Web, host: &Host<'_>, https: bool) -> std::io::Result<Client> {
        if https {
            return Client::connect_tls(web, host).await;
        }
        let stream = TcpStream::connect((host.address(), web.http_port)).await?;
        Ok(Client { stream: Box::new(stream), name: host.name() })
    }

    pub(crate) async fn connect_to(address: String, name: &str) -> Client {
        Client { stream: Box::new(TcpStream::connect(address).await.unwrap()), name: name.to_owned() }
    }

    pub(crate) async fn connect_tls(web: &Web, host: &Host<'_>) -> std::io::Result<Client> {
        let stream = tls(web, host, &[]).await?;
        Ok(Client { stream: Box::new(stream), name: host.name() })
    }

    /// Asks for a target and reads the answer, by its length or to the end.
    pub(crate) async fn get(&mut self, target: &str) -> String {
        let name = self.name.clone();
        self.get_as(&name, target).await
    }

    pub(crate) async fn get_as(&mut self, name: &str, target: &str) -> String {
        String::from_utf8_lossy(&self.get_bytes(name, target).await).into_owned()
    }

    pub(crate) async fn get_bytes(&mut self, name: &str, target: &str) -> Vec<u8> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {name}\r\nUser-Agent: test\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !is_whole(&answer) {
            // An answer whose end cannot be told is taken to be over after a moment.
            let patience = Duration::from_millis(if ends_somewhere(&answer) { 5_000 } else { 100 });
            let mut part = [0; 65_536];
            match tokio::time::timeout(patience, self.stream.read(&mut part)).await {
                Ok(Ok(len @ 1..)) => answer.extend_from_slice(&part[..len]),
                _ => break,
            }
        }
        answer
    }

    /// Reads until so much came, or the end.
    pub(crate) async fn get_some(&mut self, target: &str, len: usize) -> Vec<u8> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nUser-Agent: test\r\n\r\n", self.name);
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while answer.len() < len {
            let mut part = [0; 65_536];
            match self.stream.read(&mut part).await {
                Ok(0) | Err(_) => break,
                Ok(len) => answer.extend_from_slice(&part[..len]),
            }
        }
        answer
    }
}

/// A TLS connection to a host; these protocols are offered.
async fn tls(web: &Web, host: &Host<'_>, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(web.ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(host.name()).unwrap();
    let stream = TcpStream::connect((host.address(), web.https_port)).await?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Asks for a target over HTTP/2 on a connection of its own: the status, and the body as far as it came; none if there
/// was not even a head.
pub(crate) async fn get_http2(web: &Web, host: &Host<'_>, target: &str) -> Option<(u16, Vec<u8>)> {
    let stream = tls(web, host, &["h2"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let url = format!("https://{}:{}{target}", host.name(), web.https_port);
    let request = http::Request::get(url).header("User-Agent", "test").body(()).unwrap();
    let response = sender.send_request(request, true).unwrap().0.await.ok()?;
    let status = response.status().as_u16();
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while let Some(Ok(piece)) = incoming.data().await {
        incoming.flow_control().release_capacity(piece.len()).unwrap();
        body.extend_from_slice(&piece);
    }
    driver.abort();
    Some((status, body))
}

/// Head and body of an answer, as far as it came; after 1xx heads. Head in lower case.
fn parts(answer: &[u8]) -> Option<(String, &[u8])> {
    let end =
        |mark: &[u8]| answer.windows(mark.len()).position(|w| w == mark).map(|at| (at, at + mark.len()));
    let (head_end, body_start) = end(b"\r\n\r\n").or_else(|| end(b"\n\n"))?;
    let (head, body) = (String::from_utf8_lossy(&answer[..head_end]).to_lowercase(), &answer[body_start..]);
    if head.starts_with("http/1.1 1") { parts(body) } else { Some((head, body)) }
}

fn content_length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
}

/// Whether the head, if it is there, says where the answer ends.
fn ends_somewhere(answer: &[u8]) -> bool {
    parts(answer).is_none_or(|(head, _)| content_length(&head).is_some() || head.contains("chunked"))
}

fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = parts(answer) else { return false };
    let chunks_ended = || head.contains("chunked") && body.ends_with(b"\r\n\r\n");
    head.starts_with("http/1.1 204")
        || content_length(&head).is_some_and(|len| body.len() >= len)
        || chunks_ended()
}

/// One request on a connection of its own.
pub(crate) async fn get(web: &Web, host: &Host<'_>, target: &str) -> String {
    Client::connect(web, host, host.home().1).await.get(target).await
}

/// Asks the web's DNS server; over TCP too where it says so. None if it does not answer.
pub(crate) async fn resolve(web: &Web, name: &str, kind: &str) -> Option<(String, Vec<String>)> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    let name = Name::from_ascii(format!("{name}.")).unwrap();
    message.add_query(Query::query(name, if kind == "A" { RecordType::A } else { RecordType::AAAA }));
    let bytes = message.to_vec().unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.send_to(&bytes, web.dns_addr).await.unwrap();
    let mut buffer = [0; 4096];
    let received = tokio::time::timeout(Duration::from_millis(300), socket.recv_from(&mut buffer)).await;
    let (len, _) = received.ok()?.unwrap();
    let mut answer = Message::from_vec(&buffer[..len]).unwrap();
    if answer.metadata.truncation {
        let mut stream = TcpStream::connect(web.dns_addr).await.unwrap();
        stream.write_u16(bytes.len() as u16).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut whole = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut whole).await.unwrap();
        answer = Message::from_vec(&whole).unwrap();
    }
    assert_eq!(answer.metadata.id, 7);
    let records = answer.answers.iter().map(|record| record.data.to_string()).collect();
    Some((format!("{:?}", answer.metadata.response_code), records))
}
