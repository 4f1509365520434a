//! Every limit that is not a setting, in one place.
//!
//! Settings have their defaults in [`crate::settings`]; the limits of a parser stand beside the parser.

/// URLs of one host that the agent holds ready outside the store.
pub const TAKEN_MAX: usize = 8;

/// Records on their way to the disk; beyond it no fetch starts.
pub const UNSETTLED_MAX: usize = 2_048;

/// Requests for robots.txt of other hosts that may wait in one host's queue.
pub const ERRANDS_MAX: usize = 64;

/// Origins (scheme and port) of one host whose robots.txt is kept.
pub const ORIGINS_MAX: usize = 64;

/// URLs of one host that are remembered as having been answered with 429 or 503, and as many with a closed connection.
pub const TROUBLED_URLS_MAX: usize = 64;

/// Addresses of a host that one fetch may try.
pub const ADDRESSES_MAX: usize = 4;

/// Bytes of a Location header that are looked at.
pub const LOCATION_BYTES_MAX: usize = 8_192;

/// Hosts of one address that are remembered as busy, to tell a busy address from a busy host.
pub const BUSY_HOSTS_MAX: usize = 8;

/// The longest wait that a server's word (Retry-After, crawl-delay) can impose, so that sums of times cannot overflow.
pub const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(10 * 365 * 86_400);

/// Agents of a site, those that are gone included.
pub const AGENTS_MAX: usize = 1_024;

/// Bytes of found URLs that wait in memory for one agent; the others are read again from the journal.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;

/// URLs that are delivered to another agent at once,
pub const BATCH_URLS_MAX: usize = 500;

/// and how many such batches may wait for their acknowledgement.
pub const BATCHES_MAX: usize = 4;

/// Partitions that are handed over together.
pub const HANDOVER_PARTITIONS_MAX: usize = 512;

/// URLs that a store reads, or passes on, at once.
pub const MOVED_URLS_MAX: usize = 4_096;

/// Addresses at which an agent of a site may have its turn, or wait for it,
pub const TURNS_MAX: usize = 65_536;

/// addresses that it keeps for others,
pub const KEPT_MAX: usize = 262_144;

/// and how many of them one message is about; a message that says all that an agent has is as long as it has to be.
pub const TURNS_AT_ONCE_MAX: usize = 1_000;

/// What the operator of a site may have blocked, or blocked and taken back.
pub const SITE_BLOCKS_MAX: usize = 10_000;

/// URLs that redirects of seeds may add to the scope of a site.
pub const SCOPE_SEEDS_MAX: usize = 10_000;

/// Sites of a federation.
pub const SITES_MAX: usize = 256;
/// Hosts that are claimed from other sites at a time.
pub const CLAIMS_MAX: usize = 64;
/// Addresses that an agent has asked lately, or other sites have,
pub const ADDRESSES_USED_MAX: usize = 65_536;
/// and those that are told of at once.
pub const ADDRESSES_TOLD_MAX: usize = 4_096;
/// robots.txt that other sites are asked for at a time.
pub const RULES_ASKED_MAX: usize = 64;
/// Questions of other sites about hosts that are with other agents of the site at a time.
pub const RELAYED_MAX: usize = 256;

/// URLs of a batch for another site, and those of the host that fills it.
pub const POST_URLS_MAX: usize = 2_000;

/// Their text.
pub const POST_BYTES_MAX: usize = 512 << 10;

/// URLs of one host that are taken for a batch at once.
pub const POSTED_OF_HOST_MAX: usize = 500;

/// Things that a site of a federation can say to all others, those included that it has taken back,
pub const MAP_ENTRIES_MAX: usize = 1_000;

/// the text of what they are about and what they take beside it,
pub const MAP_BYTES_MAX: usize = 64 << 10;

/// and how many may have been taken back before that is forgotten, when everybody has heard of it.
pub const MAP_TAKEN_BACK_MAX: usize = 16;
