//! One connection to one server of the cluster: commands go out together, and their answers come back in order.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::answers::Answers;

/// What is gathered before it is written to the socket.
const WRITTEN_AT_ONCE_BYTES: usize = 256 << 10;

/// What stands in for the network and for the time, in a simulation of both.
pub trait World: fmt::Debug + Send + Sync {
    /// Connects to a server.
    fn connect(&self, node: &str) -> io::Result<Box<dyn Wire>>;

    /// What time it is.
    fn now(&self) -> Instant;
}

/// A connection of a [`World`].
pub trait Wire: Read + Write + Send {}

/// How servers are talked to.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// The real network and time, if there is no other.
    pub world: Option<Arc<dyn World>>,
    /// With TLS, and which.
    pub tls: Option<Arc<ClientConfig>>,
    /// Who we are to the server, if it asks.
    pub login: Option<Login>,
    /// Servers of other machines are spoken to without TLS or a login, too: nobody else is on the network.
    pub accepts_plain: bool,
    /// How long a connection may take.
    pub connect_time_max: Duration,
    /// How long an answer may take.
    pub answer_time_max: Duration,
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            world: None,
            tls: None,
            login: None,
            accepts_plain: false,
            connect_time_max: Duration::from_secs(1),
            answer_time_max: Duration::from_secs(2),
        }
    }
}

impl LinkOptions {
    /// What time it is.
    pub(super) fn now(&self) -> Instant {
        self.world.as_ref().map_or_else(Instant::now, |world| world.now())
    }

    /// Waits. In a simulation nothing happens meanwhile, and so it does not.
    pub(super) fn sleep(&self, time: Duration) {
        if self.world.is_none() {
            std::thread::sleep(time);
        }
    }
}

/// A user of the servers' access control list.
#[derive(Clone)]
pub struct Login {
    /// The name of the user.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// See the module's documentation. After an error it is of no more use: what was under way may have been done or not.
pub struct Link {
    stream: Stream,
    answers: Answers,
    out: Vec<u8>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Simulated(Box<dyn Wire>),
}

impl Link {
    /// Connects to a server at `host:port`, and logs in.
    pub fn connect(node: &str, options: &LinkOptions) -> io::Result<Link> {
        if let Some(world) = &options.world {
            let stream = Stream::Simulated(world.connect(node)?);
            return Ok(Link { stream, answers: Answers::default(), out: Vec::new() });
        }
        let socket = connect(node, options)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(options.answer_time_max))?;
        socket.set_write_timeout(Some(options.answer_time_max))?;
        let stream = match &options.tls {
            None => Stream::Plain(socket),
            Some(config) => {
                let name = node.rsplit_once(':').map_or(node, |(host, _)| host);
                let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(io::Error::other)?;
                let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Stream::Tls(Box::new(StreamOwned::new(session, socket)))
            }
        };
        let mut link = Link { stream, answers: Answers::default(), out: Vec::new() };
        if let Some(Login { user, password }) = &options.login {
            let answer = link.ask(redis::cmd("AUTH").arg(user).arg(password))?;
            if let Value::ServerError(error) = answer {
                let why = format!("the login as {user} is refused: {}", error.code());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
        }
        Ok(link)
    }

    /// Adds a command to those that [`Link::send`] sends.
    pub fn push(&mut self, command: &Cmd) -> io::Result<()> {
        self.push_packed(&command.get_packed_command())
    }

    /// The same with a command as it crosses the wire.
    pub(super) fn push_packed(&mut self, packed: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(packed);
        // Nothing waits in memory for long, and servers read while they answer.
        if self.out.len() >= WRITTEN_AT_ONCE_BYTES { self.write() } else { Ok(()) }
    }

    /// Sends what was pushed. Each command is then answered once, in their order.
    pub fn send(&mut self) -> io::Result<()> {
        self.write()?;
        self.stream.flush()
    }

    fn write(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next answer. What a server refuses is a [`Value::ServerError`].
    pub fn answer(&mut self) -> io::Result<Value> {
        self.answers.next(&mut self.stream).map_err(|error| {
            let is_late = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
            let kind = if is_late { io::ErrorKind::TimedOut } else { io::ErrorKind::ConnectionAborted };
            io::Error::new(kind, error)
        })
    }

    /// Sends one command and waits for its answer.
    pub fn ask(&mut self, command: &Cmd) -> io::Result<Value> {
        self.push(command)?;
        self.send()?;
        self.answer()
    }
}

/// Tries each address of a name. A server of another machine may be one that the cluster has named, so this is where it is seen.
fn connect(node: &str, options: &LinkOptions) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in node.to_socket_addrs()? {
        let is_safe = options.accepts_plain || options.tls.is_some() && options.login.is_some();
        if !is_safe && !address.ip().to_canonical().is_loopback() {
            let lacks = if options.tls.is_none() { "without TLS" } else { "without a login" };
            let why = format!(
                "it is on another machine and would be spoken to {lacks}: write rediss://USER@HOST:PORT, or, on a network that nobody \
                 else is on, store-plain = true"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        match TcpStream::connect_timeout(&address, options.connect_time_max) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
            Stream::Simulated(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(buffer),
            Stream::Tls(stream) => stream.write(buffer),
            Stream::Simulated(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
            Stream::Simulated(stream) => stream.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_listens_in_on_what_is_said_to_other_machines() {
        // An address for documents, which nobody has: either it is refused, or it is not reached in time.
        let connect_time_max = Duration::from_millis(1);
        let options = LinkOptions { connect_time_max, ..LinkOptions::default() };
        let failed = |options: &LinkOptions| match Link::connect("192.0.2.1:6379", options) {
            Err(error) => error,
            Ok(_) => panic!("somebody is there"),
        };
        let refused = failed(&options);
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("without TLS: write rediss://"), "{refused}");
        let login = Some(Login { user: "a".to_owned(), password: "b".to_owned() });
        assert!(failed(&LinkOptions { login, ..options.clone() }).to_string().contains("without TLS"));
        let accepting = LinkOptions { accepts_plain: true, ..options };
        assert_ne!(failed(&accepting).kind(), io::ErrorKind::PermissionDenied);
    }
}
