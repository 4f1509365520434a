//! Names to addresses.
//!
//! A and AAAA are asked for at once. Nothing is cached here: how long an answer holds is said with it, and the core keeps
//! it. Names are taken as whole ones: the search domains of this machine are no part of the web.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use nephila_core::agent::{Addresses, NoAddress};
use nephila_core::url::Host;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The most addresses of a name that are looked at.
pub const ADDRESSES_MAX: usize = 32;
/// Answers that hold for less are taken to hold for this long, so that a name is not asked for again at every request.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// Answers that hold for longer are asked for again after this.
pub const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a question that nobody answered is asked again.
const RETRIES: u32 = 1;

/// Asks for the addresses of names.
pub struct Resolver {
    resolver: TokioResolver,
    /// For one question, its repetitions included.
    timeout: Duration,
    slots: Semaphore,
}

/// Why there is no resolver.
#[derive(Debug, thiserror::Error)]
#[error("dns cannot be set up")]
pub struct SetupError(#[from] NetError);

impl Resolver {
    /// A resolver that asks `server`, or whom this machine asks. A server that does not answer within `query_timeout` is
    /// asked once more. `parallel_max` names are asked for at once; the others wait.
    pub fn new(
        server: Option<SocketAddr>,
        query_timeout: Duration,
        parallel_max: usize,
    ) -> Result<Resolver, SetupError> {
        let (config, mut options) = match server {
            Some(server) => (only(server), ResolverOpts::default()),
            // Without a configuration the system asks this machine, and so do we.
            None => read_system_conf()
                .unwrap_or_else(|_| (only(SocketAddr::from(([127, 0, 0, 1], 53))), ResolverOpts::default())),
        };
        let parallel_max = parallel_max.max(1);
        options.timeout = query_timeout;
        options.attempts = RETRIES as usize;
        options.cache_size = 0;
        options.use_hosts_file = if server.is_some() { ResolveHosts::Never } else { ResolveHosts::Auto };
        // A name is two questions.
        options.max_active_requests = options.max_active_requests.max(2 * parallel_max);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        Ok(Resolver {
            resolver: builder.build()?,
            timeout: query_timeout.saturating_mul(RETRIES + 1),
            slots: Semaphore::new(parallel_max),
        })
    }

    /// The addresses of a host in the order to try them (RFC 8305: by turns, IPv6 first).
    pub async fn resolve(&self, host: &Host) -> Result<Addresses, NoAddress> {
        if let Some(address) = host.ip() {
            return Ok(Addresses { list: vec![address], ttl: TTL_MAX, position: None });
        }
        let name = format!("{host}.");
        let name = Name::from_ascii(&name).map_err(|error| unknown(format!("{host} is no name: {error}")))?;
        let _slot = self.slots.acquire().await.expect("the semaphore is never closed");
        let (six, four) = tokio::join!(self.ask(&name, RecordType::AAAA), self.ask(&name, RecordType::A));
        let ttl = [&six, &four].into_iter().filter_map(|part| part.as_ref().ok()).map(|part| part.ttl).min();
        let list = by_turns(addresses(&six), addresses(&four));
        match (ttl, four) {
            (Some(ttl), _) if !list.is_empty() => Ok(Addresses { list, ttl, position: None }),
            (_, Err(error)) => Err(error),
            (_, Ok(_)) => Err(unknown(format!("{host} has no address"))),
        }
    }

    async fn ask(&self, name: &Name, kind: RecordType) -> Result<Addresses, NoAddress> {
        let Ok(answer) = timeout(self.timeout, self.resolver.lookup(name.clone(), kind)).await else {
            return Err(unknown(format!("no answer about {name} in time")));
        };
        match answer {
            Ok(lookup) => Ok(found(&lookup)),
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => Err(NoAddress {
                no_such_name: none.response_code == ResponseCode::NXDomain,
                detail: match none.response_code {
                    ResponseCode::NXDomain => format!("{name} does not exist"),
                    ResponseCode::NoError => format!("{name} has no address"),
                    code => format!("the server said {code} about {name}"),
                },
            }),
            Err(error) => Err(unknown(format!("{name}: {error}"))),
        }
    }
}

fn only(server: SocketAddr) -> ResolverConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    ResolverConfig::from_name_servers(vec![NameServerConfig::new(server.ip(), true, connections.into())])
}

fn unknown(detail: String) -> NoAddress {
    NoAddress { no_such_name: false, detail }
}

fn found(lookup: &Lookup) -> Addresses {
    let list = lookup.answers().iter().filter_map(|record| match &record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    });
    let ttl = lookup.valid_until().saturating_duration_since(Instant::now());
    Addresses { list: list.take(ADDRESSES_MAX).collect(), ttl: ttl.clamp(TTL_MIN, TTL_MAX), position: None }
}

fn addresses(answer: &Result<Addresses, NoAddress>) -> &[IpAddr] {
    answer.as_ref().map_or(&[], |answer| &answer.list)
}

/// One of the first, one of the second, and so on, each once.
fn by_turns(first: &[IpAddr], second: &[IpAddr]) -> Vec<IpAddr> {
    let mut seen = HashSet::new();
    (0..first.len().max(second.len()))
        .flat_map(|at| [first.get(at), second.get(at)])
        .flatten()
        .copied()
        .filter(|address| seen.insert(*address))
        .take(ADDRESSES_MAX)
        .collect()
}
