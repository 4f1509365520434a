//! The wide area between sites, emulated in user space: a relay on loopback for each way from one site to another, with a
//! delay, a rate, cuts, and a count of the bytes that passed.
//!
//! What passes arrives in order and whole, as over a TCP connection with a window as large as the way is long: a beginning takes
//! a round trip, and nothing is lost. The bytes are those that TCP carries, TLS included.
//!
//! A wide area of packets ([`Wan::of_packets`]) loses some of them and delays each by another time, beneath the kernel's own TCP.
//! The bytes are then those of packets, with their heads, what was lost, what was sent again, and what only acknowledges.

#[cfg(target_os = "linux")]
mod packets;
/// There are no such devices here.
#[cfg(not(target_os = "linux"))]
#[path = "wan/no_packets.rs"]
mod packets;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

/// What is read at once.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks under way in one direction of a connection: 4 MiB.
const CHUNKS_MAX: usize = 256;
/// A packet that would have to wait so long for those before it to leave is lost.
const BACKLOG_MAX: Duration = Duration::from_millis(250);
/// How often a cut way is looked at.
const CUT_LOOK: Duration = Duration::from_millis(10);

/// A way from one site to another, and back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// How long it takes there and back.
    pub round_trip: Duration,
    /// Bytes a second in each direction; 0 for no limit.
    pub bytes_per_s: u64,
    /// Which part of the packets is lost, where there are packets,
    pub loss: f64,
    /// and by how much each is later than it should be, at most.
    pub jitter: Duration,
}

impl Way {
    /// Whether it takes packets to be like this.
    pub fn has_packets(&self) -> bool {
        self.loss > 0.0 || !self.jitter.is_zero()
    }
}

/// One direction of a way.
#[derive(Debug)]
struct Direction {
    way: Way,
    bytes: AtomicU64,
    /// When the last byte that was taken has left.
    free_at: Mutex<Instant>,
    is_cut: Arc<AtomicBool>,
}

impl Direction {
    fn new(way: Way, is_cut: Arc<AtomicBool>) -> Arc<Direction> {
        Arc::new(Direction { way, bytes: AtomicU64::new(0), free_at: Mutex::new(Instant::now()), is_cut })
    }

    /// When bytes that are here now arrive.
    fn arrival(&self, bytes: usize) -> Instant {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let leaves = match self.way.bytes_per_s {
            0 => Instant::now(),
            rate => {
                let begins = Instant::now().max(*free_at);
                *free_at = begins + Duration::from_secs_f64(bytes as f64 / rate as f64);
                *free_at
            }
        };
        leaves + self.way.round_trip / 2
    }

    /// When a packet that is here now arrives, if it does. Chance is in `drawn`.
    fn take_packet(&self, bytes: usize, drawn: u64) -> Option<Instant> {
        let backlog = {
            let free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            free_at.saturating_duration_since(Instant::now())
        };
        if self.is_cut.load(Ordering::Relaxed) || backlog > BACKLOG_MAX {
            return None;
        }
        let arrives = self.arrival(bytes);
        // One half says whether it is lost, the other by how much it is late.
        let unit = |half: u64| half as f64 / f64::from(u32::MAX);
        let late = self.way.jitter.mul_f64(unit(drawn & u64::from(u32::MAX)));
        (unit(drawn >> 32) >= self.way.loss).then_some(arrives + late)
    }

    async fn while_cut(&self) {
        while self.is_cut.load(Ordering::Relaxed) {
            sleep(CUT_LOOK).await;
        }
    }
}

/// A relay from one site to another.
#[derive(Debug)]
pub struct Relay {
    /// Where to connect instead of to whom it leads.
    pub address: String,
    there: Arc<Direction>,
    back: Arc<Direction>,
    is_cut: Arc<AtomicBool>,
}

impl Relay {
    /// Bytes that went there, and came back.
    pub fn bytes(&self) -> (u64, u64) {
        (self.there.bytes.load(Ordering::Relaxed), self.back.bytes.load(Ordering::Relaxed))
    }

    /// Lets nothing pass, or everything again. What is under way waits.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

/// The emulated wide area. All relays end when it is dropped.
#[derive(Debug)]
pub struct Wan {
    runtime: Runtime,
    packets: Option<packets::Packets>,
}

impl Wan {
    /// Begins without any ways.
    pub fn start() -> io::Result<Wan> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lab-wan")
            .enable_all()
            .build()?;
        Ok(Wan { runtime, packets: None })
    }

    /// Begins without any ways, and with packets. An error where that cannot be: it takes an administrator, and Linux.
    pub fn of_packets() -> io::Result<Wan> {
        let wan = Wan::start()?;
        let packets = packets::Packets::start(&wan.runtime)?;
        Ok(Wan { packets: Some(packets), ..wan })
    }

    /// Opens a way to whoever listens at `to`.
    pub fn open(&self, to: String, way: Way) -> io::Result<Relay> {
        let listener = std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let is_cut = Arc::new(AtomicBool::new(false));
        let there = Direction::new(way, Arc::clone(&is_cut));
        let back = Direction::new(way, Arc::clone(&is_cut));
        let directions = (Arc::clone(&there), Arc::clone(&back));
        let _entered = self.runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        match &self.packets {
            None => {
                self.runtime.spawn(accept(listener, move |from| relay(from, to.clone(), directions.clone())));
            }
            Some(packets) => {
                let (far_listener, far) = packets.listen(&there, &back)?;
                self.runtime.spawn(accept(listener, move |from| join(from, far.connect())));
                self.runtime
                    .spawn(accept(far_listener, move |from| join(from, TcpStream::connect(to.clone()))));
            }
        }
        Ok(Relay { address, there, back, is_cut })
    }
}

/// Has each connection carried on, for as long as the runtime is there.
async fn accept<C>(listener: TcpListener, carry: impl Fn(TcpStream) -> C)
where
    C: Future<Output = ()> + Send + 'static,
{
    while let Ok((from, _)) = listener.accept().await {
        tokio::spawn(carry(from));
    }
}

/// Carries what comes from each of two sides to the other.
async fn join(mut from: TcpStream, to: impl Future<Output = io::Result<TcpStream>>) {
    // Whoever connected sees the connection end.
    let Ok(mut to) = to.await else { return };
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let _ = copy_bidirectional(&mut from, &mut to).await;
}

async fn relay(from: TcpStream, to: String, (there, back): (Arc<Direction>, Arc<Direction>)) {
    there.while_cut().await;
    sleep(there.way.round_trip).await;
    // Whoever connected sees the connection end.
    let Ok(to) = TcpStream::connect(to).await else { return };
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
    tokio::join!(carry(from_read, to_write, there), carry(to_read, from_write, back));
}

/// Carries what comes from one side to the other until either has ended.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, direction: Arc<Direction>) {
    let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let read = async {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            match from.read(&mut chunk).await {
                Ok(bytes) if bytes > 0 => {
                    chunk.truncate(bytes);
                    if sender.send((direction.arrival(bytes), chunk)).await.is_err() {
                        return;
                    }
                }
                _ => return drop(sender),
            }
        }
    };
    let write = async {
        while let Some((at, chunk)) = chunks.recv().await {
            sleep_until(at).await;
            direction.while_cut().await;
            if to.write_all(&chunk).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        time::Instant,
    };

    use super::*;

    /// Sends bytes over a way and has them come back. Says how long that took.
    fn echo(relay: &Relay, bytes: usize) -> Duration {
        let mut stream = TcpStream::connect(&relay.address).unwrap();
        let began = Instant::now();
        let sent: Vec<u8> = (0..bytes).map(|at| (at * at / 7) as u8).collect();
        let mut back = vec![0; bytes];
        std::thread::scope(|scope| {
            let mut writing = stream.try_clone().unwrap();
            let sent = &sent;
            scope.spawn(move || writing.write_all(sent).unwrap());
            stream.read_exact(&mut back).unwrap();
        });
        assert!(back == sent, "other bytes came back");
        began.elapsed()
    }

    fn echoing() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(4) {
                let mut stream = stream.unwrap();
                let mut chunk = [0; 1 << 16];
                while let Ok(bytes @ 1..) = stream.read(&mut chunk) {
                    stream.write_all(&chunk[..bytes]).unwrap();
                }
            }
        });
        address
    }

    #[test]
    fn a_way_takes_its_time_and_counts() {
        let wan = Wan::start().unwrap();
        let way = Way { round_trip: Duration::from_millis(60), bytes_per_s: 1_000_000, ..Way::default() };
        let relay = wan.open(echoing(), way).unwrap();
        // A round trip to connect, and one for the bytes.
        assert!(echo(&relay, 10) >= Duration::from_millis(120));
        // Both directions carry them at the same time, but for the first.
        assert!(echo(&relay, 100_000) >= Duration::from_millis(220));
        assert_eq!(relay.bytes(), (100_010, 100_010));
    }

    #[test]
    fn nothing_passes_a_cut() {
        let wan = Wan::start().unwrap();
        let way = Way::default();
        let relay = wan.open(echoing(), way).unwrap();
        relay.cut(true);
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| echo(&relay, 10));
            std::thread::sleep(Duration::from_millis(100));
            relay.cut(false);
            assert!(echo.join().unwrap() >= Duration::from_millis(50));
        });
    }

    /// A wide area of packets, where there can be one.
    fn of_packets() -> Option<Wan> {
        match Wan::of_packets() {
            Ok(wan) => Some(wan),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    #[test]
    fn what_loses_packets_carries_all_of_it() {
        let Some(wan) = of_packets() else { return };
        let bytes = 2_000_000;
        let way = Way {
            round_trip: Duration::from_millis(40),
            bytes_per_s: 2_500_000,
            loss: 0.01,
            jitter: Duration::from_millis(5),
        };
        let relay = wan.open(echoing(), way).unwrap();
        let took = echo(&relay, bytes);
        // No faster than the rate allows, and not as slow as if every loss stopped it for a second.
        assert!((800..20_000).contains(&took.as_millis()), "{took:?}");
        let (there, back) = relay.bytes();
        // Heads of packets, and what was sent again.
        for passed in [there, back] {
            assert!((1_027 * bytes as u64..1_500 * bytes as u64).contains(&(1_000 * passed)), "{passed}");
        }
    }

    #[test]
    fn what_is_lost_to_a_cut_is_sent_again() {
        let Some(wan) = of_packets() else { return };
        let relay = wan.open(echoing(), Way::default()).unwrap();
        relay.cut(true);
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| echo(&relay, 10));
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(relay.bytes(), (0, 0));
            relay.cut(false);
            assert!(echo.join().unwrap() >= Duration::from_millis(50));
        });
        assert!(relay.bytes().0 > 10);
    }
}
