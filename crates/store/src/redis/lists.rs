//! The lists of sites that a crawl has had, as their operators wrote them: an agent that comes later has to know whose hosts were
//! its site's all along.

use std::collections::BTreeMap;

use nephila_core::assign::slot;
use redis::{Value, cmd};

use super::RedisStore;
use super::leases::TAG;
use super::values::{fields, senseless};
use crate::Result;

impl RedisStore {
    /// Keeps the list of a version, durably, if there is none of that version yet. Gives back all that are kept.
    pub fn keep_list(&mut self, version: u64, text: &str) -> Result<BTreeMap<u64, String>> {
        let key = self.keys.lists();
        let cluster = self.cluster.get_mut();
        cluster.read([(slot(TAG), cmd("HSETNX").arg(&key).arg(version).arg(text).clone())])?;
        cluster.flush_reads()?;
        let get = cmd("HGETALL").arg(&key).clone();
        let answer = cluster.read([(slot(TAG), get)])?.pop().unwrap_or(Value::Nil);
        let mut lists = BTreeMap::new();
        for (field, value) in fields(answer)? {
            let version = String::from_utf8(field).ok().and_then(|version| version.parse().ok());
            let list = version.zip(String::from_utf8(value).ok());
            lists.extend([list.ok_or_else(|| senseless("a list of sites cannot be read"))?]);
        }
        Ok(lists)
    }
}
