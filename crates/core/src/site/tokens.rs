//! Who holds which partition. A token is passed on by its holder alone, and each time under a higher epoch; only of one whose
//! holder is gone a new one is made.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::table::Table;
use super::{AgentId, Leases, Members};
use crate::assign::PARTITIONS;

/// The right to fetch the hosts of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    /// Who has it.
    pub holder: AgentId,
    /// Rises when it is passed on, from 1, and more when it is made anew; 0 if nobody knows. Its highest 16 bits count how often
    /// it was made anew, the next 32 are of who made it, and the rest counts how often it was passed on since.
    pub epoch: u64,
}

/// Bits that count how often a token is passed on in one life. Beyond that it looks as if it had been made anew, which costs time
/// only.
const PASSED_BITS: u32 = 16;
/// Bits of who made it.
const MAKER_BITS: u32 = 32;

impl Token {
    /// Of which making it is: whenever there is another, all that was known of the partition may have been lost. Where two agents
    /// have made one at the same time, what was brought to the one is not with the other.
    pub fn life(self) -> u64 {
        self.epoch >> PASSED_BITS
    }

    /// The same partition's, made anew for another agent. Where two make one, that counts of whom chance has nearer to the
    /// partition.
    pub(crate) fn anew(self, holder: AgentId, partition: u16) -> Token {
        let count = (self.life() >> MAKER_BITS) + 1;
        let maker = chance(holder, partition) >> (u64::BITS - MAKER_BITS);
        Token { holder, epoch: (count << MAKER_BITS | maker) << PASSED_BITS }
    }

    /// Whether it was made anew and never passed on since.
    pub fn is_new(self) -> bool {
        self.life() > 0 && self.epoch & ((1 << PASSED_BITS) - 1) == 0
    }

    /// Whether this one counts where both were heard of: the higher epoch.
    pub(crate) fn beats(self, other: Token, partition: u16) -> bool {
        let rank = |token: Token| (token.epoch, chance(token.holder, partition), token.holder);
        self != other && rank(self) > rank(other)
    }
}

fn chance(agent: AgentId, partition: u16) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&[&agent.0[..], &partition.to_le_bytes()].concat())
}

/// What is known of all tokens.
#[derive(Clone, Debug)]
pub struct Tokens {
    table: Table<Token>,
    changes: u64,
}

/// Two that know the same are equal, however they came to it.
impl PartialEq for Tokens {
    fn eq(&self, other: &Tokens) -> bool {
        self.table == other.table
    }
}

impl Eq for Tokens {}

impl Serialize for Tokens {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.table.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Tokens, D::Error> {
        Ok(Tokens { table: Table::deserialize(from)?, changes: 0 })
    }
}

impl Tokens {
    /// As they are when a site begins.
    pub fn of(members: &Members) -> Tokens {
        let ring = members.first_ring();
        let first = |partition| match ring.owner(partition) {
            Some(holder) => Token { holder: *holder, epoch: 1 },
            None => Token::default(),
        };
        Tokens { table: (0..PARTITIONS).map(first).collect(), changes: 0 }
    }

    /// As leases have them: nobody passes them on, and their epochs are the store's.
    pub fn leased(leases: &Leases) -> Tokens {
        let mut table = vec![Token::default(); usize::from(PARTITIONS)];
        for (holder, lease) in leases.iter() {
            for partition in lease.held.iter() {
                table[usize::from(partition)] = Token { holder, epoch: 1 };
            }
        }
        Tokens { table: table.into_iter().collect(), changes: 0 }
    }

    /// The token of a partition.
    pub fn get(&self, partition: u16) -> Token {
        self.table.get(partition).unwrap_or_default()
    }

    /// Takes in what was heard of a token; says whether it is news.
    pub fn learn(&mut self, partition: u16, token: Token) -> bool {
        let Some(known) = self.table.get(partition) else { return false };
        let news = token.beats(known, partition);
        if news {
            self.table.set(partition, token);
            self.changes += 1;
        }
        news
    }

    /// Counts what was learned since it was made or read: as long as it is the same, so are all of them.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u16, Token)> + '_ {
        self.table.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_two_agents_make_at_once_are_of_different_lives() {
        let old = Token { holder: AgentId::from(1), epoch: 7 };
        let [one, other] = [2, 3].map(|agent| old.anew(AgentId::from(agent), 9));
        assert!(one.life() != other.life() && one.life() > old.life() && other.life() > old.life());
        assert!(one.beats(old, 9) && one.beats(other, 9) != other.beats(one, 9));
        let passed_on = Token { holder: AgentId::from(4), epoch: one.epoch + 1 };
        assert!(passed_on.life() == one.life() && passed_on.beats(one, 9));
        // Whichever counts, the next one made counts more.
        for token in [one, other, passed_on] {
            let next = token.anew(AgentId::from(5), 9);
            assert!([one, other, passed_on].iter().all(|token| next.beats(*token, 9)));
        }
    }

    #[test]
    fn tokens_are_read_back() {
        let mut tokens = Tokens::of(&Members::default());
        for n in 0..1_000_u16 {
            tokens.learn(n * 16, Token { holder: AgentId::from(u64::from(n) % 300), epoch: 1 << (n % 60) });
        }
        let written = serde_json::to_string(&tokens).unwrap();
        assert_eq!(serde_json::from_str::<Tokens>(&written).unwrap(), tokens);
    }

    #[test]
    fn what_is_heard_in_any_order_comes_to_the_same() {
        let heard: Vec<(u16, Token)> = (0..200u64)
            .map(|n| (n as u16 % 3, Token { holder: AgentId::from(n % 7), epoch: n * n % 11 }))
            .collect();
        let join = |order: &mut dyn Iterator<Item = &(u16, Token)>| {
            let mut tokens = Tokens::of(&Members::default());
            for (partition, token) in order {
                tokens.learn(*partition, *token);
            }
            tokens
        };
        let tokens = join(&mut heard.iter());
        assert_eq!(tokens, join(&mut heard.iter().rev()));
        assert_eq!(tokens, join(&mut heard.iter().chain(&heard)));
        let mut same = tokens.clone();
        assert!(!same.learn(0, tokens.get(0)) && same.changes() == tokens.changes());
        let next = Token { epoch: tokens.get(0).epoch + 1, ..tokens.get(0) };
        assert!(same.learn(0, next) && same.changes() > tokens.changes());
        assert_eq!(tokens.get(PARTITIONS), Token::default());
    }
}
