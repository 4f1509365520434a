//! TLS with an authority of our own, and all ways not to be trusted.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use nephila_core::agent::{Cut, Order};
use nephila_core::record::Failure;
use nephila_core::url::Url;
use nephila_node::fetch::{FetchConfig, Fetcher, SetupError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use crate::server::*;

pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// What goes wrong on the server's side.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    None,
    Expired,
    WrongName,
    OnlyHttp2,
    /// It does not know that there are protocols to choose from,
    NoProtocol,
    /// or wants none of those that there are.
    OtherProtocol,
    NoGoodbye,
}

pub(crate) fn server_config(authority: &Issuer, fault: Fault) -> Arc<ServerConfig> {
    let name = if fault == Fault::WrongName { "other.test" } else { "secure.test" };
    let mut params = CertificateParams::new(vec![name.into()]).unwrap();
    if fault == Fault::Expired {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.into()], key)
        .unwrap();
    let protocol = match fault {
        Fault::OnlyHttp2 => Some("h2"),
        Fault::NoProtocol => None,
        Fault::OtherProtocol => Some("other"),
        _ => Some("http/1.1"),
    };
    config.alpn_protocols = protocol.into_iter().map(Into::into).collect();
    Arc::new(config)
}

pub(crate) const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nX-Odd-Case: yes\r\n\r\n<a href=/x>x</a>";

fn serve(config: Arc<ServerConfig>, fault: Fault) -> Server {
    Server::new(move |stream: TcpStream, _| {
        let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        if read_request(&mut tls).is_some() {
            tls.write_all(ANSWER).unwrap();
            if fault != Fault::NoGoodbye {
                tls.conn.send_close_notify();
            }
            tls.flush().unwrap();
        }
    })
}

pub(crate) fn secure(server: &Server) -> Order {
    order(Url::parse(&format!("https://secure.test:{}/", server.port)).unwrap())
}

#[test]
fn what_is_below_tls_is_recorded() {
    let authority = authority("known");
    let config = FetchConfig { ca_pem: Some(authority.pem().into_bytes()), ..config() };
    for fault in [Fault::None, Fault::NoGoodbye] {
        let server = serve(server_config(&authority, fault), fault);
        let mut outcome = fetch(config.clone(), secure(&server));
        assert_eq!((answer(&outcome).status, answer(&outcome).cut), (200, None));
        assert_eq!(recorded(&mut outcome).0, ANSWER);
        assert!(outcome.capture.unwrap().request.starts_with(b"GET / HTTP/1.1\r\nHost: secure.test:"));
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let (known, unknown) = (authority("known"), authority("unknown"));
    let config = FetchConfig { ca_pem: Some(known.pem().into_bytes()), ..config() };
    let cases = [
        (&known, Fault::Expired, "expired"),
        (&known, Fault::WrongName, "wrong name"),
        (&unknown, Fault::None, "untrusted issuer"),
    ];
    for (authority, fault, kind) in cases {
        let server = serve(server_config(authority, fault), fault);
        let outcome = fetch(config.clone(), secure(&server));
        assert_eq!(failure(&outcome), Failure::Tls);
        assert_eq!(outcome.fetched.contacted, [HERE]);
        let detail = outcome.fetched.result.unwrap_err().detail;
        assert!(detail.starts_with(kind), "{kind}: {detail}");
    }
    let plain = Server::new(|mut stream, _| stream.write_all(b"HTTP/1.1 400 What\r\n\r\n").unwrap());
    let detail = fetch(config, secure(&plain)).fetched.result.unwrap_err().detail;
    assert!(detail.starts_with("protocol"), "{detail}");
}

#[test]
fn sessions_are_resumed() {
    use HandshakeKind::{Full, Resumed};
    let authority = authority("known");
    for (tls_sessions_max, expected) in [(2, [Full, Resumed, Resumed]), (0, [Full, Full, Full])] {
        let tls = server_config(&authority, Fault::None);
        let (kinds, seen) = std::sync::mpsc::channel();
        let server = Server::new(move |stream, _| {
            let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(&tls)).unwrap(), stream);
            read_request(&mut tls).unwrap();
            kinds.send(tls.conn.handshake_kind().unwrap()).unwrap();
            // The end of the answer is the end of the connection.
            tls.write_all(ANSWER).unwrap();
            tls.conn.send_close_notify();
            tls.flush().unwrap();
        });
        let ca_pem = Some(authority.pem().into_bytes());
        with_fetcher(FetchConfig { ca_pem, tls_sessions_max, ..config() }, |fetcher| async move {
            for expected in expected {
                let outcome = fetcher.fetch(&secure(&server), std::future::pending()).await;
                assert_eq!(answer(&outcome).status, 200);
                assert_eq!(seen.recv().unwrap(), expected);
            }
        });
    }
}

#[test]
fn bad_settings_are_refused() {
    for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let refused = Fetcher::new(FetchConfig { ca_pem: Some(pem.into()), ..config() });
        assert!(matches!(refused.err(), Some(SetupError::Ca(_))), "{pem}");
    }
    let refused = Fetcher::new(FetchConfig { user_agent: "two\nlines".into(), ..config() });
    assert!(matches!(refused.err(), Some(SetupError::Header { name: "User-Agent", .. })));
}

/// Bytes that come in records of their own are mostly records.
#[test]
fn what_tls_adds_is_counted() {
    let authority = authority("known");
    let config = FetchConfig {
        ca_pem: Some(authority.pem().into_bytes()),
        body_bytes_max: 100_000,
        head_bytes_max: 8 << 10,
        ..config()
    };
    for (start, piece) in [("HTTP/1.1 200 OK\r\n\r\n", "x"), ("", "HTTP/1.1 102 Wait\r\n\r\n")] {
        let tls = server_config(&authority, Fault::None);
        let server = Server::new(move |stream, _| {
            let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(&tls)).unwrap(), stream);
            read_request(&mut tls);
            let mut bytes = start.bytes().chain(piece.bytes().cycle());
            while bytes.next().is_some_and(|byte| tls.write_all(&[byte]).and_then(|()| tls.flush()).is_ok()) {
            }
        });
        let mut outcome = fetch(config.clone(), secure(&server));
        if start.is_empty() {
            assert_eq!(failure(&outcome), Failure::Malformed);
            let detail = outcome.fetched.result.unwrap_err().detail;
            assert!(detail.contains("more came"), "{detail}");
        } else {
            assert_eq!(answer(&outcome).cut, Some(Cut::Length));
            assert!((10_000..50_000).contains(&recorded(&mut outcome).0.len()));
        }
    }
}
