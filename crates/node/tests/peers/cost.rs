//! What talking costs, in processor time: `cargo test --release -p nephila-node --test peers -- --ignored --nocapture cost`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::site::*;

fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.try_into().unwrap(), used.tv_nsec.try_into().unwrap())
}

/// One message there and one back at a time; then many of several sizes one way. Both agents are in this process, so that
/// each figure is of both sides together.
#[tokio::test(flavor = "current_thread")]
#[ignore = "prints figures, and needs a release build to mean something"]
async fn cost() {
    let authority = Authority::new();
    let mut a = authority.agent("a.paris.nephila.internal");
    let mut b = authority.agent("b.paris.nephila.internal");
    a.send(&b, 0);
    b.next().await;
    b.send(&a, 0);
    a.next().await;
    let (rounds, begun) = (20_000, cpu());
    for number in 0..rounds {
        a.send(&b, number);
        b.next().await;
        b.send(&a, number);
        a.next().await;
    }
    let each = (cpu() - begun).as_secs_f64() * 1e6 / f64::from(u32::try_from(rounds).unwrap());
    println!("a message there and one back: {each:.1} us");
    for (bytes, count) in
        [(100, 200_000_u64), (1_000, 100_000), (10_000, 50_000), (100_000, 5_000), (1_000_000, 500)]
    {
        let message = Message { number: 0, text: "x".repeat(bytes) };
        let (to, address) = (b.peer(), b.address());
        let begun = cpu();
        let (mut sent, mut taken) = (0, 0);
        while taken < count {
            while sent < count && a.peers.send(&to, &address, &message).is_ok() {
                sent += 1;
            }
            b.next().await;
            taken += 1;
        }
        let used = (cpu() - begun).as_secs_f64();
        let megabytes = (bytes as u64 * count) as f64 / 1e6;
        println!(
            "{count} messages of {bytes} bytes: {:.2} us each, {:.0} us a megabyte",
            used * 1e6 / count as f64,
            used * 1e6 / megabytes
        );
    }
}
