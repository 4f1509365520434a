//! The one script that writes: a commit to a partition.
//!
//! Who holds a partition is the only one to write to it, so all is decided here, from what was read, and the script only checks
//! that nothing has come between: that the epoch is still ours and that the partition is at the version that was read. Only
//! then does it write, all of it or nothing. A commit that was done already is not done again, so that one whose fate is
//! unknown is simply repeated.

use std::collections::HashMap;

use redis::{Cmd, cmd};

use super::values::{Entry, Sums};

/// KEYS: the partition, and all that is written. ARGV: epoch and version of the partition, its new sums, and then for each
/// thing to write the command, the number of its key, how many words follow, and these.
///
/// One that was done already writes, too, if only what is there: WAIT speaks of what its own connection has written, and the
/// one over which it was done may be gone.
///
/// The first write is one that a server refuses when its memory is full, so that nothing of the others is done then.
pub(super) const SCRIPT: &str = "\
local at = redis.call('HMGET', KEYS[1], 'e', 'v')
if not at[1] then return redis.error_reply('BEHIND nothing is there any more') end
if at[1] ~= ARGV[1] then return redis.error_reply('FENCED the epoch is ' .. tostring(at[1])) end
local is, was = tonumber(at[2]), tonumber(ARGV[2])
if is > was then redis.call('HSET', KEYS[1], 'v', at[2]) return 0 end
if is < was then return redis.error_reply('BEHIND the version is ' .. at[2]) end
redis.call('HSET', KEYS[1], 'v', was + 1, 's', ARGV[3])
local i, n = 4, #ARGV
while i < n do
  local words = tonumber(ARGV[i + 2])
  redis.call(ARGV[i], KEYS[tonumber(ARGV[i + 1])], unpack(ARGV, i + 3, i + 2 + words))
  i = i + 3 + words
end
return 1
";

/// Words of one command at most: the script has them all on its stack.
const WORDS_MAX: usize = 1_000;

/// What is to be written to a partition at once. All that it comes to is in it, so that one that cannot be made to the end
/// leaves nothing behind.
#[derive(Default)]
pub(super) struct Plan {
    /// What the partition comes to then: so much more,
    pub(super) added: Sums,
    /// and so much less.
    pub(super) removed: Sums,
    /// What it makes of leaves of its host.
    pub(super) leaves: HashMap<u32, Vec<(u64, Entry)>>,
    keys: Vec<String>,
    numbers: HashMap<String, usize>,
    words: Vec<Vec<u8>>,
}

impl Plan {
    /// Adds a command, whose words may be any number as long as each `step` of them make sense alone.
    pub(super) fn add(&mut self, command: &str, key: String, step: usize, words: Vec<Vec<u8>>) {
        let number = *self.numbers.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            self.keys.len() + 1
        });
        let at_once = WORDS_MAX / step.max(1) * step.max(1);
        let mut words = words.into_iter().peekable();
        loop {
            let part: Vec<Vec<u8>> = words.by_ref().take(at_once).collect();
            for word in [command.to_owned(), number.to_string(), part.len().to_string()] {
                self.words.push(word.into_bytes());
            }
            self.words.extend(part);
            if words.peek().is_none() {
                return;
            }
        }
    }

    /// HSET of one field.
    pub(super) fn set_field(&mut self, key: String, field: &[u8], value: Vec<u8>) {
        self.add("HSET", key, 2, vec![field.to_vec(), value]);
    }

    /// HDEL of one field.
    pub(super) fn remove_field(&mut self, key: String, field: &[u8]) {
        self.add("HDEL", key, 1, vec![field.to_vec()]);
    }

    /// SET.
    pub(super) fn set(&mut self, key: String, value: Vec<u8>) {
        self.add("SET", key, 1, vec![value]);
    }

    /// RPUSH of all, in order.
    pub(super) fn push(&mut self, key: String, values: Vec<Vec<u8>>) {
        if !values.is_empty() {
            self.add("RPUSH", key, 1, values);
        }
    }

    /// DEL.
    pub(super) fn remove(&mut self, key: String) {
        self.add("UNLINK", key, 1, Vec::new());
    }

    /// How much it is: words, which say how long the script takes.
    pub(super) fn words(&self) -> usize {
        self.words.len()
    }

    /// As a command.
    pub(super) fn command(&self, sha: &str, partition: &str, epoch: u64, version: u64, sums: &[u8]) -> Cmd {
        let mut commit = cmd("EVALSHA");
        commit.arg(sha).arg(self.keys.len() + 1).arg(partition).arg(&self.keys);
        commit.arg(epoch).arg(version).arg(sums).arg(&self.words);
        commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_each_key_once_and_splits_what_is_long() {
        let mut plan = Plan::default();
        plan.set("a".to_owned(), b"1".to_vec());
        plan.push("b".to_owned(), vec![vec![7]; WORDS_MAX + 1]);
        plan.remove("a".to_owned());
        assert_eq!(plan.keys, ["a", "b"]);
        assert_eq!(plan.words(), 4 + (3 + WORDS_MAX) + (3 + 1) + 3);
        let text = |at: usize| String::from_utf8(plan.words[at].clone()).unwrap();
        assert_eq!([text(0), text(1), text(2), text(3)], ["SET", "2", "1", "1"]);
        assert_eq!([text(4), text(5), text(6)], ["RPUSH", "3", &WORDS_MAX.to_string()]);
    }
}
