//! What sites of a simulated federation say to all: hosts are blocked everywhere and unblocked, the operator has all pause and
//! wait. The operator is the first site, which is never lost.
//!
//! As soon as all agents were seen to know of a block, nobody may ask that host before somebody has taken it back. What stays
//! blocked all must know in the end, and all must know the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nephila_core::agent::{Control, Event, Everywhere};
use nephila_core::record::Block;
use nephila_core::url::Host;

use super::super::Promise;
use super::super::driver::Broken;
use super::super::random::Random;
use super::{FAULTS_FOR, Happening, Sim};

/// How often the operators look whether anything is to be taken back, when all faults are over.
const TIDY_EVERY: Duration = Duration::from_secs(100);
/// Names that are blocked and unblocked together.
const MANY: u64 = 20;

/// Something that a site says to all.
#[derive(Clone)]
pub(super) enum ToSay {
    /// Hosts are blocked or not.
    Blocks(Vec<Block>, bool),
    /// Of the operator.
    Operator(Everywhere),
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Said {
    /// Blocks that all agents were seen to know of, and that nobody has taken back since.
    known_to_all: BTreeSet<Block>,
    /// Those that nobody takes back, once all were seen to know of them.
    lasting: BTreeSet<Block>,
}

fn block(name: &str) -> Option<Block> {
    Host::parse(name).map(Block::Name)
}

/// Whether nobody is to take it back: no host of the web has such a name.
fn is_lasting(block: &Block) -> bool {
    matches!(block, Block::Name(host) if host.as_str().ends_with(".lasting.test"))
}

/// What is said, when, and at which station.
fn sayings(seed: u64, names: &[String], stations: usize, within: Duration) -> Vec<(Duration, usize, ToSay)> {
    let mut random = Random::fork(seed, "what sites say to all");
    let mut all = Vec::new();
    for number in 0..2 + random.below(6) {
        let at = Duration::from_millis(random.below(within.as_millis() as u64));
        let later = at + Duration::from_secs(1 + random.below(900));
        let mut station = || random.below(stations as u64) as usize;
        let (who, other) = (station(), station());
        match random.below(10) {
            0..4 => {
                let host = &names[random.below(names.len() as u64) as usize];
                let hosts: Vec<Block> = block(host).into_iter().collect();
                all.push((at, who, ToSay::Blocks(hosts.clone(), true)));
                all.push((later, if random.percent(50) { who } else { other }, ToSay::Blocks(hosts, false)));
            }
            4..7 => {
                let lasting = block(&format!("{number}.lasting.test")).into_iter().collect();
                all.push((at, who, ToSay::Blocks(lasting, true)));
            }
            7 => {
                let many = (0..MANY).filter_map(|of| block(&format!("{of}.{number}.gone.test")));
                let many: Vec<Block> = many.collect();
                all.push((at, who, ToSay::Blocks(many.clone(), true)));
                all.push((later, who, ToSay::Blocks(many, false)));
            }
            8 => {
                all.push((at, who, ToSay::Operator(Everywhere::Pause)));
                let later = at + Duration::from_secs(1 + random.below(200));
                all.push((later, who, ToSay::Operator(Everywhere::Resume)));
            }
            _ => {
                let delay = Duration::from_secs(10 + random.below(10));
                all.push((at, who, ToSay::Operator(Everywhere::Delay(Some(delay)))));
                all.push((later, who, ToSay::Operator(Everywhere::Delay(None))));
            }
        }
    }
    all
}

impl Sim<'_> {
    /// What is said in this run, and when; nothing so late that the crawl could not come to its end.
    pub(super) fn plan_sayings(&mut self) {
        let names: Vec<String> = self.plan.hosts.iter().map(|host| host.name.clone()).collect();
        for (at, station, saying) in sayings(self.seed, &names, self.stations.len(), FAULTS_FOR / 2) {
            self.after(at, Happening::Say(station, saying));
        }
        self.after(FAULTS_FOR, Happening::Tidy);
    }

    /// Somebody says something to all: at this station, or at the next one where it can be said.
    pub(super) fn say(&mut self, first: usize, saying: ToSay) -> Result<(), Broken> {
        match saying {
            ToSay::Blocks(blocks, is_blocked) => {
                for block in blocks {
                    if !is_blocked {
                        self.said.known_to_all.remove(&block);
                    }
                    self.say_once(
                        first,
                        match is_blocked {
                            true => Everywhere::Block(block),
                            false => Everywhere::Unblock(block),
                        },
                    )?;
                }
                Ok(())
            }
            ToSay::Operator(what) => self.say_once(first, what),
        }
    }

    fn say_once(&mut self, first: usize, what: Everywhere) -> Result<(), Broken> {
        let count = self.stations.len();
        let can_say = |station: &usize| {
            let station = &self.stations[*station];
            let process = station.process.as_ref().filter(|_| !station.is_paused);
            // One that ends would not have it written down.
            let process = process.filter(|_| station.back_after.is_none());
            process.is_some_and(|process| process.agent.may_say(&what).is_ok())
        };
        let Some(station) = (first..first + count).map(|at| at % count).find(can_say) else { return Ok(()) };
        self.reach("something said to all sites");
        self.tell(station, Event::Control(Control::Everywhere(what)))
    }

    /// When all faults are over, the operators take back what would keep the crawl from coming to its end.
    pub(super) fn tidy(&mut self) -> Result<(), Broken> {
        self.after(TIDY_EVERY, Happening::Tidy);
        if self.now < self.faults_end {
            return Ok(());
        }
        let mut blocks = BTreeSet::new();
        for station in &self.stations {
            let agent = station.process.as_ref().map(|process| &process.agent);
            let said = agent.into_iter().flat_map(|agent| agent.blocks().filter(|block| !is_lasting(block)));
            blocks.extend(said.cloned());
        }
        for first in 0..self.stations.len() {
            self.say(first, ToSay::Blocks(blocks.iter().cloned().collect(), false))?;
        }
        self.say(0, ToSay::Operator(Everywhere::Resume))?;
        self.say(0, ToSay::Operator(Everywhere::Delay(None)))
    }

    /// Notes what all agents know of by now, and says whether all know the same.
    pub(super) fn look_at_said(&mut self) -> bool {
        let left = self.stations.iter().filter(|station| !station.is_gone);
        let agents: Option<Vec<_>> =
            left.map(|station| station.process.as_ref().map(|process| &process.agent)).collect();
        let Some(agents) = agents else { return false };
        let mut known = BTreeMap::<Block, usize>::new();
        for agent in &agents {
            agent.blocks().for_each(|block| *known.entry(block.clone()).or_default() += 1);
        }
        let of_all = known.into_iter().filter(|(_, count)| *count == agents.len()).map(|(block, _)| block);
        let of_all: BTreeSet<Block> = of_all.collect();
        // Twice in a row: by then it is on their disks.
        let again = of_all.intersection(&self.said.known_to_all).filter(|block| is_lasting(block));
        self.said.lasting.extend(again.cloned());
        self.said.known_to_all = of_all;
        let digests: BTreeSet<u64> = agents.iter().map(|agent| agent.concerns_digest()).collect();
        digests.len() == 1
    }

    /// What lasted is known in the end.
    pub(super) fn check_said(&mut self) -> Result<(), Broken> {
        let lost = self.said.lasting.difference(&self.said.known_to_all).next();
        match lost {
            Some(block) => Err((Promise::AllKnow, format!("{block:?} is not blocked any more"))),
            None => Ok(()),
        }
    }

    /// A process is gone: what it knows when it is back may be less.
    pub(super) fn said_is_unsure(&mut self) {
        self.said.known_to_all.clear();
    }

    /// A host is asked.
    pub(super) fn check_blocked(&self, host: &str) -> Result<(), Broken> {
        match block(host).filter(|block| self.said.known_to_all.contains(block)) {
            Some(_) => Err((Promise::AllKnow, format!("{host} is asked, and all know that it is blocked"))),
            None => Ok(()),
        }
    }
}
