//! What the frontier may use.

use nephila_core::settings::UrlOrder;
use nephila_core::site::AgentId;

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
    /// Which URLs of a host come first.
    pub order: UrlOrder,
    /// Memory for what URLs were given, if that is the order.
    pub ledger_bytes_max: usize,
    /// How many times as much a URL that others have must have been given before they are told again.
    pub tell_again: u32,
    /// Whose store it is.
    pub me: AgentId,
    /// URLs in a block of the sieve, and of the ledger.
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
            order: UrlOrder::BreadthFirst,
            ledger_bytes_max: 0,
            tell_again: 16,
            me: AgentId::default(),
            block_urls_max: 8_192,
            block_bytes_max: 64 << 10,
            secret: 0,
        }
    }

    /// The same for another order, and no more memory.
    pub fn in_order(self, order: UrlOrder) -> FrontierOptions {
        let ledger_bytes_max = match order {
            UrlOrder::BreadthFirst => 0,
            UrlOrder::Cash => self.sieve_bytes_max / 3,
        };
        FrontierOptions {
            order,
            ledger_bytes_max,
            sieve_bytes_max: self.sieve_bytes_max - ledger_bytes_max,
            filter_bytes_max: self.filter_bytes_max.min((self.sieve_bytes_max - ledger_bytes_max) / 2),
            ..self
        }
    }
}

impl Default for FrontierOptions {
    fn default() -> FrontierOptions {
        FrontierOptions::within(600_000_000)
    }
}
