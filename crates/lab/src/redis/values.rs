//! What a simulated server keeps, and the commands that the store uses.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::Write;

use super::simulated::ServerBug;

/// What a key holds.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(VecDeque<Vec<u8>>),
}

/// What a server answers.
pub(super) enum Answer {
    Text(Vec<u8>),
    Number(i64),
    Nothing,
    List(Vec<Answer>),
    Error(String),
}

impl Answer {
    /// Writes it as it crosses the wire.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        // Writing to memory cannot fail.
        let _ = match self {
            Answer::Text(text) => {
                let _ = write!(out, "${}\r\n", text.len());
                out.extend_from_slice(text);
                out.write_all(b"\r\n")
            }
            Answer::Number(number) => write!(out, ":{number}\r\n"),
            Answer::Nothing => out.write_all(b"$-1\r\n"),
            Answer::Error(error) => write!(out, "-{error}\r\n"),
            Answer::List(list) => {
                let begun = write!(out, "*{}\r\n", list.len());
                list.iter().for_each(|answer| answer.write_to(out));
                begun
            }
        };
    }

    fn of(text: Option<&Vec<u8>>) -> Answer {
        text.map_or(Answer::Nothing, |text| Answer::Text(text.clone()))
    }
}

/// Whether a command writes.
pub(super) fn is_write(command: &[u8]) -> bool {
    matches!(
        command,
        b"HSET" | b"HDEL" | b"SET" | b"RPUSH" | b"LPUSH" | b"LTRIM" | b"LREM" | b"LSET" | b"UNLINK"
    )
}

/// All keys of a server.
#[derive(Clone, Default)]
pub(super) struct Values {
    /// Nobody asks in which order they are.
    keys: HashMap<Vec<u8>, Data>,
    /// Those that the last command has written.
    pub(super) touched: BTreeSet<Vec<u8>>,
}

fn number(word: &[u8]) -> i64 {
    std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).unwrap_or(0)
}

impl Values {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Data> {
        self.keys.get(key)
    }

    pub(super) fn put(&mut self, key: Vec<u8>, data: Option<Data>) {
        match data {
            Some(data) => drop(self.keys.insert(key, data)),
            None => drop(self.keys.remove(&key)),
        }
    }

    fn hash(&mut self, key: &[u8]) -> &mut BTreeMap<Vec<u8>, Vec<u8>> {
        let data = self.keys.entry(key.to_vec()).or_insert_with(|| Data::Hash(BTreeMap::new()));
        if !matches!(data, Data::Hash(_)) {
            *data = Data::Hash(BTreeMap::new());
        }
        match data {
            Data::Hash(hash) => hash,
            _ => unreachable!("it has just become one"),
        }
    }

    fn list(&mut self, key: &[u8]) -> &mut VecDeque<Vec<u8>> {
        let data = self.keys.entry(key.to_vec()).or_insert_with(|| Data::List(VecDeque::new()));
        if !matches!(data, Data::List(_)) {
            *data = Data::List(VecDeque::new());
        }
        match data {
            Data::List(list) => list,
            _ => unreachable!("it has just become one"),
        }
    }

    fn field(&self, key: &[u8], field: &[u8]) -> Option<&Vec<u8>> {
        match self.keys.get(key) {
            Some(Data::Hash(hash)) => hash.get(field),
            _ => None,
        }
    }

    fn field_number(&self, key: &[u8], field: &[u8]) -> i64 {
        self.field(key, field).map_or(0, |value| number(value))
    }

    fn set_field(&mut self, key: &[u8], field: &[u8], value: Vec<u8>) {
        self.hash(key).insert(field.to_vec(), value);
        self.touched.insert(key.to_vec());
    }

    /// `RAISE` of the store.
    pub(super) fn raise(&mut self, key: &[u8]) -> Answer {
        self.touched.insert(key.to_vec());
        let hash = self.hash(key);
        let epoch = hash.get(&b"e"[..]).map_or(0, |epoch| number(epoch)) + 1;
        hash.insert(b"e".to_vec(), epoch.to_string().into_bytes());
        hash.entry(b"v".to_vec()).or_insert_with(|| b"0".to_vec());
        Answer::List([&b"e"[..], b"v", b"s", b"t"].map(|field| Answer::of(hash.get(field))).into())
    }

    /// `SWAP` of the store.
    pub(super) fn swap(&mut self, key: &[u8], wishes: &[u8], words: &[&[u8]]) -> Answer {
        let version = self.field_number(key, b"v");
        if version != number(words[0]) {
            return Answer::Number(0);
        }
        self.set_field(key, b"v", (version + 1).to_string().into_bytes());
        if !words[1].is_empty() {
            self.keys.insert(wishes.to_vec(), Data::Text(words[1].to_vec()));
            self.touched.insert(wishes.to_vec());
        }
        let (set, removed) = words[3..].split_at(number(words[2]) as usize);
        for pair in set.chunks(2) {
            self.set_field(key, pair[0], pair[1].to_vec());
        }
        for field in removed {
            self.hash(key).remove(*field);
        }
        Answer::Number(1)
    }

    /// The script of commits.
    pub(super) fn commit(&mut self, words: &[&[u8]], bug: Option<ServerBug>) -> Answer {
        let count = number(words[0]) as usize;
        let (keys, words) = words[1..].split_at(count);
        let (epoch, version) = (self.field_number(keys[0], b"e"), self.field_number(keys[0], b"v"));
        let was = number(words[1]);
        if bug != Some(ServerBug::IgnoresEpochs) {
            if epoch == 0 {
                return Answer::Error("BEHIND nothing is there any more".into());
            }
            if epoch != number(words[0]) {
                return Answer::Error(format!("FENCED the epoch is {epoch}"));
            }
            if version > was {
                self.set_field(keys[0], b"v", version.to_string().into_bytes());
                return Answer::Number(0);
            }
            if version < was {
                return Answer::Error(format!("BEHIND the version is {version}"));
            }
        }
        self.set_field(keys[0], b"v", (was + 1).to_string().into_bytes());
        self.set_field(keys[0], b"s", words[2].to_vec());
        let mut at = 3;
        while at < words.len() {
            let key = keys[number(words[at + 1]) as usize - 1];
            let end = at + 3 + number(words[at + 2]) as usize;
            self.write(words[at], key, &words[at + 3..end]);
            at = end;
        }
        Answer::Number(1)
    }

    fn write(&mut self, command: &[u8], key: &[u8], words: &[&[u8]]) {
        self.touched.insert(key.to_vec());
        match command {
            b"SET" => drop(self.keys.insert(key.to_vec(), Data::Text(words[0].to_vec()))),
            b"UNLINK" => drop(self.keys.remove(key)),
            b"HSET" => {
                let pairs = words.chunks(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec()));
                self.hash(key).extend(pairs);
            }
            b"HDEL" => words.iter().for_each(|field| drop(self.hash(key).remove(*field))),
            b"RPUSH" => self.list(key).extend(words.iter().map(|word| word.to_vec())),
            b"LPUSH" => words.iter().for_each(|word| self.list(key).push_front(word.to_vec())),
            b"LTRIM" => {
                let gone = (number(words[0]) as usize).min(self.list(key).len());
                self.list(key).drain(..gone);
            }
            b"LREM" => {
                let list = self.list(key);
                if let Some(at) = list.iter().position(|other| *other == words[1]) {
                    list.remove(at);
                }
            }
            b"LSET" => {
                if let Some(entry) = self.list(key).get_mut(number(words[0]) as usize) {
                    *entry = words[1].to_vec();
                }
            }
            _ => unreachable!("the store does not use {command:?}"),
        }
        let is_empty = match self.keys.get(key) {
            Some(Data::Hash(hash)) => hash.is_empty(),
            Some(Data::List(list)) => list.is_empty(),
            _ => false,
        };
        if is_empty {
            self.keys.remove(key);
        }
    }

    /// A command that reads.
    pub(super) fn command(&mut self, words: &[&[u8]], bug: Option<ServerBug>) -> Answer {
        let [command, key, words @ ..] = words else { return Answer::Error("ERR what?".into()) };
        match (*command, self.keys.get(*key)) {
            (b"GET", Some(Data::Text(text))) => Answer::Text(text.clone()),
            (b"HGET", Some(Data::Hash(hash))) => Answer::of(hash.get(words[0])),
            (b"HMGET", Some(Data::Hash(hash))) => {
                Answer::List(words.iter().map(|field| Answer::of(hash.get(*field))).collect())
            }
            (b"HMGET", _) => Answer::List(words.iter().map(|_| Answer::Nothing).collect()),
            (b"HGETALL", Some(Data::Hash(hash))) => {
                let is_outbox = key.ends_with(b"}o");
                let hash = hash.iter().filter(|_| !is_outbox || bug != Some(ServerBug::LosesOutboxes));
                let both = hash.flat_map(|(field, value)| [field, value]);
                Answer::List(both.map(|word| Answer::Text(word.clone())).collect())
            }
            (b"LRANGE", Some(Data::List(list))) => {
                let (from, to) = (number(words[0]) as usize, number(words[1]));
                let end = if to < 0 { list.len() } else { (to as usize + 1).min(list.len()) };
                Answer::List(list.range(from.min(end)..end).map(|word| Answer::Text(word.clone())).collect())
            }
            (b"LINDEX", Some(Data::List(list))) => Answer::of(list.get(number(words[0]) as usize)),
            (b"HGETALL" | b"LRANGE", _) => Answer::List(Vec::new()),
            (b"GET" | b"HGET" | b"LINDEX", _) => Answer::Nothing,
            (other, _) => Answer::Error(format!("ERR {} is not known here", String::from_utf8_lossy(other))),
        }
    }
}
