//! How people speak to a running crawl: one line of JSON each way over the socket DIR/control.sock.
//!
//! Only the user who runs the crawl (or root) is listened to. Lines, connections and waiting are bounded on both sides. The
//! answer carries the text for people as well as the data, so that whoever asks needs to understand neither.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use nephila_core::agent::Everywhere;
pub use nephila_core::record::Block;
use nephila_core::record::Pointer;
use nephila_core::url::Host;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

/// The longest request, in bytes. URLs are the only part that can be long.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// The longest response, in bytes.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
/// How many may speak at once; further ones wait.
const CONNECTIONS_MAX: usize = 16;
/// How long somebody may take to say what they want, and how long an answer may take to be read.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a crawl that ends waits for its last answers to be read.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for the answer of a crawl that listens.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest path of a socket that every system takes, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// What can be asked of a crawl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What is it doing?
    Status,
    /// What about this URL?
    Why {
        /// The URL.
        url: String,
    },
    /// Which hosts does it have?
    Hosts {
        /// How many at most.
        limit: usize,
        /// Which ones first.
        sort: HostSort,
        /// Only the host of this name, and those below it.
        name: Option<String>,
    },
    /// Ask nothing more of these.
    Block {
        /// Whom.
        what: Block,
    },
    /// Take a block back.
    Unblock {
        /// Whom.
        what: Block,
    },
    /// The same of all sites of the federation.
    Everywhere {
        /// What is wanted of them.
        what: Everywhere,
    },
    /// What is blocked?
    Blocks,
    /// Start no request until told to go on.
    Pause,
    /// Go on.
    Resume,
    /// Settle what is in flight and end.
    Stop,
    /// What does the archive of an agent hold?
    Read {
        /// The number of the agent.
        agent: String,
        /// The URL and the site, if that is another one of the federation.
        #[serde(default)]
        elsewhere: Option<(String, String)>,
        /// Where.
        pointer: Pointer,
        /// From which byte on.
        from: u64,
    },
    /// Which agents are in its site?
    Site,
    /// What are all sites of its federation doing?
    Federation,
    /// An agent of its site will not come back.
    Forget {
        /// Its name, or its number.
        agent: String,
    },
}

/// A text that names nothing that could be blocked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBlockable {
    /// Several addresses.
    #[error(
        "{0:?} is a network, and only single addresses can be blocked: block them one by one, or their names"
    )]
    Network(String),
    /// Anything else.
    #[error(
        "{0:?} cannot be blocked: give the name of a host or domain, or an address, without scheme, port and path"
    )]
    Other(String),
}

/// Reads what an operator wants to block: a name, which stands for all names below it too, or an address.
pub fn parse_block(text: &str) -> Result<Block, NotBlockable> {
    let text = text.trim();
    let host = Host::parse(text).ok_or_else(|| match text.parse::<ipnet::IpNet>() {
        Ok(_) => NotBlockable::Network(text.to_owned()),
        Err(_) => NotBlockable::Other(text.to_owned()),
    })?;
    Ok(host.ip().map_or(Block::Name(host), Block::Address))
}

/// The name of a host as an operator writes it, in the form that hosts are listed by.
pub fn host_name(text: &str) -> Option<String> {
    Host::parse(text.trim()).map(|host| host.to_string())
}

/// How people call what is blocked; [`parse_block`] reads it back.
pub fn block_name(block: &Block) -> String {
    match block {
        Block::Name(host) => host.to_string(),
        Block::Address(address) => address.to_string(),
    }
}

/// Which hosts come first in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostSort {
    /// Those with the most URLs that wait.
    #[default]
    Queue,
    /// Those with the most answers.
    Pages,
    /// Those that wait the longest.
    Wait,
    /// Those with the most failures in a row.
    Failures,
    /// By name.
    Name,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Response {
    /// It is done.
    Done,
    /// What was asked for.
    Report {
        /// For people.
        text: String,
        /// For programs.
        json: serde_json::Value,
    },
    /// A part of what was asked for.
    Bytes {
        /// In hexadecimal digits.
        hex: String,
        /// Whether nothing follows.
        is_last: bool,
    },
    /// It cannot be done.
    Refused {
        /// Why, and what to do.
        why: String,
    },
}

/// A request and where its answer goes.
pub type Asked = (Request, oneshot::Sender<Response>);

/// Requests as they come in. The socket is removed when this is dropped.
#[derive(Debug)]
pub struct Requests {
    path: PathBuf,
    received: mpsc::Receiver<Asked>,
    accepting: AbortHandle,
    /// A permit is taken for each connection.
    room: Arc<Semaphore>,
}

impl Requests {
    /// The next request.
    pub async fn recv(&mut self) -> Option<Asked> {
        self.received.recv().await
    }

    /// Stops listening, and gives those who were answered the time to hear it: whoever says `stop` should know that it was
    /// understood.
    pub async fn finish(&mut self) {
        self.accepting.abort();
        self.received.close();
        while let Ok((_, reply)) = self.received.try_recv() {
            drop(reply);
        }
        // Too late for those who still have said nothing.
        let _ = tokio::time::timeout(FINISH_TIMEOUT, self.room.acquire_many(CONNECTIONS_MAX as u32)).await;
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.accepting.abort();
        // It may have been removed with its directory.
        let _ = fs::remove_file(&self.path);
    }
}

/// Starts to listen. The caller holds the lock of the crawl, so that a socket that is there already is a stale one.
pub fn serve(path: &Path) -> io::Result<Requests> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = at_short_path(path, |path| UnixListener::bind(path))?;
    // Between the two calls others could connect; whoever they are, `answer_one` looks.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    let (asked, received) = mpsc::channel(CONNECTIONS_MAX);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accepting = tokio::spawn(accept(listener, asked, Arc::clone(&room))).abort_handle();
    Ok(Requests { path: path.to_owned(), received, accepting, room })
}

async fn accept(listener: UnixListener, asked: mpsc::Sender<Asked>, room: Arc<Semaphore>) {
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let asked = asked.clone();
                tokio::spawn(async move {
                    // Whoever breaks off gets no answer and needs none.
                    let _ = answer_one(stream, asked).await;
                    drop(permit);
                });
            }
            // No descriptors, most likely: try again when some are free.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer_one(mut stream: UnixStream, asked: mpsc::Sender<Asked>) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let (reader, mut writer) = stream.split();
    let mut line = Vec::new();
    let mut reader = tokio::io::BufReader::new(reader.take(REQUEST_BYTES_MAX));
    tokio::time::timeout(LINE_TIMEOUT, reader.read_until(b'\n', &mut line)).await??;
    let response = match serde_json::from_slice::<Request>(&line) {
        Ok(request) => {
            let (reply, replied) = oneshot::channel();
            if asked.send((request, reply)).await.is_err() {
                return Ok(());
            }
            replied.await.unwrap_or_else(|_| Response::Refused { why: "the crawl is ending".to_owned() })
        }
        Err(error) => Response::Refused { why: format!("the request is not understood: {error}") },
    };
    let mut line = serde_json::to_vec(&response).map_err(io::Error::other)?;
    line.push(b'\n');
    tokio::time::timeout(LINE_TIMEOUT, writer.write_all(&line)).await?
}

/// Why a crawl did not answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing listens there.
    #[error("nothing runs there")]
    NotRunning,
    /// It did not answer, or not in a way that makes sense.
    #[error("the running crawl gave no answer: {0}")]
    NoAnswer(#[source] io::Error),
}

/// Asks a running crawl and waits for the answer.
pub fn call(path: &Path, request: &Request) -> Result<Response, CallError> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let stream = at_short_path(path, |path| std::os::unix::net::UnixStream::connect(path)).map_err(
        |error| match error.kind() {
            NotFound | ConnectionRefused => CallError::NotRunning,
            _ => CallError::NoAnswer(error),
        },
    )?;
    exchange(stream, request).map_err(CallError::NoAnswer)
}

fn exchange(mut stream: std::os::unix::net::UnixStream, request: &Request) -> io::Result<Response> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(RESPONSE_BYTES_MAX)).read_until(b'\n', &mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended"));
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// The paths of sockets are short on every system, and those of directories are not: a long one is named by way of its
/// open directory.
fn at_short_path<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX => {
            let dir = File::open(dir)?;
            act(&Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
        }
        _ => act(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Listens at a path, answers as told to, and calls `ask` from another thread meanwhile.
    fn with_crawl<T: Send + 'static>(path: &Path, ask: impl FnOnce() -> T + Send + 'static) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut requests = serve(path).unwrap();
            let asking = tokio::task::spawn_blocking(ask);
            tokio::pin!(asking);
            loop {
                tokio::select! {
                    done = &mut asking => return done.unwrap(),
                    Some((request, reply)) = requests.recv() => match request {
                        // Dropped without an answer.
                        Request::Stop => drop(reply),
                        Request::Pause => reply.send(Response::Done).unwrap(),
                        other => {
                            let json = serde_json::to_value(&other).unwrap();
                            reply.send(Response::Report { text: "héllo\n".to_owned(), json }).unwrap();
                        }
                    },
                }
            }
        })
    }

    #[test]
    fn requests_are_answered() {
        let temporary = tempfile::tempdir().unwrap();
        // Longer than the path of a socket can be.
        let dir = temporary.path().join("d".repeat(200));
        fs::create_dir(&dir).unwrap();
        for path in [temporary.path().join("control.sock"), dir.join("control.sock")] {
            assert!(matches!(call(&path, &Request::Status), Err(CallError::NotRunning)));
            // A stale socket, as after kill -9.
            drop(at_short_path(&path, |path| std::os::unix::net::UnixListener::bind(path)).unwrap());
            assert!(matches!(call(&path, &Request::Status), Err(CallError::NotRunning)));
            let asked = path.clone();
            with_crawl(&path, move || {
                let mode = fs::metadata(&asked).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
                assert_eq!(call(&asked, &Request::Pause).unwrap(), Response::Done);
                assert!(matches!(call(&asked, &Request::Stop).unwrap(), Response::Refused { .. }));
                for request in [
                    Request::Why { url: "https://a.test/ü\n".to_owned() },
                    Request::Hosts { limit: 3, sort: HostSort::Wait, name: None },
                    Request::Block { what: Block::Address("::1".parse().unwrap()) },
                ] {
                    let Response::Report { text, json } = call(&asked, &request).unwrap() else { panic!() };
                    assert_eq!(text, "héllo\n");
                    assert_eq!(serde_json::from_value::<Request>(json).unwrap(), request);
                }
            });
            assert!(!path.exists());
        }
    }

    /// The runtime goes right after the last answer was given, as it does when a crawl ends.
    #[test]
    fn the_last_answer_is_heard() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("control.sock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let asking = runtime.block_on(async {
            let mut requests = serve(&path).unwrap();
            let asked = path.clone();
            let asking = std::thread::spawn(move || call(&asked, &Request::Stop));
            let (_, reply) = requests.recv().await.unwrap();
            reply.send(Response::Done).unwrap();
            requests.finish().await;
            asking
        });
        drop(runtime);
        assert_eq!(asking.join().unwrap().unwrap(), Response::Done);
        assert!(matches!(call(&path, &Request::Stop), Err(CallError::NotRunning)));
    }

    #[test]
    fn what_can_be_blocked() {
        for (text, name) in [("Example.org", "example.org"), (" a.test. ", "a.test")] {
            assert_eq!(parse_block(text), Ok(Block::Name(Host::parse(name).unwrap())), "{text}");
        }
        for text in ["127.0.0.1", "::1", "[::1]"] {
            let ip = text.trim_matches(['[', ']']).parse().unwrap();
            assert_eq!(parse_block(text), Ok(Block::Address(ip)), "{text}");
        }
        for text in ["a.test", "127.0.0.1", "::1"] {
            assert_eq!(block_name(&parse_block(text).unwrap()), text);
        }
        for text in ["", "https://a.test/", "a.test:80", "a.test/x", "a b"] {
            assert!(matches!(parse_block(text), Err(NotBlockable::Other(_))), "{text}");
        }
        for text in ["127.1.0.0/16", "2001:db8::/32"] {
            assert!(matches!(parse_block(text), Err(NotBlockable::Network(_))), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("control.sock");
        let asked = path.clone();
        let answers = with_crawl(&path, move || {
            let long = vec![b'a'; REQUEST_BYTES_MAX as usize];
            [&b"\n"[..], b"{}\n", b"{\"ask\":\"dance\"}\n", b"\xff\xfe\n", &long].map(|nonsense| {
                let mut stream = std::os::unix::net::UnixStream::connect(&asked).unwrap();
                stream.write_all(nonsense).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                answer
            })
        });
        for answer in answers {
            let response: Response = serde_json::from_str(&answer).unwrap();
            assert!(matches!(response, Response::Refused { .. }), "{answer}");
        }
    }
}
