//! Somebody who speaks TLS, HTTP/2 and gRPC by hand, and so can say what no agent would.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::site::Message;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How a stranger begins: whom it trusts, and the certificate that it shows, if any.
pub(crate) fn tls(
    ca_pem: &str,
    identity: Option<&Path>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(dir) => {
            let certificate = CertificateDer::from_pem_file(dir.join("agent.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(dir.join("agent.key")).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

pub(crate) async fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    server: &'static str,
) -> Result<TlsStream<TcpStream>, BoxError> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(server)?;
    Ok(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?)
}

/// The frame of gRPC around a payload.
pub(crate) fn frame(payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(payload.len().try_into().unwrap());
    frame.put_slice(payload);
    frame.freeze()
}

pub(crate) fn frame_of(message: &Message) -> Bytes {
    frame(&postcard::to_stdvec(message).unwrap())
}

/// Calls the method that agents call, and returns the status of gRPC.
pub(crate) async fn call(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    server: &'static str,
    path: &str,
    body: Bytes,
) -> Result<String, BoxError> {
    let stream = connect(address, config, server).await?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let request = Request::post(format!("https://{server}{path}"))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("from", "a")
        .body(Full::new(body))?;
    let answer = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let trailers = body.collect().await?.trailers().cloned().unwrap_or_default();
        let status = head.headers.get("grpc-status").or(trailers.get("grpc-status"));
        Ok(status.map(|status| String::from_utf8_lossy(status.as_bytes()).into_owned()).unwrap_or_default())
    };
    tokio::select! {
        answer = answer => answer,
        ended = connection => Err(ended.err().map_or_else(|| "it ended".into(), BoxError::from)),
    }
}
