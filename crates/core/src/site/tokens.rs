//! Who holds which partition. A token is passed on by its holder alone, and each time under a higher epoch; only of one whose
//! holder is gone a new one is made.

use serde::{Deserialize, Serialize};

use super::{AgentId, Leases, Members};
use crate::assign::PARTITIONS;

/// The right to fetch the hosts of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Who has it.
    pub holder: AgentId,
    /// Rises when it is passed on, from 1, and more when it is made anew; 0 if nobody knows.
    pub epoch: u32,
}

/// How often a token may be passed on in one life. Beyond that it looks as if it had been made anew, which costs time only.
const LIFE: u32 = 1 << 16;

impl Token {
    /// How often it has been made anew: so often all that was known of the partition may have been lost.
    pub fn life(self) -> u32 {
        self.epoch / LIFE
    }

    /// The same partition's, made anew for another agent.
    pub(crate) fn anew(self, holder: AgentId) -> Token {
        Token { holder, epoch: (self.life() + 1).saturating_mul(LIFE) }
    }

    /// Whether this one counts where both were heard of: the higher epoch; and where two agents made one of the same epoch, that
    /// of whom chance has nearer to the partition.
    pub(crate) fn beats(self, other: Token, partition: u16) -> bool {
        let rank = |token: Token| {
            let bytes = [&token.holder.0[..], &partition.to_le_bytes()].concat();
            (token.epoch, xxhash_rust::xxh3::xxh3_64(&bytes), token.holder)
        };
        self != other && rank(self) > rank(other)
    }
}

/// What is known of all tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    table: Vec<Token>,
}

impl Tokens {
    /// As they are when a site begins.
    pub fn of(members: &Members) -> Tokens {
        let ring = members.first_ring();
        let first = |partition| match ring.owner(partition) {
            Some(holder) => Token { holder: *holder, epoch: 1 },
            None => Token::default(),
        };
        Tokens { table: (0..PARTITIONS).map(first).collect() }
    }

    /// As leases have them: nobody passes them on, and their epochs are the store's.
    pub fn leased(leases: &Leases) -> Tokens {
        let mut table = vec![Token::default(); usize::from(PARTITIONS)];
        for (holder, lease) in leases.iter() {
            for partition in lease.held.iter() {
                table[usize::from(partition)] = Token { holder, epoch: 1 };
            }
        }
        Tokens { table }
    }

    /// The token of a partition.
    pub fn get(&self, partition: u16) -> Token {
        self.table.get(usize::from(partition)).copied().unwrap_or_default()
    }

    /// Takes in what was heard of a token; says whether it is news.
    pub fn learn(&mut self, partition: u16, token: Token) -> bool {
        let Some(known) = self.table.get_mut(usize::from(partition)) else { return false };
        let news = token.beats(*known, partition);
        if news {
            *known = token;
        }
        news
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u16, Token)> + '_ {
        self.table.iter().enumerate().map(|(partition, token)| (partition as u16, *token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_heard_in_any_order_comes_to_the_same() {
        let heard: Vec<(u16, Token)> = (0..200u64)
            .map(|n| (n as u16 % 3, Token { holder: AgentId::from(n % 7), epoch: (n * n % 11) as u32 }))
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
        assert!(!tokens.clone().learn(0, tokens.get(0)));
        assert_eq!(tokens.get(PARTITIONS), Token::default());
    }
}
