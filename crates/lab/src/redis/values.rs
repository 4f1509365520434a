//! What a simulated server keeps, and the commands that the store uses.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

use hashbrown::HashMap;

use super::simulated::ServerBug;

/// Bytes that a primary, its replica, what is on its way between them, and answers have in common.
pub(super) type Text = Arc<[u8]>;

/// What a key holds.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Text(Text),
    Hash(Fields),
    List(VecDeque<Text>),
}

/// The fields of a hash, in order: most have few, and are copied often.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(Text, Text)>);

impl Fields {
    fn find(&self, field: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(field))
    }

    fn get(&self, field: &[u8]) -> Option<&Text> {
        self.find(field).ok().map(|at| &self.0[at].1)
    }

    fn set(&mut self, field: &[u8], value: Text) {
        match self.find(field) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (field.into(), value)),
        }
    }

    fn remove(&mut self, field: &[u8]) {
        if let Ok(at) = self.find(field) {
            self.0.remove(at);
        }
    }
}

/// What a server answers.
pub(super) enum Answer {
    Text(Text),
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

    fn of(text: Option<&Text>) -> Answer {
        text.map_or(Answer::Nothing, |text| Answer::Text(Arc::clone(text)))
    }
}

/// Whether a command writes.
pub(super) fn is_write(command: &[u8]) -> bool {
    matches!(
        command,
        b"HSET" | b"HDEL" | b"SET" | b"RPUSH" | b"LPUSH" | b"LTRIM" | b"LREM" | b"LSET" | b"UNLINK"
    )
}

/// All keys of a server. What they hold a primary and its replica share until one of them changes it.
#[derive(Clone, Default)]
pub(super) struct Values {
    /// Nobody asks in which order they are.
    keys: HashMap<Text, Arc<Data>>,
    /// Those that the last command has written, each once.
    pub(super) touched: Vec<Text>,
}

fn number(word: &[u8]) -> i64 {
    std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn decimal(number: i64) -> Text {
    number.to_string().into_bytes().into()
}

impl Values {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Arc<Data>> {
        self.keys.get(key)
    }

    pub(super) fn put(&mut self, key: Text, data: Option<Arc<Data>>) {
        match data {
            Some(data) => drop(self.keys.insert(key, data)),
            None => drop(self.keys.remove(&key)),
        }
    }

    fn touch(&mut self, key: &[u8]) {
        if !self.touched.iter().any(|other| **other == *key) {
            self.touched.push(key.into());
        }
    }

    fn data(&mut self, key: &[u8]) -> &mut Data {
        let nothing = || Arc::new(Data::Text(Text::default()));
        Arc::make_mut(self.keys.entry(key.into()).or_insert_with(nothing))
    }

    fn hash(&mut self, key: &[u8]) -> &mut Fields {
        let data = self.data(key);
        if !matches!(data, Data::Hash(_)) {
            *data = Data::Hash(Fields::default());
        }
        match data {
            Data::Hash(hash) => hash,
            _ => unreachable!("it has just become one"),
        }
    }

    fn list(&mut self, key: &[u8]) -> &mut VecDeque<Text> {
        let data = self.data(key);
        if !matches!(data, Data::List(_)) {
            *data = Data::List(VecDeque::new());
        }
        match data {
            Data::List(list) => list,
            _ => unreachable!("it has just become one"),
        }
    }

    fn field(&self, key: &[u8], field: &[u8]) -> Option<&Text> {
        match self.keys.get(key).map(|data| &**data) {
            Some(Data::Hash(hash)) => hash.get(field),
            _ => None,
        }
    }

    fn field_number(&self, key: &[u8], field: &[u8]) -> i64 {
        self.field(key, field).map_or(0, |value| number(value))
    }

    fn set_field(&mut self, key: &[u8], field: &[u8], value: Text) {
        self.hash(key).set(field, value);
        self.touch(key);
    }

    /// `RAISE` of the store.
    pub(super) fn raise(&mut self, key: &[u8]) -> Answer {
        self.touch(key);
        let hash = self.hash(key);
        let epoch = hash.get(b"e").map_or(0, |epoch| number(epoch)) + 1;
        hash.set(b"e", decimal(epoch));
        if hash.get(b"v").is_none() {
            hash.set(b"v", decimal(0));
        }
        Answer::List([&b"e"[..], b"v", b"s", b"t"].map(|field| Answer::of(hash.get(field))).into())
    }

    /// `SWAP` of the store.
    pub(super) fn swap(&mut self, key: &[u8], wishes: &[u8], words: &[&[u8]]) -> Answer {
        let version = self.field_number(key, b"v");
        if version != number(words[0]) {
            return Answer::Number(0);
        }
        self.set_field(key, b"v", decimal(version + 1));
        if !words[1].is_empty() {
            *self.data(wishes) = Data::Text(words[1].into());
            self.touch(wishes);
        }
        let (set, removed) = words[3..].split_at(number(words[2]) as usize);
        for pair in set.chunks(2) {
            self.set_field(key, pair[0], pair[1].into());
        }
        for field in removed {
            self.hash(key).remove(field);
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
                self.set_field(keys[0], b"v", decimal(version));
                return Answer::Number(0);
            }
            if version < was {
                return Answer::Error(format!("BEHIND the version is {version}"));
            }
        }
        self.set_field(keys[0], b"v", decimal(was + 1));
        self.set_field(keys[0], b"s", words[2].into());
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
        self.touch(key);
        let texts = words.iter().map(|word| Text::from(*word));
        match command {
            b"SET" => *self.data(key) = Data::Text(words[0].into()),
            b"UNLINK" => drop(self.keys.remove(key)),
            b"HSET" => {
                let hash = self.hash(key);
                words.chunks(2).for_each(|pair| hash.set(pair[0], pair[1].into()));
            }
            b"HDEL" => words.iter().for_each(|field| self.hash(key).remove(field)),
            b"RPUSH" => self.list(key).extend(texts),
            b"LPUSH" => texts.for_each(|text| self.list(key).push_front(text)),
            b"LTRIM" => {
                let gone = (number(words[0]) as usize).min(self.list(key).len());
                self.list(key).drain(..gone);
            }
            b"LREM" => {
                let list = self.list(key);
                if let Some(at) = list.iter().position(|other| **other == *words[1]) {
                    list.remove(at);
                }
            }
            b"LSET" => {
                if let Some(entry) = self.list(key).get_mut(number(words[0]) as usize) {
                    *entry = words[1].into();
                }
            }
            _ => unreachable!("the store does not use {command:?}"),
        }
        let is_empty = match self.keys.get(key).map(|data| &**data) {
            Some(Data::Hash(hash)) => hash.0.is_empty(),
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
        match (*command, self.keys.get(*key).map(|data| &**data)) {
            (b"GET", Some(Data::Text(text))) => Answer::Text(Arc::clone(text)),
            (b"HGET", Some(Data::Hash(hash))) => Answer::of(hash.get(words[0])),
            (b"HMGET", Some(Data::Hash(hash))) => {
                Answer::List(words.iter().map(|field| Answer::of(hash.get(field))).collect())
            }
            (b"HMGET", _) => Answer::List(words.iter().map(|_| Answer::Nothing).collect()),
            (b"HGETALL", Some(Data::Hash(hash))) => {
                let is_outbox = key.ends_with(b"}o");
                let hash = hash.0.iter().filter(|_| !is_outbox || bug != Some(ServerBug::LosesOutboxes));
                let both = hash.flat_map(|(field, value)| [field, value]);
                Answer::List(both.map(|word| Answer::Text(Arc::clone(word))).collect())
            }
            (b"LRANGE", Some(Data::List(list))) => {
                let (from, to) = (number(words[0]) as usize, number(words[1]));
                let end = if to < 0 { list.len() } else { (to as usize + 1).min(list.len()) };
                let texts = list.range(from.min(end)..end).map(|word| Answer::Text(Arc::clone(word)));
                Answer::List(texts.collect())
            }
            (b"LINDEX", Some(Data::List(list))) => Answer::of(list.get(number(words[0]) as usize)),
            (b"HGETALL" | b"LRANGE", _) => Answer::List(Vec::new()),
            (b"GET" | b"HGET" | b"LINDEX", _) => Answer::Nothing,
            (other, _) => Answer::Error(format!("ERR {} is not known here", String::from_utf8_lossy(other))),
        }
    }
}
