//! A server that follows a script, and a fetcher to ask it.

use std::io::{Read, Seek, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nephila_archive::Content as Wire;
use nephila_core::agent::{Answer, FetchError, FetchId, Order, Purpose};
use nephila_core::record::Failure;
use nephila_core::settings::Private;
use nephila_core::time::Mono;
use nephila_core::url::Url;
use nephila_node::fetch::{Captured, FetchConfig, Fetcher, Outcome};
use tokio::task::LocalSet;

pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server; each connection is handled by its own thread.
pub(crate) struct Server {
    pub(crate) port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Handles each connection by `script`, which is also told how many came before it.
    pub(crate) fn new(script: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Server {
        Server::at(HERE, script)
    }

    pub(crate) fn at(address: IpAddr, script: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind(SocketAddr::new(address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let script = Arc::new(script);
        let counter = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, number) = (Arc::clone(&script), counter.fetch_add(1, Ordering::SeqCst));
                thread::spawn(move || script(stream, number));
            }
        });
        Server { port, connections }
    }

    /// Answers each request on each connection with the same bytes, and closes it after `requests` of them.
    pub(crate) fn saying(answer: impl Into<Vec<u8>>, requests: usize) -> Server {
        let answer = answer.into();
        Server::new(move |mut stream, _| {
            for _ in 0..requests {
                if read_request(&mut stream).is_none() || stream.write_all(&answer).is_err() {
                    break;
                }
            }
        })
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://127.0.0.1:{}{path}", self.port)).unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The head of the next request, if one comes.
pub(crate) fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Waits until the other side is gone.
pub(crate) fn until_closed(stream: &mut TcpStream) {
    let mut rest = [0; 1_024];
    while stream.read(&mut rest).is_ok_and(|count| count > 0) {}
}

pub(crate) fn config() -> FetchConfig {
    FetchConfig { private: Private::Allowed, ..FetchConfig::default() }
}

pub(crate) fn order(url: Url) -> Order {
    Order {
        fetch: FetchId(7),
        url,
        addresses: vec![HERE],
        purpose: Purpose::Page,
        via: None,
        depth: 0,
        attempt: 1,
        new_connection: false,
        begin_before: Mono::NEVER,
    }
}

/// Runs a test with a fetcher.
pub(crate) fn with_fetcher<F: Future>(config: FetchConfig, test: impl FnOnce(Rc<Fetcher>) -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let test = test(Fetcher::new(config).unwrap());
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
    })
}

/// Fetches once.
pub(crate) fn fetch(config: FetchConfig, order: Order) -> Outcome {
    with_fetcher(config, |fetcher| async move { fetcher.fetch(&order, std::future::pending()).await })
}

/// Fetches once from a server that sends these bytes and closes.
pub(crate) fn fetch_bytes(config: FetchConfig, answer: &[u8]) -> Outcome {
    let server = Server::saying(answer, 1);
    fetch(config, order(server.url("/page")))
}

pub(crate) fn answer(outcome: &Outcome) -> &Answer {
    assert!(outcome.fetched.ended >= outcome.fetched.started);
    assert_eq!(outcome.fetched.contacted, [HERE]);
    assert!(outcome.capture.is_some());
    outcome.fetched.result.as_ref().expect("there is an answer")
}

pub(crate) fn failure(outcome: &Outcome) -> Failure {
    assert!(outcome.capture.is_none());
    assert!(outcome.fetched.ended >= outcome.fetched.started);
    let Err(FetchError { failure, detail }) = &outcome.fetched.result else { panic!("there is an answer") };
    assert!(!detail.is_empty());
    *failure
}

/// What was recorded, and whether it is in a file.
pub(crate) fn recorded(outcome: &mut Outcome) -> (Vec<u8>, bool) {
    let captured: &mut Captured = outcome.capture.as_mut().expect("something was captured");
    match &mut captured.response {
        Wire::Memory(bytes) => (bytes.clone(), false),
        Wire::Spilled(file, length) => {
            let mut bytes = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len() as u64, *length);
            (bytes, true)
        }
    }
}
