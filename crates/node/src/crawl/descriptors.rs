//! How many descriptors the process may have, and what they are for: fetches take what is left when store, archive and peers have
//! theirs. Those cannot do with fewer, and a fetch can wait.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::CrawlError;
use crate::config::Config;

/// For a store and an archive with all their files, names, the control socket, figures, and what a runtime has.
const OF_ALL: usize = 128;
/// For each thread that archives.
const OF_SHARD: usize = 8;
/// For the agents of a site: those who connect, with a certificate or not yet.
const OF_SITE: usize = 256;
/// For other sites.
const OF_GATEWAY: usize = 384;
/// Fewer are not worth a crawl.
const FETCHING_MIN: usize = 64;

/// What fetching may take.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// Fetches at once,
    pub(super) fetches: usize,
    /// connections that are kept,
    pub(super) idle: usize,
    /// and questions for names.
    pub(super) names: usize,
}

impl Descriptors {
    /// Raises the soft limit to the hard one, and plans with it.
    pub(super) fn plan(config: &Config, has_site: bool) -> Result<Descriptors, CrawlError> {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let usable = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        let of_site = if has_site { OF_SITE } else { 0 };
        let of_gateway = if config.site.gateway.is_some() { OF_GATEWAY } else { 0 };
        let others = OF_ALL + OF_SHARD * usize::from(config.shards()) + of_site + of_gateway;
        let usable = usable.map_or(usize::MAX, |usable| usize::try_from(usable).unwrap_or(usize::MAX));
        Descriptors::share(usable, others)
    }

    fn share(usable: usize, others: usize) -> Result<Descriptors, CrawlError> {
        let needed = others + FETCHING_MIN;
        if usable < needed {
            return Err(CrawlError::Descriptors { usable, needed });
        }
        let rest = usable - others;
        // A fetch may hold a connection and a file for its body.
        Ok(Descriptors { fetches: rest / 4, idle: rest / 4, names: rest / 8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_take_what_others_leave() {
        for (usable, expected) in [(263, None), (264, Some((16, 16, 8))), (1_024, Some((206, 206, 103)))] {
            let shared = Descriptors::share(usable, 200);
            let shared = shared.ok().map(|of| (of.fetches, of.idle, of.names));
            assert_eq!(shared, expected, "{usable}");
        }
        let error = Descriptors::share(200, 192).unwrap_err().to_string();
        assert!(error.contains("200") && error.contains("256"), "{error}");
        // No limit.
        let Descriptors { fetches, idle, names } = Descriptors::share(usize::MAX, 200).unwrap();
        assert!(2 * fetches + idle + names <= usize::MAX - 200);
    }
}
