//! Promise 5, as far as counts can show it: the agent and its store agree on what waits, and every host is in one place.

use nephila_core::agent::Agent;
use nephila_core::time::Now;
use nephila_store::Store;

/// Compares the counts, and gives back how many hosts are where.
pub(super) fn counts(
    agent: &mut Agent,
    store: &impl Store,
    in_flight: u64,
    now: Now,
) -> Result<[(&'static str, u64); 10], String> {
    let status = agent.status(now);
    let queued = store.stored().queued;
    if status.queue != queued {
        return Err(format!("the agent counts {} URLs that wait, the store {queued}", status.queue));
    }
    let counts = status.hosts;
    let places = [
        ("hosts idle", counts.idle),
        ("hosts ready", counts.ready),
        ("hosts being asked", counts.fetching),
        ("hosts in their delay", counts.delay),
        ("hosts at the gate of an address", counts.address),
        ("hosts being resolved", counts.resolving),
        ("hosts whose rules are elsewhere", counts.robots),
        ("hosts backing off", counts.backing_off),
        ("hosts whose URLs are to be tried again", counts.retrying),
        ("hosts blocked", counts.blocked),
    ];
    let hosts = agent.hosts(now).count() as u64;
    if places.iter().map(|(_, count)| count).sum::<u64>() != hosts {
        return Err(format!("{hosts} hosts are not each in one place: {counts:?}"));
    }
    if counts.fetching != in_flight {
        return Err(format!(
            "{in_flight} requests are in flight, and {} hosts are being asked",
            counts.fetching
        ));
    }
    Ok(places)
}
