//! What a site says to all others: whom is believed about whom, and what is said again.

use super::*;
use crate::federation::{Federation, Heard, Saying, Section, SiteEntry};
use crate::maps::RANGES;
use crate::maps::concerns::{Concern, Concerns, Say};

/// An agent alone in its site, of three: lima, oslo and paris, and rome, which is gone.
struct Site {
    agent: Agent,
    federation: Federation,
    now: Mono,
}

fn federation(me: &str) -> Federation {
    let site = |name: &&str| SiteEntry {
        name: (*name).to_owned(),
        gateways: vec![format!("gw.{name}:1")],
        is_gone: *name == "rome",
        ..SiteEntry::default()
    };
    let sites = ["lima", "oslo", "paris", "rome"].iter().map(site).collect();
    Federation::new(3, sites, me, []).unwrap().operated_by("paris").unwrap()
}

fn name(text: &str) -> Block {
    Block::Name(Host::parse(text).unwrap())
}

/// A section in which these are blocked.
fn blocking(names: &[&str]) -> Section {
    let mut concerns = Concerns::default();
    for text in names {
        concerns.put("any", 3, Concern::Block(name(text)), Some(Say::Yes)).unwrap();
    }
    concerns.section("any").cloned().unwrap_or_default()
}

impl Site {
    fn new(me: &str) -> Site {
        let scope = Scope::new(ScopeKind::Any, Vec::new(), Vec::new());
        let federation = federation(me);
        let agent = Agent::of_site(Settings::default(), scope, first_agent(Vec::new(), false));
        let agent = agent.in_federation(federation.clone());
        let mut site = Site { agent, federation, now: Mono(1_000_000) };
        let mut out = Vec::new();
        site.agent.start(site.clock(), Stored::default(), &mut out);
        site.run(out);
        site.later(1);
        site.later(1);
        site
    }

    fn clock(&self) -> Now {
        Now { mono: self.now, wall: Wall(WALL_START + self.now.0 / 1_000) }
    }

    /// What other sites are told; everything that is written is durable at once.
    fn run(&mut self, actions: Vec<Action>) -> Vec<(String, u64, Saying)> {
        let mut told = Vec::new();
        for action in actions {
            match action {
                Action::Write { ticket, record, .. } => {
                    told.append(&mut self.step(Event::Recorded { ticket, place: 1, record }));
                }
                Action::Say { site, call, saying, .. } => {
                    told.push((self.federation.site(site).name.clone(), call, *saying));
                }
                _ => {}
            }
        }
        told
    }

    fn step(&mut self, event: Event) -> Vec<(String, u64, Saying)> {
        let mut out = Vec::new();
        self.agent.step(self.clock(), event, &mut out);
        self.run(out)
    }

    fn later(&mut self, secs: u64) -> Vec<(String, u64, Saying)> {
        self.now = self.now + Duration::from_secs(secs);
        self.step(Event::Wake)
    }

    fn say(&mut self, what: Everywhere) -> Vec<(String, u64, Saying)> {
        self.step(Event::Control(Control::Everywhere(what)))
    }

    /// A site says this of itself or of another one.
    fn hear(&mut self, site: &str, of: &str, list: u64, part: Section) -> Option<Heard> {
        let others =
            Federation::new(list, federation("lima").sites().map(|(_, of)| of.clone()).collect(), "lima", []);
        let list = if list == 3 { self.federation.list() } else { others.unwrap().list() };
        let digests = part.digests();
        let saying = Box::new(Saying { list, of: of.to_owned(), digests, is_empty: part.is_empty(), part });
        let mut out = Vec::new();
        let event = Event::Said { call: 7, site: site.to_owned(), saying };
        self.agent.step(self.clock(), event, &mut out);
        let heard = out.iter().find_map(|action| match action {
            Action::Heard { call: 7, heard } => Some(heard.as_deref().cloned()),
            _ => None,
        });
        self.run(out);
        heard.expect("it is answered")
    }

    fn blocks(&self) -> Vec<String> {
        self.agent.blocks().map(|block| format!("{block:?}")).collect()
    }
}

#[test]
fn a_site_speaks_for_itself_and_for_those_that_are_gone() {
    let mut lima = Site::new("lima");
    assert!(lima.hear("oslo", "paris", 3, blocking(&["a.test"])).is_none(), "paris can say so itself");
    assert!(lima.hear("oslo", "lima", 3, blocking(&["a.test"])).is_none());
    assert!(lima.hear("oslo", "oslo", 4, blocking(&["a.test"])).is_none(), "it has another list");
    assert!(lima.blocks().is_empty());
    let heard = lima.hear("oslo", "oslo", 3, blocking(&["a.test"])).unwrap();
    assert!(heard.differ.is_empty() && heard.lost.is_none());
    lima.hear("oslo", "rome", 3, blocking(&["b.test"])).unwrap();
    assert_eq!(lima.agent.blocked_by(&name("a.test")), ["oslo"]);
    assert_eq!(lima.agent.blocked_by(&name("b.test")), ["rome"]);
    // Versions that nobody has, and what is not in the form of a host.
    let heard = lima.hear("paris", "paris", 3, {
        let mut concerns = Concerns::default();
        concerns.put("any", 9, Concern::Block(name("c.test")), Some(Say::Yes)).unwrap();
        concerns.section("any").cloned().unwrap()
    });
    assert_eq!(heard.unwrap().differ.len(), 1);
    let strange = Block::Address("::ffff:127.0.0.1".parse().unwrap());
    let mut concerns = Concerns::default();
    concerns.put("any", 3, Concern::Block(strange), Some(Say::Yes)).unwrap();
    let heard = lima.hear("paris", "paris", 3, concerns.section("any").cloned().unwrap());
    assert_eq!((heard.unwrap().differ.len(), lima.blocks().len()), (1, 2));
    // One that has lost what it said is told.
    let heard = lima.hear("oslo", "oslo", 3, Section::default()).unwrap();
    assert_eq!(heard.lost.as_deref(), Some(&blocking(&["a.test"])));
}

#[test]
fn what_is_said_is_told_until_it_is_heard() {
    let mut lima = Site::new("lima");
    let told = lima.say(Everywhere::Block(name("a.test")));
    assert_eq!(lima.agent.blocked_by(&name("a.test")), ["lima"]);
    // Both were asked what they know when the agent began, and have not answered.
    assert!(told.is_empty());
    lima.step(Event::Heard { call: 1, heard: None });
    let told = lima.later(2);
    let [(site, call, saying)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&**site, saying.of.as_str(), saying.part.is_empty()), ("oslo", "lima", true));
    let answer = |differ: Vec<u8>| {
        let newest = blocking(&["x.test"]).newest();
        Some(Box::new(Heard { differ, newest, lost: None }))
    };
    let told = lima.step(Event::Heard { call: *call, heard: answer((0..RANGES).collect()) });
    let [(_, call, saying)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(saying.part, blocking(&["a.test"]));
    assert!(lima.step(Event::Heard { call: *call, heard: answer(Vec::new()) }).is_empty());
    assert!(lima.later(30).is_empty(), "it has heard all");
    let told = lima.later(31);
    assert!(matches!(&told[..], [(site, ..)] if site == "oslo"), "{told:?}");
}

#[test]
fn a_site_that_has_lost_what_it_said_hears_it_and_not_otherwise() {
    let lost = |names: &[&str]| {
        let section = blocking(names);
        let differ = (0..RANGES).collect();
        Some(Box::new(Heard { differ, newest: section.newest(), lost: Some(Box::new(section)) }))
    };
    let mut lima = Site::new("lima");
    lima.step(Event::Heard { call: 1, heard: lost(&["a.test"]) });
    assert_eq!(lima.agent.blocked_by(&name("a.test")), ["lima"]);
    lima.step(Event::Heard { call: 2, heard: lost(&["b.test"]) });
    assert_eq!(lima.blocks().len(), 1, "nobody adds to what it says");
}

#[test]
fn who_may_say_what() {
    let mut lima = Site::new("lima");
    let unblock = || Everywhere::Unblock(name("a.test"));
    assert_eq!(lima.agent.may_say(&unblock()), Err(MayNotSay::NotSaid));
    assert_eq!(lima.agent.may_say(&Everywhere::Pause), Err(MayNotSay::ForTheOperator("paris".to_owned())));
    lima.hear("oslo", "oslo", 3, blocking(&["a.test"]));
    let by_others = MayNotSay::ByOthers("oslo".to_owned(), Some("paris".to_owned()));
    assert_eq!(lima.agent.may_say(&unblock()), Err(by_others.clone()));
    assert!(
        by_others.to_string().ends_with("can be taken back there, or by paris, the operator"),
        "{by_others}"
    );
    lima.say(Everywhere::Block(name("a.test")));
    lima.say(unblock());
    assert_eq!(lima.agent.blocked_by(&name("a.test")), ["oslo"]);

    let mut paris = Site::new("paris");
    paris.hear("oslo", "oslo", 3, blocking(&["a.test"]));
    assert_eq!(paris.agent.may_say(&unblock()), Ok(()));
    paris.say(unblock());
    assert!(paris.blocks().is_empty());
    paris.say(Everywhere::Pause);
    assert!(paris.agent.status(paris.clock()).paused && paris.agent.is_paused_by_all());
    paris.say(Everywhere::Resume);
    assert!(!paris.agent.status(paris.clock()).paused);
    let alone = Agent::new(Settings::default(), Scope::new(ScopeKind::Any, Vec::new(), Vec::new()));
    assert_eq!(alone.may_say(&Everywhere::Pause), Err(MayNotSay::Alone));
}

#[test]
fn the_operator_has_all_wait_longer() {
    let mut lima = Site::new("lima");
    let mut concerns = Concerns::default();
    concerns.put("paris", 3, Concern::Delay, Some(Say::Millis(90_000))).unwrap();
    let delay = concerns.section("paris").cloned().unwrap();
    lima.hear("oslo", "oslo", 3, delay.clone());
    let index = lima.agent.bench.index(&Host::parse("a.test").unwrap());
    assert!(lima.agent.delay(index) < Duration::from_secs(90), "oslo is not the operator");
    lima.hear("paris", "paris", 3, delay);
    assert_eq!(lima.agent.delay(index), Duration::from_secs(90));
}
