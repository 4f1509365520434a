//! What the frontier may use.

use crate::StoreLimits;

/// What the frontier may use.
#[derive(Clone, Copy, Debug)]
pub struct FrontierOptions {
    /// What admission stops at.
    pub limits: StoreLimits,
    /// Memory for the sieve: its filters, and what it has noted and not decided or written.
    pub sieve_bytes_max: usize,
    /// The part of it that filters may take.
    pub filter_bytes_max: usize,
    /// Memory for URLs of hosts that are not in memory.
    pub pending_bytes_max: usize,
    /// Hosts whose queues are in memory.
    pub hot_hosts_max: usize,
    /// Memory for these queues; those that are under way are there in any case.
    pub hot_bytes_max: usize,
    /// URLs in a block of the sieve.
    pub block_urls_max: usize,
    /// Bytes in a block of queues.
    pub block_bytes_max: usize,
    /// So that nobody outside can make hosts, or URLs that were offered lately, collide. For hosts that of the making counts.
    pub secret: u64,
}

impl FrontierOptions {
    /// No limits, and so much memory in all.
    pub fn within(memory_bytes: usize) -> FrontierOptions {
        let part = memory_bytes / 9;
        FrontierOptions {
            limits: StoreLimits::NONE,
            sieve_bytes_max: 6 * part,
            filter_bytes_max: 3 * part,
            pending_bytes_max: part,
            hot_hosts_max: 20_000,
            hot_bytes_max: 2 * part,
            block_urls_max: 8_192,
            block_bytes_max: 64 << 10,
            secret: 0,
        }
    }
}

impl Default for FrontierOptions {
    fn default() -> FrontierOptions {
        FrontierOptions::within(600_000_000)
    }
}
