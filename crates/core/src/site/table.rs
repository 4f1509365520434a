//! Something of every partition. Most partitions have the same as others, so it is written down as what there is, and which of
//! that each one has.

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::assign::PARTITIONS;

/// See the module's documentation. A copy costs nothing until one of the two changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<T>(Arc<Vec<T>>);

impl<T: Clone + Default> Default for Table<T> {
    fn default() -> Table<T> {
        Table(Arc::new(vec![T::default(); usize::from(PARTITIONS)]))
    }
}

impl<T> FromIterator<T> for Table<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Table<T> {
        Table(Arc::new(all.into_iter().take(usize::from(PARTITIONS)).collect()))
    }
}

impl<T: Copy> Table<T> {
    /// What a partition has.
    pub(crate) fn get(&self, partition: u16) -> Option<T> {
        self.0.get(usize::from(partition)).copied()
    }

    /// Gives a partition something else.
    pub(crate) fn set(&mut self, partition: u16, value: T) {
        if let Some(of) = Arc::make_mut(&mut self.0).get_mut(usize::from(partition)) {
            *of = value;
        }
    }

    /// What all of them have.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, T)> + '_ {
        self.0.iter().enumerate().map(|(partition, value)| (partition as u16, *value))
    }
}

impl<T: Copy + Eq + Hash + Serialize> Serialize for Table<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut values: Vec<T> = Vec::new();
        let mut numbers: HashMap<T, u16> = HashMap::new();
        let mut which = Vec::with_capacity(self.0.len() * 2);
        for value in self.0.iter() {
            let number = match numbers.entry(*value) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    values.push(*value);
                    // There are no more of them than partitions.
                    *new.insert((values.len() - 1) as u16)
                }
            };
            which.extend_from_slice(&number.to_le_bytes());
        }
        (values, serde_bytes::Bytes::new(&which)).serialize(to)
    }
}

impl<'de, T: Copy + Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Table<T>, D::Error> {
        let (values, which) = <(Vec<T>, serde_bytes::ByteBuf)>::deserialize(from)?;
        if which.len() != usize::from(PARTITIONS) * 2 {
            return Err(D::Error::custom("a table has another number of partitions"));
        }
        let value = |number: &[u8]| {
            let number = u16::from_le_bytes([number[0], number[1]]);
            let value = values.get(usize::from(number)).copied();
            value.ok_or_else(|| D::Error::custom("a partition has something that is not there"))
        };
        Ok(Table(Arc::new(which.chunks_exact(2).map(value).collect::<Result<_, _>>()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_back() {
        let mut table: Table<u64> = Table::default();
        for n in 0..PARTITIONS {
            table.set(n, u64::from(n) % 1_500);
        }
        let copy = table.clone();
        table.set(9, u64::MAX);
        table.set(PARTITIONS, 1);
        assert_eq!((copy.get(9), table.get(9), table.get(PARTITIONS)), (Some(9), Some(u64::MAX), None));
        let written = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<Table<u64>>(&written).unwrap(), table);
        // All of them different.
        let different: Table<u64> = (0..u64::from(PARTITIONS)).collect();
        let written = serde_json::to_string(&different).unwrap();
        assert_eq!(serde_json::from_str::<Table<u64>>(&written).unwrap(), different);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let whole = usize::from(PARTITIONS) * 2;
        for (values, which) in
            [(vec![1_u64], vec![0_u8; whole - 2]), (vec![], vec![0; whole]), (vec![1], vec![1; whole])]
        {
            let written = serde_json::to_string(&(values, which)).unwrap();
            assert!(serde_json::from_str::<Table<u64>>(&written).is_err());
        }
    }
}
