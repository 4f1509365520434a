//! Packets between the two ends of a way, so that they can be lost and overtake each other beneath real TCP: the kernel sends
//! them into a TUN device, and what becomes of each is decided here.
//!
//! The device has an address of ours, and beyond it is one where nobody is. What is sent there comes back with both addresses
//! exchanged, so that this kernel is at both ends, each of which sees the other as the address beyond. (The sums that TCP
//! and IP carry stay the same.) Which way a packet goes is told by its ports: the far end of each way listens at one of its own.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    io,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    time::{Instant, sleep_until},
};
use tokio_tun::Tun;
use xxhash_rust::xxh3::xxh3_64;

use super::Direction;

/// The largest packet.
const PACKET_BYTES: u16 = 1_500;
/// Packets under way, in all directions; what comes beyond is lost.
const UNDER_WAY_MAX: usize = 100_000;
/// Where addresses are taken from: they are set aside for measurements such as these (RFC 2544).
const ADDRESSES: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// Devices that have addresses there, four each.
const DEVICES: u32 = 1 << 15;

/// Directions there and back, by the port at the far end.
type Ports = Arc<Mutex<BTreeMap<u16, (Arc<Direction>, Arc<Direction>)>>>;

/// The device, and what passes through it.
#[derive(Debug)]
pub(super) struct Packets {
    ours: Ipv4Addr,
    beyond: Ipv4Addr,
    ports: Ports,
}

impl Packets {
    /// Makes a device, which only an administrator may. It is gone when the runtime ends.
    pub(super) fn start(runtime: &Runtime) -> io::Result<Packets> {
        // Several at a time, of this process and of others.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id() << 4) % DEVICES;
        let [ours, beyond] = [1, 2].map(|end| Ipv4Addr::from_bits(ADDRESSES + 4 * number + end));
        let _entered = runtime.enter();
        let devices = Tun::builder()
            .name("nephila%d")
            .mtu(i32::from(PACKET_BYTES))
            .address(ours)
            .netmask(Ipv4Addr::new(255, 255, 255, 252))
            .destination(beyond)
            .up()
            .build()
            .map_err(|error| {
                io::Error::other(format!("cannot make a TUN device, which takes root and Linux: {error}"))
            })?;
        let ports = Ports::default();
        for device in devices {
            runtime.spawn(carry(device, (ours, beyond), Arc::clone(&ports)));
        }
        Ok(Packets { ours, beyond, ports })
    }

    /// The far end of a way, and where the near one connects to.
    pub(super) fn listen(
        &self,
        there: &Arc<Direction>,
        back: &Arc<Direction>,
    ) -> io::Result<(TcpListener, Far)> {
        let listener = std::net::TcpListener::bind((self.ours, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let directions = (Arc::clone(there), Arc::clone(back));
        self.ports.lock().unwrap_or_else(PoisonError::into_inner).insert(port, directions);
        Ok((TcpListener::from_std(listener)?, Far { beyond: self.beyond, port }))
    }
}

/// Where the far end of a way is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Far {
    beyond: Ipv4Addr,
    port: u16,
}

impl Far {
    pub(super) async fn connect(self) -> io::Result<TcpStream> {
        TcpStream::connect((self.beyond, self.port)).await
    }
}

/// A packet that arrives at a time. Of those that arrive together, what was sent first does first.
type UnderWay = Reverse<(Instant, u64, Vec<u8>)>;

/// Takes packets from the device and gives them back when they have arrived, until the runtime ends.
async fn carry(device: Tun, (ours, beyond): (Ipv4Addr, Ipv4Addr), ports: Ports) {
    let mut under_way = BinaryHeap::<UnderWay>::new();
    let mut packet = vec![0; usize::from(PACKET_BYTES)];
    let mut count = 0_u64;
    loop {
        let first = under_way.peek().map(|Reverse((at, ..))| *at);
        tokio::select! {
            read = device.recv(&mut packet) => {
                // Without the device nothing passes any more, and whoever waits for it sees that.
                let Ok(bytes) = read else { return };
                count += 1;
                let taken = turned(&packet[..bytes], ours, beyond).and_then(|(packet, from, to)| {
                    let ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
                    let there = ports.get(&to).map(|(there, _)| there);
                    let direction = there.or_else(|| ports.get(&from).map(|(_, back)| back))?;
                    let arrives = direction.take_packet(packet.len(), xxh3_64(&count.to_le_bytes()))?;
                    Some(Reverse((arrives, count, packet)))
                });
                if under_way.len() < UNDER_WAY_MAX {
                    under_way.extend(taken);
                }
            }
            () = sleep_until(first.unwrap_or_else(Instant::now)), if first.is_some() => {
                let now = Instant::now();
                while under_way.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
                    let Some(Reverse((.., packet))) = under_way.pop() else { break };
                    // What the kernel has no room for is lost, as anywhere.
                    let _ = device.send(&packet).await;
                }
            }
        }
    }
}

/// A TCP packet to the address beyond, as it comes back from there, and the ports it is from and to. Nothing else passes.
fn turned(packet: &[u8], ours: Ipv4Addr, beyond: Ipv4Addr) -> Option<(Vec<u8>, u16, u16)> {
    const TCP: u8 = 6;
    let head = usize::from(packet.first()? & 0x0f) * 4;
    let is_ours = packet[0] >> 4 == 4
        && *packet.get(9)? == TCP
        && packet.get(12..16)? == ours.octets()
        && packet.get(16..20)? == beyond.octets();
    let port = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    let (from, to) = (port(head)?, port(head + 2)?);
    let mut turned = packet.to_vec();
    turned.get_mut(12..20)?.rotate_left(4);
    is_ours.then_some((turned, from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_from_where_they_were_sent() {
        let (ours, beyond) = (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2));
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
        packet.extend([0x30, 0x39, 0, 80]);
        let (back, from, to) = turned(&packet, ours, beyond).unwrap();
        assert_eq!((&back[12..20], from, to), (&[198, 18, 0, 2, 198, 18, 0, 1][..], 12_345, 80));
        assert_eq!((&back[..12], &back[20..]), (&packet[..12], &packet[20..]));
        // What is not TCP, to somebody else, or cut off.
        for (at, to) in [(9, 17), (0, 0x65), (19, 3), (15, 9)] {
            let mut other = packet.clone();
            other[at] = to;
            assert_eq!(turned(&other, ours, beyond), None);
        }
        assert!((0..packet.len()).all(|end| turned(&packet[..end], ours, beyond).is_none()));
    }
}
