//! The recording layer between TLS and hyper, and the memory that recordings share.
//!
//! What goes over a connection during an exchange is kept byte for byte; between exchanges nothing is. The recording is
//! the only copy of a body. It starts in memory, out of a [`Budget`] that all recordings share, and moves to a file
//! without a name when it grows beyond a limit or when the budget has no more: so a recording that has begun never
//! waits for another, and only the first block of one has to be waited for.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use hyper::rt::ReadBufCursor;
use nephila_archive::Content;
use nephila_core::agent::FetchError;
use nephila_core::record::Failure;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt as _, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failed;
use super::wire::Wire;

/// Memory is reserved in blocks of this size; a recording begins with one.
const BLOCK_BYTES: usize = 16 << 10;
/// What is read at once, whatever hyper asks for: most answers, in one go.
const READ_BYTES: usize = 2 * BLOCK_BYTES;
/// How much of what was sent is kept. Requests are ours and are far shorter.
const SENT_BYTES_MAX: usize = 64 << 10;

/// Buffers of recordings that are archived wait for the next ones: so many, beside the budget,
const LEFT_MAX: usize = 64;
/// and none larger than this.
const LEFT_BYTES_MAX: usize = 64 << 10;

/// Memory that recordings share.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    blocks: Arc<Semaphore>,
    left: Left,
}

/// Buffers that recordings have left.
type Left = Arc<Mutex<Vec<Vec<u8>>>>;

/// A part of the budget; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    blocks: OwnedSemaphorePermit,
    left: Left,
}

impl Reservation {
    /// Gives the memory back, and leaves the buffer that it was for to another recording: to have the kernel take and clear
    /// the same pages again and again costs more than everything else about a buffer.
    pub fn leave(self, mut buffer: Vec<u8>) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.capacity() <= LEFT_BYTES_MAX && left.len() < LEFT_MAX {
            buffer.clear();
            left.push(buffer);
        }
    }
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        let blocks = (bytes / BLOCK_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Budget { blocks: Arc::new(Semaphore::new(blocks)), left: Left::default() }
    }

    /// Waits for the block that a recording begins with.
    pub(super) async fn first_block(&self) -> Reservation {
        let permit = Arc::clone(&self.blocks).acquire_owned().await;
        let blocks = permit.expect("the semaphore is never closed");
        Reservation { blocks, left: Arc::clone(&self.left) }
    }

    /// Adds blocks to a reservation, if there are any.
    fn grow(&self, reservation: &mut Reservation, blocks: usize) -> bool {
        let Ok(count) = u32::try_from(blocks) else { return false };
        let Ok(more) = Arc::clone(&self.blocks).try_acquire_many_owned(count) else { return false };
        reservation.blocks.merge(more);
        true
    }
}

/// How recordings are kept.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) budget: Budget,
    /// The size above which a recording goes to a file.
    pub(super) spill_bytes: usize,
    /// Where such files are made.
    pub(super) spill_dir: PathBuf,
    /// Why recordings cannot be kept any more.
    pub(super) failure: RefCell<Option<io::Error>>,
    /// What is read goes here first, because nobody knows how much will come. Beside the budget, and one for all.
    desk: RefCell<Vec<u8>>,
}

impl Store {
    pub(super) fn new(memory_bytes: usize, spill_bytes: usize, spill_dir: PathBuf) -> Store {
        let (failure, desk) = (RefCell::default(), RefCell::default());
        Store { budget: Budget::new(memory_bytes), spill_bytes, spill_dir, failure, desk }
    }

    /// What it means for a fetch that its recording could not be kept, or not be read back. It is noted too, unless it
    /// passes by itself: the next recording would fare no better.
    pub(super) fn fail(&self, what: &str, error: io::Error) -> FetchError {
        let failure = failed(Failure::NotTried, format_args!("the answer could not be {what}: {error}"));
        if !is_short_of(&error) {
            self.failure.replace(Some(error));
        }
        failure
    }
}

/// Whether an error says that this machine is short of something that others will give back.
pub(super) fn is_short_of(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// What was recorded of one exchange.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) sent: Vec<u8>,
    received: Vec<u8>,
    spilled: Option<File>,
    length: u64,
    reservation: Option<Reservation>,
    store: Rc<Store>,
    /// So many of the last bytes hyper has not been given yet: the last ones of `received`, also if all are in a file.
    ahead: usize,
    /// No more than this may be received for now.
    pub(super) bytes_max: Option<u64>,
    /// Why it could not go on; the exchange is over then.
    pub(super) failure: Option<FetchError>,
}

impl Recording {
    pub(super) fn new(store: Rc<Store>, reservation: Reservation) -> Recording {
        Recording {
            sent: Vec::new(),
            received: Vec::new(),
            spilled: None,
            length: 0,
            reservation: Some(reservation),
            store,
            ahead: 0,
            bytes_max: None,
            failure: None,
        }
    }

    /// Bytes received.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// What was received, and the memory that it takes.
    pub(super) fn into_content(self) -> (Content, Option<Reservation>) {
        match self.spilled {
            Some(file) => (Content::Spilled(file, self.length), None),
            None => (Content::Memory(self.received), self.reservation),
        }
    }

    /// Takes the next bytes.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        self.keep(bytes).map_err(|error| self.store.fail("kept", error))?;
        self.check_length()
    }

    /// Takes what was read; together with its buffer, if that is what the recording would need itself.
    fn take(&mut self, desk: &mut Vec<u8>) -> Result<(), FetchError> {
        let fits = desk.len() > BLOCK_BYTES && desk.len() <= self.store.spill_bytes;
        if self.length > 0 || !fits || !self.reserve(desk.capacity()) {
            return self.receive(desk);
        }
        self.length = desk.len() as u64;
        self.received = std::mem::replace(desk, self.leftover());
        self.check_length()
    }

    /// Takes what was read, and gives hyper what it has room for of it.
    fn pass(&mut self, desk: &mut Vec<u8>, cursor: &mut ReadBufCursor<'_>) -> Result<(), FetchError> {
        self.ahead = desk.len();
        self.take(desk)?;
        if self.spilled.is_some() {
            let (now, later) = desk.split_at(desk.len().min(cursor.remaining()));
            cursor.put_slice(now);
            self.received = later.to_vec();
            self.ahead = later.len();
        } else {
            self.give(cursor);
        }
        Ok(())
    }

    /// Gives hyper what it has room for of what it was not given yet.
    fn give(&mut self, cursor: &mut ReadBufCursor<'_>) {
        let start = self.received.len() - self.ahead;
        let count = self.ahead.min(cursor.remaining());
        cursor.put_slice(&self.received[start..start + count]);
        self.ahead -= count;
    }

    fn check_length(&self) -> Result<(), FetchError> {
        match self.bytes_max {
            Some(bytes_max) if self.length > bytes_max => {
                Err(failed(Failure::Malformed, "endless interim answers"))
            }
            _ => Ok(()),
        }
    }

    /// Whether hyper was given everything.
    pub(super) fn is_given(&self) -> bool {
        self.ahead == 0
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.spilled.is_none() && !self.make_room(bytes.len()) {
            self.spill()?;
        }
        match &mut self.spilled {
            Some(file) => file.write_all(bytes)?,
            None => self.received.extend_from_slice(bytes),
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes room in memory. False: it has to go to a file.
    fn make_room(&mut self, more: usize) -> bool {
        let needed = self.received.len() + more;
        if needed > self.store.spill_bytes {
            return false;
        }
        let capacity = self.received.capacity();
        if needed <= capacity {
            return true;
        }
        if capacity == 0 {
            self.received = self.leftover();
        }
        let target = needed.max(2 * capacity).max(self.received.capacity()).next_multiple_of(BLOCK_BYTES);
        if !self.reserve(target) {
            return false;
        }
        self.received.reserve_exact(target - self.received.len());
        true
    }

    /// A buffer that another recording has left, or a new one without room.
    fn leftover(&self) -> Vec<u8> {
        self.store.budget.left.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Sees to it that a buffer of this size is counted. False: there is no memory for it.
    fn reserve(&mut self, bytes: usize) -> bool {
        let Some(reservation) = &mut self.reservation else { return false };
        let missing = bytes.div_ceil(BLOCK_BYTES).saturating_sub(reservation.blocks.num_permits());
        missing == 0 || self.store.budget.grow(reservation, missing)
    }

    fn spill(&mut self) -> io::Result<()> {
        let mut file = tempfile::tempfile_in(&self.store.spill_dir)?;
        file.write_all(&self.received)?;
        self.received = Vec::new();
        self.reservation = None;
        self.spilled = Some(file);
        Ok(())
    }
}

/// Where the recording of the current exchange is, if there is one: shared by a connection and its recorder.
pub(super) type Tape = Rc<RefCell<Option<Recording>>>;

/// A connection that keeps what goes over it on its tape.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) wire: Wire,
    pub(super) tape: Tape,
}

impl hyper::rt::Read for Recorder {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Recorder { wire, tape } = &mut *self;
        let mut tape = tape.borrow_mut();
        let recording = tape.as_mut().expect("nobody reads when the exchange is over");
        if !recording.is_given() {
            recording.give(&mut cursor);
            return Poll::Ready(Ok(()));
        }
        let mut desk = recording.store.desk.take();
        desk.clear();
        desk.reserve_exact(READ_BYTES);
        let read = pin!(wire.read_buf(&mut (&mut desk).limit(READ_BYTES))).poll(cx);
        let passed = read.map(|read| {
            read?;
            recording.pass(&mut desk, &mut cursor).map_err(|error| {
                recording.failure = Some(error);
                ErrorKind::Other.into()
            })
        });
        recording.store.desk.replace(desk);
        passed
    }
}

impl hyper::rt::Write for Recorder {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.wire).poll_write(cx, bytes))?;
        if let Some(recording) = &mut *self.tape.borrow_mut() {
            let room = SENT_BYTES_MAX.saturating_sub(recording.sent.len());
            recording.sent.extend_from_slice(&bytes[..count.min(room)]);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use hyper::rt::Read as _;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpStream;

    use super::super::wire::Metered;
    use super::*;

    fn store(budget_bytes: usize, spill_bytes: usize) -> Rc<Store> {
        Rc::new(Store::new(budget_bytes, spill_bytes, std::env::temp_dir()))
    }

    async fn recording(store: &Rc<Store>) -> Recording {
        Recording::new(Rc::clone(store), store.budget.first_block().await)
    }

    fn bytes_of(content: Content) -> (bool, Vec<u8>) {
        match content {
            Content::Memory(bytes) => (false, bytes),
            Content::Spilled(mut file, length) => {
                let mut bytes = Vec::new();
                file.rewind().unwrap();
                file.read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes.len() as u64, length);
                (true, bytes)
            }
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn spills_above_the_limit_and_gives_its_memory_back() {
        let store = store(1 << 20, 100_000);
        let free = store.budget.blocks.available_permits();
        for (length, spilled) in [(0, false), (100_000, false), (100_001, true), (1_000_000, true)] {
            let bytes: Vec<u8> = (0..length).map(|at: u32| at as u8).collect();
            let mut recording = recording(&store).await;
            for piece in bytes.chunks(7_001) {
                recording.receive(piece).unwrap();
            }
            let (content, reservation) = recording.into_content();
            assert_eq!(reservation.is_none(), spilled);
            assert_eq!(bytes_of(content), (spilled, bytes));
            drop(reservation);
            assert_eq!(store.budget.blocks.available_permits(), free);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn buffers_are_used_again_and_stay_counted() {
        let store = store(4 * BLOCK_BYTES, 1 << 20);
        let mut first = recording(&store).await;
        first.receive(&[1; 2 * BLOCK_BYTES]).unwrap();
        let (Content::Memory(buffer), Some(reservation)) = first.into_content() else {
            panic!("it is short")
        };
        let place = buffer.as_ptr();
        reservation.leave(buffer);
        assert_eq!(store.budget.blocks.available_permits(), 4);
        let mut second = recording(&store).await;
        second.receive(&[2; 7]).unwrap();
        assert_eq!(
            store.budget.blocks.available_permits(),
            2,
            "as large as the buffer is, not as it needs to be"
        );
        let (Content::Memory(buffer), Some(reservation)) = second.into_content() else {
            panic!("it is short")
        };
        assert_eq!((buffer.as_ptr(), buffer.as_slice()), (place, &[2; 7][..]));
        reservation.leave(Vec::with_capacity(LEFT_BYTES_MAX + 1));
        assert!(store.budget.left.lock().unwrap().is_empty());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn goes_to_a_file_rather_than_wait_while_it_holds_memory() {
        let store = store(3 * BLOCK_BYTES, 1 << 20);
        let mut first = recording(&store).await;
        let mut second = recording(&store).await;
        first.receive(&[1; 2 * BLOCK_BYTES]).unwrap();
        second.receive(&[2; 2 * BLOCK_BYTES]).unwrap();
        assert_eq!(store.budget.blocks.available_permits(), 1, "the second gave its block back");
        assert!(!bytes_of(first.into_content().0).0);
        assert!(bytes_of(second.into_content().0).0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn says_when_there_is_no_room_for_files() {
        let store = Rc::new(Store::new(1 << 20, 10, "/nonexistent/spill".into()));
        let mut recording = recording(&store).await;
        assert!(recording.receive(&[0; 10]).is_ok());
        assert!(store.failure.take().is_none());
        assert!(recording.receive(&[0; 1]).is_err());
        assert_eq!(store.failure.take().map(|error| error.kind()), Some(ErrorKind::NotFound));
    }

    /// Hyper gets what came in the order in which it came, however much more than it asked for was read.
    #[tokio::test(flavor = "current_thread")]
    async fn what_is_read_ahead_is_given_later() {
        let bytes: Vec<u8> = (0..3 * READ_BYTES as u32).map(|at| (at / 251) as u8).collect();
        for (budget_blocks, spill_bytes, spilled, asked) in [
            (64, 1 << 20, false, 8 << 10),
            (64, 1 << 20, false, 1_000),
            (64, 1_000, true, 1_000),
            (64, READ_BYTES + 1, true, 5_000),
            (1, 1 << 20, true, 8 << 10),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let store = store(budget_blocks * BLOCK_BYTES, spill_bytes);
            let tape: Tape = Rc::new(RefCell::new(Some(recording(&store).await)));
            let wire = Wire::Plain(Metered::new(stream));
            let mut recorder = Recorder { wire, tape: Rc::clone(&tape) };
            let serving = async {
                server.write_all(&bytes).await.unwrap();
                drop(server);
            };
            let reading = async {
                let mut read = Vec::new();
                loop {
                    let mut space = vec![0; asked];
                    let count = std::future::poll_fn(|cx| {
                        let mut buffer = hyper::rt::ReadBuf::new(&mut space);
                        let polled = Pin::new(&mut recorder).poll_read(cx, buffer.unfilled());
                        polled.map_ok(|()| buffer.filled().len())
                    });
                    match count.await.unwrap() {
                        0 => break read,
                        count => read.extend_from_slice(&space[..count]),
                    }
                    let tape = tape.borrow();
                    let recording = tape.as_ref().unwrap();
                    assert_eq!(recording.length(), (read.len() + recording.ahead) as u64);
                }
            };
            let (read, ()) = tokio::join!(reading, serving);
            assert!(read == bytes, "{budget_blocks} blocks, {spill_bytes} bytes");
            let recording = tape.borrow_mut().take().unwrap();
            assert!(recording.is_given());
            assert!(bytes_of(recording.into_content().0) == (spilled, bytes.clone()));
            assert_eq!(store.budget.blocks.available_permits(), budget_blocks);
        }
    }

    /// The real thing: a device that is always full.
    #[tokio::test(flavor = "current_thread")]
    async fn says_when_the_disk_is_full() {
        let store = store(1 << 20, 10);
        let mut recording = recording(&store).await;
        recording.spilled = Some(File::options().write(true).open("/dev/full").unwrap());
        assert_eq!(recording.receive(&[0; 11]).unwrap_err().failure, Failure::NotTried);
        assert!(nephila_disk::is_full(&store.failure.take().unwrap()));
    }

    /// Descriptors come back when other fetches end: that is no reason to stop.
    #[test]
    fn what_passes_by_itself_is_not_noted() {
        let store = store(1 << 20, 10);
        for (errno, noted) in
            [(Errno::MFILE, false), (Errno::NOMEM, false), (Errno::DQUOT, true), (Errno::IO, true)]
        {
            let error = store.fail("kept", errno.into());
            assert_eq!(error.failure, Failure::NotTried);
            assert_eq!(store.failure.take().is_some(), noted, "{errno}");
        }
    }
}
