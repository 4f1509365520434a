//! How the servers of a cluster fare, as they say themselves: for whoever watches them. Nothing depends on it.

use std::collections::HashMap;
use std::io;

use redis::cmd;

use super::cluster::{Cluster, ClusterOptions};
use super::link::Link;
use super::safety::text;
use crate::Result;

/// What a primary says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFigures {
    /// Where it is.
    pub node: String,
    /// Memory that it uses.
    pub memory_bytes: u64,
    /// What it may use; 0 if there is no limit.
    pub memory_bytes_max: u64,
    /// Replicas of it that are in step.
    pub replicas: u64,
    /// How much the one that is furthest behind has not confirmed yet; `None` if there is none.
    pub lag_bytes: Option<u64>,
}

/// Connections of their own to the primaries, so that nobody waits for what is asked here.
pub struct RedisServers {
    cluster: Cluster,
    options: ClusterOptions,
    links: HashMap<String, Link>,
}

impl RedisServers {
    /// Finds out which servers there are.
    pub fn open(options: ClusterOptions) -> Result<RedisServers> {
        Ok(RedisServers { cluster: Cluster::open(options.clone())?, options, links: HashMap::new() })
    }

    /// What each primary says now. Those that do not answer are left out.
    pub fn look(&mut self) -> Vec<ServerFigures> {
        // If nobody can say which there are now, those that there were are asked.
        let _ = self.cluster.refresh();
        let primaries = self.cluster.servers().iter().filter(|(_, is_primary)| *is_primary);
        let nodes: Vec<String> = primaries.map(|(node, _)| node.clone()).collect();
        self.links.retain(|node, _| nodes.contains(node));
        nodes.into_iter().filter_map(|node| self.ask(node).ok()).collect()
    }

    fn ask(&mut self, node: String) -> io::Result<ServerFigures> {
        let mut link = match self.links.remove(&node) {
            Some(link) => link,
            None => Link::connect(&node, &self.options.link)?,
        };
        let info = text(link.ask(cmd("INFO").arg("memory").arg("replication"))?)?;
        self.links.insert(node.clone(), link);
        Ok(read(node, &info))
    }
}

/// What is of interest in the answer to INFO.
fn read(node: String, info: &str) -> ServerFigures {
    let number = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or_default()
    };
    let in_step = info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online"));
    let confirmed = |line: &str| {
        let words = line.trim().split([',', ':']);
        words.filter_map(|word| word.strip_prefix("offset=")).find_map(|offset| offset.parse::<u64>().ok())
    };
    let behind = in_step.clone().filter_map(confirmed).min();
    ServerFigures {
        memory_bytes: number("used_memory"),
        memory_bytes_max: number("maxmemory"),
        replicas: in_step.count() as u64,
        lag_bytes: behind.map(|offset| number("master_repl_offset").saturating_sub(offset)),
        node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_say_is_read() {
        let info = "# Memory\r\nused_memory:1000\r\nused_memory_human:1K\r\nmaxmemory:5000\r\n\r\n# Replication\r\n\
                    role:master\r\nconnected_slaves:3\r\nslave0:ip=10.0.0.1,port=1,state=online,offset=90,lag=0\r\n\
                    slave1:ip=10.0.0.2,port=1,state=wait_bgsave,offset=0,lag=0\r\n\
                    slave2:ip=10.0.0.3,port=1,state=online,offset=70,lag=1\r\nmaster_repl_offset:100\r\n";
        let expected = ServerFigures {
            node: "a:1".to_owned(),
            memory_bytes: 1_000,
            memory_bytes_max: 5_000,
            replicas: 2,
            lag_bytes: Some(30),
        };
        assert_eq!(read("a:1".to_owned(), info), expected);
        assert_eq!(read(String::new(), "role:slave\r\n"), ServerFigures::default());
    }
}
