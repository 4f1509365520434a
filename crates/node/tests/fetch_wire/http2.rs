//! Servers that speak only HTTP/2.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;
use h2::server::SendResponse;
use http::Response;
use nephila_core::agent::Cut;
use nephila_core::record::Failure;
use nephila_node::fetch::{FetchConfig, Fetcher, Outcome};
use rustls::ServerConfig;

use crate::server::*;
use crate::tls::{Fault, Issuer, authority, secure, server_config};

/// What the server does about a request, by its path.
async fn answer_to(path: &str, mut respond: SendResponse<bytes::Bytes>) {
    let head = |fields: &[(&str, &str)]| {
        let start = Response::builder().status(200).header("content-type", "text/html");
        fields.iter().fold(start, |head, (name, value)| head.header(*name, *value)).body(()).unwrap()
    };
    if path == "/silent" {
        return std::future::pending().await;
    }
    if path == "/refused" {
        return respond.send_reset(Reason::REFUSED_STREAM);
    }
    let length: &[(&str, &str)] = if path == "/short" { &[("content-length", "9")] } else { &[] };
    let fields = [&[("x-two", "a"), ("x-two", "b")], length].concat();
    let Ok(mut body) = respond.send_response(head(&fields), false) else { return };
    body.send_data("<a href=/x>".into(), false).ok();
    match path {
        "/stalled" => std::future::pending().await,
        "/reset" | "/half" => {
            tokio::time::sleep(Duration::from_millis(20)).await;
            body.send_reset(if path == "/half" { Reason::NO_ERROR } else { Reason::INTERNAL_ERROR });
        }
        "/endless" => loop {
            body.reserve_capacity(10_000);
            let Some(Ok(room)) = std::future::poll_fn(|context| body.poll_capacity(context)).await else {
                return;
            };
            if body.send_data(vec![b'x'; room].into(), false).is_err() {
                return;
            }
        },
        _ => body.send_data("x</a>".into(), true).unwrap_or_default(),
    }
}

async fn serve_connection(config: Arc<ServerConfig>, stream: TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let Ok(stream) = tokio_rustls::TlsAcceptor::from(config).accept(stream).await else { return };
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let path = request.uri().path().to_owned();
        assert_eq!(request.uri().host(), Some("secure.test"));
        assert!(!request.headers().contains_key("host"));
        if path == "/goodbye" {
            return;
        }
        tokio::spawn(async move { answer_to(&path, respond).await });
    }
}

fn serve(authority: &Issuer) -> Server {
    let config = server_config(authority, Fault::OnlyHttp2);
    Server::new(move |stream, _| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve_connection(Arc::clone(&config), stream));
    })
}

async fn ask(fetcher: &Fetcher, server: &Server, path: &str) -> Outcome {
    let mut order = secure(server);
    order.url.set_path(path);
    fetcher.fetch(&order, std::future::pending()).await
}

/// Runs a test with a fetcher and a server that it knows to speak only HTTP/2.
fn with_http2<F: Future>(config: FetchConfig, test: impl FnOnce(std::rc::Rc<Fetcher>, Server) -> F) {
    let authority = authority("known");
    let server = serve(&authority);
    with_fetcher(
        FetchConfig { ca_pem: Some(authority.pem().into_bytes()), ..config },
        |fetcher| async move {
            let refused = ask(&fetcher, &server, "/").await;
            assert_eq!(failure(&refused), Failure::Closed, "HTTP/1.1 is what is offered first");
            assert_eq!(refused.fetched.contacted, [HERE]);
            test(fetcher, server).await;
        },
    );
}

#[test]
fn answers_are_recorded_as_if_they_were_http1() {
    with_http2(config(), |fetcher, server| async move {
        for _ in 0..3 {
            let mut outcome = ask(&fetcher, &server, "/page").await;
            assert_eq!((answer(&outcome).status, answer(&outcome).cut), (200, None));
            let expected =
                "HTTP/1.1 200 \r\ncontent-type: text/html\r\nx-two: a\r\nx-two: b\r\n\r\n<a href=/x>x</a>";
            assert_eq!(String::from_utf8(recorded(&mut outcome).0).unwrap(), expected);
            let captured = outcome.capture.unwrap();
            assert!(captured.http2);
            let request = String::from_utf8(captured.request).unwrap();
            let start = format!("GET /page HTTP/1.1\r\nhost: secure.test:{}\r\nuser-agent: ", server.port);
            assert!(request.starts_with(&start) && request.ends_with("\r\n\r\n"), "{request}");
        }
        assert_eq!(server.connections(), 2, "one refused, one kept");
    });
}

#[test]
fn bodies_are_cut_as_over_http1() {
    let config = FetchConfig {
        request_timeout: Duration::from_millis(500),
        body_bytes_max: 300_000,
        spill_bytes: 100_000,
        ..config()
    };
    with_http2(config, |fetcher, server| async move {
        for (path, cut) in [
            ("/endless", Cut::Length),
            ("/stalled", Cut::Time),
            ("/reset", Cut::Disconnect),
            // It is no error, and no end either.
            ("/half", Cut::Disconnect),
            ("/short", Cut::Disconnect),
        ] {
            let outcome = ask(&fetcher, &server, path).await;
            assert_eq!(answer(&outcome).cut, Some(cut), "{path}");
        }
        let mut outcome = ask(&fetcher, &server, "/endless").await;
        let (bytes, spilled) = recorded(&mut outcome);
        assert!(spilled && (300_000..400_000).contains(&bytes.len()), "{}", bytes.len());
        assert_eq!(failure(&ask(&fetcher, &server, "/silent").await), Failure::Timeout);
        assert_eq!(server.connections(), 8, "none of them is used again");
    });
}

#[test]
fn no_answer_is_the_servers_fault_only_on_a_new_connection() {
    with_http2(config(), |fetcher, server| async move {
        for path in ["/refused", "/goodbye"] {
            assert_eq!(failure(&ask(&fetcher, &server, path).await), Failure::Disconnected, "{path}");
            assert_eq!(answer(&ask(&fetcher, &server, "/page").await).status, 200);
            assert_eq!(failure(&ask(&fetcher, &server, path).await), Failure::Closed, "{path}");
        }
    });
}

#[test]
fn what_is_abandoned_is_closed() {
    with_http2(config(), |fetcher, server| async move {
        let mut order = secure(&server);
        order.url.set_path("/stalled");
        let outcome = fetcher.fetch(&order, tokio::time::sleep(Duration::from_millis(100))).await;
        assert_eq!(failure(&outcome), Failure::NotTried);
        assert_eq!(answer(&ask(&fetcher, &server, "/page").await).status, 200);
        assert_eq!(server.connections(), 3, "refused, abandoned, new");
    });
}
