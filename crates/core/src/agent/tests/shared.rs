//! An agent that shares a store: when it may ask, when others may in its place, and what it forgets.

use super::*;
use crate::assign::{PARTITIONS, Ring, partition_of, partition_of_address};
use crate::site::{AgentId, Beat, Leases, Member, Message, Partitions, Terms, TurnMessage, Wishes};

const HOST: &str = "a.example";
const ADDRESS: [u8; 4] = [93, 184, 216, 1];

/// One agent, and a store that knows one host.
struct Site {
    agent: Agent,
    leases: Leases,
    now: Mono,
    /// The store does not answer.
    is_cut: bool,
    unanswered: Vec<Beat>,
    /// Servers do not either.
    hangs: bool,
    /// Something of the host is under way.
    is_under_way: bool,
    in_flight: Option<FetchId>,
    /// When something was asked for, in seconds,
    fetches: Vec<f64>,
    /// and when it was broken off.
    abandoned: Vec<f64>,
    forgotten: u32,
    held: Partitions,
    /// Another agent, and what was said to it.
    other: AgentId,
    said: Vec<Message>,
    /// When the store was asked for what was found for others, and how much of it there is.
    looks: Vec<f64>,
    elsewhere: usize,
    /// What the other was told, and knows of.
    terms: Terms,
    wishes: Wishes,
}

impl Site {
    fn new() -> Site {
        Site::begin(false)
    }

    /// The same with a store that may not answer yet.
    fn begin(is_cut: bool) -> Site {
        let site = first_agent(Vec::new(), true);
        let settings = Settings { delay: Duration::from_secs(2), ..Settings::default() };
        let scope = Scope::new(ScopeKind::Any, Vec::new(), Vec::new());
        let mut site = Site {
            agent: Agent::of_site(settings, scope, site),
            leases: Leases::default(),
            now: Mono(1_000_000),
            is_cut,
            unanswered: Vec::new(),
            hangs: false,
            is_under_way: false,
            in_flight: None,
            fetches: Vec::new(),
            abandoned: Vec::new(),
            forgotten: 0,
            held: Partitions::default(),
            other: AgentId::from(2),
            said: Vec::new(),
            looks: Vec::new(),
            elsewhere: 0,
            terms: Terms::default(),
            wishes: Wishes::default(),
        };
        let mut out = Vec::new();
        site.agent.start(site.clock(), Stored::default(), &mut out);
        site.perform(out);
        site
    }

    fn clock(&self) -> Now {
        Now { mono: self.now, wall: Wall(WALL_START + self.now.0 / 1_000) }
    }

    fn seconds(&self) -> f64 {
        self.now.0 as f64 / 1e6
    }

    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.agent.step(self.clock(), event, &mut out);
        self.perform(out);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Shared(SharedAction::Beat(beat)) if self.is_cut => self.unanswered.push(*beat),
                Action::Shared(SharedAction::Beat(beat)) => {
                    let incarnation = self.leases.beat(&beat).ok();
                    let leases = Box::new(self.leases.clone());
                    self.step(Event::Shared(SharedEvent::Leased {
                        number: beat.number,
                        incarnation,
                        leases,
                    }));
                }
                Action::Shared(SharedAction::TakeOver { incarnation, partitions }) => {
                    self.held.add(&partitions.iter().copied().collect());
                    let stored = Stored { known: 9, queued: 9, hosts: 1, ..Stored::default() };
                    self.step(Event::Shared(SharedEvent::TookOver { incarnation, partitions, stored }));
                }
                Action::Shared(SharedAction::LetGo { incarnation, partitions }) => {
                    self.held.subtract(&partitions.iter().copied().collect());
                    let stored = Stored::default();
                    self.step(Event::Shared(SharedEvent::LetGo { incarnation, partitions, stored }));
                }
                Action::Shared(SharedAction::Forget) => {
                    self.forgotten += 1;
                    self.held = Partitions::default();
                }
                Action::Shared(SharedAction::TakeElsewhere { max }) => {
                    self.looks.push(self.seconds());
                    let found = vec![(1, found_for_others()); max.min(std::mem::take(&mut self.elsewhere))];
                    self.step(Event::Shared(SharedEvent::Elsewhere(found)));
                }
                Action::Shared(SharedAction::Mark { host }) => {
                    self.step(Event::Shared(SharedEvent::Marked { host }));
                }
                Action::Visit { .. } => {
                    let host = Host::parse(HOST).unwrap();
                    let memo = self.is_under_way.then(|| HostMemo::of_one_under_way(None));
                    let stored = StoredHost { host, known: 9, queued: 9, due: 9, next: None, memo };
                    self.step(Event::Visited(Visited { hosts: vec![stored], next: None, is_last: true }));
                }
                Action::Take { host, .. } => {
                    let url = Url::parse(&format!("http://{HOST}/{}", self.fetches.len())).unwrap();
                    let (how, depth, redirects, attempts) = (How::Link, 1, 0, 0);
                    let due =
                        Due { url, depth, how, redirects, attempts, via: None, found_in: 1, cash: None };
                    let taken = Taken { host, due: vec![due], left: 9, next: None, memo: None };
                    self.step(Event::Taken(taken));
                }
                Action::Resolve { host } => {
                    let list = vec![IpAddr::from(ADDRESS)];
                    let answer = Ok(Addresses { list, ttl: Duration::from_secs(9_999), position: None });
                    self.step(Event::Resolved { host, answer });
                }
                Action::Fetch(order) => {
                    assert!(self.now < order.begin_before, "only with a lease");
                    self.fetches.push(self.seconds());
                    self.in_flight = Some(order.fetch);
                }
                Action::Abandon(fetch) => {
                    self.abandoned.push(self.seconds());
                    self.in_flight = None;
                    self.answer(fetch, Err(FetchError { failure: Failure::NotTried, detail: String::new() }));
                }
                Action::Write { ticket, record, .. } if self.held.len() == usize::from(PARTITIONS) => {
                    self.step(Event::Recorded { ticket, place: 1, record });
                }
                Action::Write { ticket, record, .. } => {
                    self.step(Event::Shared(SharedEvent::Refused { ticket, record }));
                }
                Action::Send { message, .. } => self.said.push(*message),
                _ => {}
            }
        }
    }

    fn answer(&mut self, fetch: FetchId, result: Result<Answer, FetchError>) {
        let (started, ended) = (self.now, self.now);
        let contacted = vec![IpAddr::from(ADDRESS)];
        self.step(Event::Fetched(Fetched { fetch, started, ended, contacted, result }));
    }

    /// Lets time pass.
    fn run(&mut self, until: f64) {
        let until = Mono((until * 1e6) as u64);
        while let Some(wake) = self.agent.next_wake().filter(|wake| *wake <= until) {
            self.now = self.now.max(wake);
            self.step(Event::Wake);
            if let Some(fetch) = self.in_flight.take_if(|_| !self.hangs) {
                self.answer(fetch, page(&[]).result(&Url::parse("http://a.example/").unwrap()));
            }
        }
        self.now = until;
    }

    /// Another agent says something to the table.
    fn other(&mut self, incarnation: u64, number: u64, holds: Partitions) -> u64 {
        let member = Member {
            name: "two".into(),
            address: "two".into(),
            capacity: 1,
            version: 0,
            life: 1,
            forgotten: 0,
        };
        let (me, calendar) = (self.other, Wall(0));
        let (replaces, fences, leaves) = (self.leases.incarnation_of(me), Vec::new(), false);
        let (terms, wishes) = (self.terms, self.wishes.clone());
        let beat = Beat {
            me,
            incarnation,
            replaces,
            number,
            member,
            calendar,
            terms,
            wishes,
            holds,
            fences,
            leaves,
        };
        self.leases.beat(&beat).unwrap()
    }

    fn mine(&self) -> usize {
        self.leases.get(AgentId::from(1)).map_or(0, |lease| lease.held.len())
    }
}

#[test]
fn it_asks_only_while_its_lease_is_valid() {
    let mut site = Site::new();
    site.run(20.0);
    assert_eq!((site.mine(), site.held.len()), (usize::from(PARTITIONS), usize::from(PARTITIONS)));
    let asked = site.fetches.len();
    assert!(asked > 3, "{asked}");
    site.is_cut = true;
    site.run(60.0);
    let last = site.fetches.last().copied().unwrap();
    assert!((20.0..25.1).contains(&last), "{last}");
    assert_eq!(site.forgotten, 0, "nobody has fenced it");
    site.is_cut = false;
    site.run(70.0);
    assert!(site.fetches.len() > asked + 3);
}

#[test]
fn what_is_in_flight_at_the_end_of_the_lease_is_broken_off() {
    let mut site = Site::new();
    site.hangs = true;
    site.run(10.0);
    assert_eq!((site.fetches.len(), site.abandoned.len()), (1, 0), "renewing is enough");
    site.is_cut = true;
    site.run(30.0);
    assert_eq!(site.abandoned.len(), 1);
    assert!((14.0..15.1).contains(&site.abandoned[0]), "{:?}", site.abandoned);
}

#[test]
fn who_is_silent_for_longer_than_a_lease_is_fenced() {
    let mut site = Site::new();
    let two = site.other(0, 1, Partitions::default());
    site.other(two, 2, [3, 4].into_iter().collect());
    site.run(4.0);
    assert!(site.mine() < 10_000, "the other one is there");
    site.other(two, 3, [3, 4].into_iter().collect());
    site.run(9.0);
    assert!(site.leases.get(AgentId::from(2)).is_some(), "it was heard of five seconds ago");
    site.run(12.0);
    assert!(site.leases.get(AgentId::from(2)).is_none());
    assert_eq!(site.mine(), usize::from(PARTITIONS));

    // Who could not look meanwhile begins to count anew.
    let two = site.other(0, 9, Partitions::default());
    site.run(13.0);
    site.is_cut = true;
    site.run(40.0);
    site.is_cut = false;
    site.run(44.0);
    assert_eq!(site.leases.incarnation_of(AgentId::from(2)), two);
    site.run(50.0);
    assert_eq!(site.leases.incarnation_of(AgentId::from(2)), 0);
}

#[test]
fn who_was_fenced_forgets_all_and_joins_again() {
    let mut site = Site::new();
    site.run(10.0);
    let before = site.leases.incarnation_of(AgentId::from(1));
    site.hangs = true;
    site.run(14.0);
    assert!(site.in_flight.is_some());
    // The other one takes everything while this one stands still.
    let two = site.other(0, 1, Partitions::default());
    let number = site.leases.get(AgentId::from(1)).unwrap().number;
    let fence = vec![(AgentId::from(1), before, number)];
    let lease = site.leases.get(AgentId::from(2)).unwrap().clone();
    let (member, holds) = (lease.member, Partitions::all());
    let beat = Beat {
        me: AgentId::from(2),
        incarnation: two,
        replaces: 0,
        number: 2,
        member,
        calendar: Wall(0),
        terms: Terms::default(),
        wishes: Wishes::default(),
        holds,
        fences: fence,
        leaves: false,
    };
    site.leases.beat(&beat).unwrap();
    let pages = site.agent.status(site.clock()).totals.pages;
    site.now = Mono(40_000_000);
    site.run(41.0);
    assert_eq!((site.forgotten, site.abandoned.len()), (1, 1));
    assert!(site.leases.incarnation_of(AgentId::from(1)) > two);
    let status = site.agent.status(site.clock());
    assert_eq!((status.totals.pages, status.unsettled, status.in_flight), (pages, 0, 0), "it does not count");
    assert_eq!(site.agent.hosts(site.clock()).count(), 0, "nothing is left in memory");
}

#[test]
fn who_finds_another_process_in_its_place_ends() {
    let mut site = Site::new();
    site.run(20.0);
    site.other = AgentId::from(1);
    let incarnation = site.other(0, 1, Partitions::default());
    site.run(30.0);
    assert!(site.agent.stopping.is_some_and(|stopping| stopping.reason == StopReason::Replaced));
    assert!(site.fetches.last().is_some_and(|last| *last < 22.0), "{:?}", site.fetches);
    assert_eq!(site.leases.incarnation_of(site.other), incarnation, "it drives nobody out");
}

#[test]
fn a_host_that_another_may_still_be_asking_is_left_alone() {
    for (is_under_way, from) in [(false, 4.0), (true, 4.0 + 60.0)] {
        let mut site = Site::new();
        site.is_under_way = is_under_way;
        site.run(100.0);
        let first = site.fetches[0];
        assert!((from..from + 5.0).contains(&first), "{is_under_way}: {first}");
    }
}

#[test]
fn what_should_be_elsewhere_is_let_go_once_nothing_is_under_way() {
    let mut site = Site::new();
    site.run(10.0);
    site.hangs = true;
    site.run(14.0);
    assert!(site.in_flight.is_some());
    let two = site.other(0, 1, Partitions::default());
    for number in 2..30 {
        site.run(13.0 + number as f64);
        assert!(site.held.contains(partition_of(&Host::parse(HOST).unwrap())), "it is being asked");
        site.other(two, number, Partitions::default());
    }
    let mine = site.mine();
    assert!((4_000..13_000).contains(&mine), "{mine}");
    assert_eq!(site.held.len(), mine);
}

#[test]
fn a_turn_at_an_address_ends_with_the_lease_of_who_has_it() {
    let mut site = Site::new();
    let address = AddressKey::of(ADDRESS.into());
    // One that leaves both the host and its address to the agent.
    let stays = |other: &AgentId| {
        let ring = Ring::new([(AgentId::from(1), 1), (*other, 1)]);
        let of = [partition_of(&Host::parse(HOST).unwrap()), partition_of_address(address)];
        of.into_iter().all(|partition| ring.owner(partition) == Some(&AgentId::from(1)))
    };
    site.other = (2..).map(AgentId::from).find(stays).unwrap();
    site.run(10.0);
    let two = site.other(0, 1, Partitions::default());
    let mut number = 1;
    let mut live = |site: &mut Site, until: u64| {
        while site.now < Mono(until * 1_000_000) {
            number += 1;
            site.other(two, number, Partitions::default());
            site.run(site.seconds().floor() + 1.0);
        }
    };
    live(&mut site, 14);
    let asked = site.fetches.len();
    assert!(asked > 3, "{asked}");
    site.said.clear();
    let message =
        Box::new(Message::Turn(TurnMessage::Ask { asked: (two, Mono(7)), turns: vec![(address, None)] }));
    site.step(Event::Message { from: site.other, name: "two".into(), message });
    live(&mut site, 18);
    let is_given = |message: &Message| match message {
        Message::Turn(TurnMessage::Given { turns, .. }) => turns.iter().any(|given| given.turn.is_some()),
        _ => false,
    };
    assert!(site.said.iter().any(is_given), "{:?}", site.said);
    let asked = site.fetches.len();
    live(&mut site, 30);
    assert_eq!(site.fetches.len(), asked, "it is the other one's turn");
    assert!(site.said.iter().any(|message| matches!(message, Message::Turn(TurnMessage::Recall(_)))));
    site.run(40.0);
    assert!(site.leases.get(site.other).is_none(), "it was silent and is fenced");
    assert!(site.fetches.len() > asked, "its turn has ended with its lease");
}

#[test]
fn whoever_joins_goes_by_the_calendar_of_the_site() {
    let mut site = Site::begin(true);
    // The calendar of who came first is far behind.
    site.other(0, 1, Partitions::default());
    site.run(3.5);
    let beat = site.unanswered.pop().unwrap();
    let incarnation = site.leases.beat(&beat).ok();
    // The answer takes so long that another beat is due at once.
    site.run(4.5);
    site.is_cut = false;
    let (number, leases) = (beat.number, Box::new(site.leases.clone()));
    site.step(Event::Shared(SharedEvent::Leased { number, incarnation, leases }));
    assert!(site.leases.get(AgentId::from(1)).unwrap().number > number);
    site.run(10.0);
    assert!(site.leases.calendar < Wall(60_000), "{:?}", site.leases.calendar);
}

fn found_for_others() -> Found {
    Found { url: "http://b.example/".into(), depth: 1, how: How::Link, redirects: 0 }
}

#[test]
fn what_was_found_for_others_is_gathered() {
    let mut site = Site::new();
    site.run(10.0);
    site.looks.clear();
    for tenth in 1..=20 {
        site.agent.site.shared.as_mut().unwrap().post.wants_a_look();
        site.run(10.0 + f64::from(tenth) / 10.0);
    }
    assert!((2..=3).contains(&site.looks.len()), "{:?}", site.looks);
    // A full batch is not waited for.
    site.looks.clear();
    site.elsewhere = 600;
    site.agent.site.shared.as_mut().unwrap().post.wants_a_look();
    site.run(14.0);
    let [first, second, ..] = site.looks[..] else { panic!("{:?}", site.looks) };
    assert_eq!(first, second);
}

#[test]
fn what_one_agent_was_told_all_follow() {
    let mut site = Site::new();
    let two = site.other(0, 1, Partitions::default());
    site.run(4.0);
    site.wishes.pause(true);
    site.other(two, 2, Partitions::default());
    site.run(6.0);
    assert!(site.agent.status(site.clock()).paused);
    site.step(Event::Control(Control::Resume));
    site.run(6.2);
    assert!(!site.leases.wishes.is_paused(), "the store knows soon");
    site.other(two, 3, Partitions::default());
    site.run(8.0);
    assert!(!site.agent.status(site.clock()).paused, "what the other says is older");
}

#[test]
fn who_was_told_otherwise_than_those_who_are_there_ends() {
    for is_alive in [true, false] {
        let mut site = Site::begin(true);
        let settings = Settings { delay: Duration::from_secs(9), ..Settings::default() };
        site.terms = Terms::of(&Scope::new(ScopeKind::Any, Vec::new(), Vec::new()), &[], &settings);
        let two = site.other(0, 1, Partitions::default());
        site.is_cut = false;
        for number in 2..12 {
            site.run(number as f64);
            if is_alive && site.leases.get(site.other).is_some() {
                site.other(two, number, Partitions::default());
            }
        }
        let differing: Vec<_> = site.agent.differing().map(|of| (of.name.as_str(), of.refuses)).collect();
        assert_eq!(differing, if is_alive { vec![("two", true)] } else { vec![] });
        assert_eq!(site.agent.is_stopping(), is_alive);
        assert_eq!(
            site.leases.get(AgentId::from(1)).is_some(),
            !is_alive,
            "who is dead does not keep it out"
        );
    }
}
