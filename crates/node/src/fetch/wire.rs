//! What is below HTTP: a TCP connection, with or without TLS over it, and how much may come over it.
//!
//! Protocols have ways to send without saying anything: empty TLS records, pings, settings, padding, frames that belong to
//! nothing. Whatever is above counts only what it knows, so what comes from the socket is counted here, all of it.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// What may come before the first exchange: certificates, above all.
const HANDSHAKE_BYTES_MAX: u64 = 256 << 10;

/// How much may come over a connection.
#[derive(Debug)]
pub(super) struct Meter {
    /// From now on. Reading fails when more has come.
    left: Cell<u64>,
    /// Before others get their turn; nothing comes until the next one is given.
    turn: Cell<u64>,
}

impl Meter {
    /// From now on this much may come.
    pub(super) fn allow(&self, bytes: u64) {
        self.left.set(bytes);
    }

    /// This much may be read before the next turn.
    pub(super) fn give_turn(&self, bytes: u64) {
        self.turn.set(bytes);
    }

    /// Whether more came than was allowed.
    pub(super) fn is_exceeded(&self) -> bool {
        self.left.get() == 0
    }

    fn count(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes as u64;
        self.turn.set(self.turn.get().saturating_sub(bytes));
        self.left.set(self.left.get().saturating_sub(bytes));
        if self.is_exceeded() { Err(io::Error::other("more came than an answer may take")) } else { Ok(()) }
    }
}

/// A TCP connection with a meter.
#[derive(Debug)]
pub(super) struct Metered {
    stream: TcpStream,
    meter: Rc<Meter>,
}

impl Metered {
    pub(super) fn new(stream: TcpStream) -> Metered {
        let meter = Meter { left: Cell::new(HANDSHAKE_BYTES_MAX), turn: Cell::new(u64::MAX) };
        Metered { stream, meter: Rc::new(meter) }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Wire {
    Plain(Metered),
    Tls(Box<TlsStream<Metered>>),
}

impl Wire {
    /// The meter of this connection.
    pub(super) fn meter(&self) -> Rc<Meter> {
        let metered = match self {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => stream.get_ref().0,
        };
        Rc::clone(&metered.meter)
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.meter.turn.get() == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(self.meter.count(buffer.filled().len() - before))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            // Many servers end a TLS connection without saying so. Whether the message was whole is for HTTP to
            // judge: by its length or its last chunk, where it has them.
            Wire::Tls(stream) => match ready!(Pin::new(stream).poll_read(cx, buffer)) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                other => Poll::Ready(other),
            },
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn no_more_is_read_than_is_allowed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        other.write_all(&[7; 100]).await.unwrap();
        let mut wire = Wire::Plain(Metered::new(stream));
        let meter = wire.meter();
        let mut bytes = [0; 40];
        wire.read_exact(&mut bytes).await.unwrap();
        meter.give_turn(40);
        wire.read_exact(&mut bytes).await.unwrap();
        let mut nobody = Context::from_waker(std::task::Waker::noop());
        let mut buffer = ReadBuf::new(&mut bytes);
        assert!(Pin::new(&mut wire).poll_read(&mut nobody, &mut buffer).is_pending(), "the turn is over");
        meter.give_turn(u64::MAX);
        meter.allow(20);
        assert!(wire.read(&mut bytes).await.is_err());
        assert!(meter.is_exceeded());
        meter.allow(1);
        assert!(!meter.is_exceeded());
    }
}
