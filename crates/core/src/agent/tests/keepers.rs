//! An agent of a site, and addresses that it keeps or that another one does.

use super::*;
use crate::assign::{partition_of, partition_of_address};
use crate::politeness::GateMemo;
use crate::site::{AgentId, GivenTurn, Greeting, Member, Message, Terms, TurnMessage};

const OTHER: u64 = 2;

/// Agent 1; the test speaks for agent 2, for the store and for the web.
struct Site {
    agent: Agent,
    now: Mono,
    /// An address that agent 2 keeps in the beginning,
    ip: IpAddr,
    /// and a host there that agent 1 has.
    host: Host,
    /// What was said to agent 2 and is not about the site itself.
    said: Vec<Message>,
    in_flight: Vec<FetchId>,
}

impl Site {
    /// Agents 1 and 2 have just begun a site.
    fn new() -> Site {
        let peers = vec!["one".to_owned(), "two".to_owned()];
        let site = first_agent(peers.clone(), false);
        let scope = Scope::new(ScopeKind::Any, Vec::new(), Vec::new());
        let mut site = Site {
            agent: Agent::of_site(Settings::default(), scope, site),
            now: Mono(1_000_000),
            ip: IpAddr::from([93, 184, 216, 1]),
            host: Host::parse("a.example").unwrap(),
            said: Vec::new(),
            in_flight: Vec::new(),
        };
        let mut out = Vec::new();
        site.agent.start(site.clock(), Stored::default(), &mut out);
        site.perform(out);
        let (name, address) = ("two".to_owned(), "two".to_owned());
        let member = Member { name, address, capacity: 1, version: 0, life: 1, forgotten: 0 };
        site.hear(Message::Hello(Greeting {
            me: AgentId::from(OTHER),
            member,
            peers,
            terms: Terms::default(),
        }));
        site.run(2.5);
        site.hear(Message::Holds { run: 1, version: 0, partitions: Vec::new(), owes: Vec::new() });
        let is_others = |partition| site.agent.site.token(partition).holder == AgentId::from(OTHER);
        let ips = (1..=254).map(|last| IpAddr::from([93, 184, 216, last]));
        let ip = ips.clone().find(|ip| is_others(partition_of_address(AddressKey::of(*ip)))).unwrap();
        let hosts = (0..99).filter_map(|number| Host::parse(&format!("h{number}.example")));
        let host = hosts.clone().find(|host| !is_others(partition_of(host))).unwrap();
        (site.ip, site.host) = (ip, host);
        site
    }

    fn address(&self) -> AddressKey {
        AddressKey::of(self.ip)
    }

    fn clock(&self) -> Now {
        Now { mono: self.now, wall: Wall(WALL_START + self.now.0 / 1_000) }
    }

    fn hear(&mut self, message: Message) {
        let (from, name) = (AgentId::from(OTHER), "two".to_owned());
        self.step(Event::Message { from, name, message: Box::new(message) });
    }

    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.agent.step(self.clock(), event, &mut out);
        self.perform(out);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Write { ticket, record, .. } => {
                    self.step(Event::Recorded { ticket, place: 1, record });
                }
                Action::Take { host, .. } => {
                    let url = Url::parse(&format!("http://{}/", host.as_str())).unwrap();
                    let (how, depth, redirects, attempts) = (How::Link, 1, 0, 0);
                    let due =
                        Due { url, depth, how, redirects, attempts, via: None, found_in: 1, cash: None };
                    let taken = Taken { host, due: vec![due], left: 0, next: None, memo: None };
                    self.step(Event::Taken(taken));
                }
                Action::Resolve { host } => {
                    let answer = Ok(Addresses {
                        list: vec![self.ip],
                        ttl: Duration::from_secs(9_999),
                        position: None,
                    });
                    self.step(Event::Resolved { host, answer });
                }
                Action::Fetch(order) => self.in_flight.push(order.fetch),
                Action::Send { message, .. } if matches!(*message, Message::Turn(_)) => {
                    self.said.push(*message)
                }
                _ => {}
            }
        }
    }

    /// Lets time pass.
    fn run(&mut self, until: f64) {
        let until = Mono((until * 1e6) as u64);
        while let Some(wake) = self.agent.next_wake().filter(|wake| *wake <= until) {
            self.now = self.now.max(wake);
            self.step(Event::Wake);
        }
        self.now = until;
    }

    /// Something of the host is found.
    fn find_page(&mut self) {
        let new = vec![(self.host.clone(), 1)];
        self.step(Event::Admitted(Admitted { new, ..Admitted::default() }));
    }

    /// When it was last asked for a turn there.
    fn asked(&mut self) -> (u64, Mono) {
        let address = self.address();
        let asked = std::mem::take(&mut self.said).into_iter().rev().find_map(|message| match message {
            Message::Turn(TurnMessage::Ask { asked, turns })
                if turns.iter().any(|(of, _)| *of == address) =>
            {
                Some(asked)
            }
            _ => None,
        });
        asked.unwrap()
    }

    /// Agent 2 gives it the turn there that it asked for then.
    fn give(&mut self, asked: (u64, Mono)) {
        let (address, gate) = (self.address(), GateMemo::default());
        let turn = GivenTurn { address, asked, turn: Some((1, 1)), is_wanted: false, gate };
        self.hear(Message::Turn(TurnMessage::Given { of: (1, 0), turns: vec![turn] }));
    }

    /// The request in flight is answered.
    fn answer(&mut self, reply: Reply) {
        let (fetch, at) = (self.in_flight.pop().unwrap(), self.now);
        let result = reply.result(&Url::parse("http://a.example/robots.txt").unwrap());
        let contacted = vec![self.ip];
        self.step(Event::Fetched(Fetched { fetch, started: at, ended: at, contacted, result }));
    }

    /// The turns there that were given to agent 2.
    fn given(&mut self) -> Vec<(u64, u64)> {
        let address = self.address();
        let turns = std::mem::take(&mut self.said).into_iter().filter_map(|message| match message {
            Message::Turn(TurnMessage::Given { turns, .. }) => Some(turns),
            _ => None,
        });
        turns.flatten().filter(|given| given.address == address).filter_map(|given| given.turn).collect()
    }
}

#[test]
fn a_new_keeper_knows_which_turns_it_has_itself() {
    let mut site = Site::new();
    let address = site.address();
    site.find_page();
    let asked = site.asked();
    assert!(site.in_flight.is_empty(), "it is not its turn");
    site.give(asked);
    assert_eq!(site.in_flight.len(), 1);

    // The other one passes the token of the address on.
    let partition = partition_of_address(address);
    let epoch = site.agent.site.token(partition).epoch + 1;
    site.hear(Message::Grant { tokens: vec![(partition, epoch)] });
    site.run(4.5);
    let of = site.said.iter().rev().find_map(|message| match message {
        Message::Turn(TurnMessage::Call { of, .. }) => Some(*of),
        _ => None,
    });
    let (of, members) = (of.unwrap(), site.agent.site.members.digest());
    let asked = (1, Mono(7));
    site.hear(Message::Turn(TurnMessage::Has { of, members, asked, turns: Vec::new() }));
    site.hear(Message::Turn(TurnMessage::Ask { asked, turns: vec![(address, None)] }));
    site.run(9.0);
    assert_eq!(site.given(), [], "a request of its own is in flight");

    site.answer(status(404));
    site.run(11.0);
    assert_eq!(site.given().len(), 1);
}

/// Whoever kept the address before may have given a turn that is still on its way.
#[test]
fn who_says_which_turns_it_has_takes_none_that_it_asked_for_before() {
    let mut site = Site::new();
    let address = site.address();
    site.find_page();
    let asked = site.asked();
    let of = (1, 1);
    site.hear(Message::Holds { run: of.0, version: of.1, partitions: Vec::new(), owes: Vec::new() });
    site.hear(Message::Turn(TurnMessage::Call { of, lease: 0 }));
    assert!(
        site.said.iter().any(|message| matches!(message, Message::Turn(TurnMessage::Has { .. }))),
        "{:?}",
        site.said
    );
    let answer = |site: &mut Site, asked| {
        let gate = GateMemo::default();
        let turn = GivenTurn { address, asked, turn: Some((1, 1)), is_wanted: false, gate };
        site.hear(Message::Turn(TurnMessage::Given { of, turns: vec![turn] }));
        site.in_flight.len()
    };
    assert_eq!(answer(&mut site, asked), 0);
    site.run(5.0);
    let again = site.asked();
    assert!(again.1 > asked.1);
    assert_eq!(answer(&mut site, again), 1);
}

/// Who asks next has to know, if several hosts there ask for it.
#[test]
fn what_a_host_asked_for_is_said_when_the_turn_runs_out() {
    let mut site = Site::new();
    site.find_page();
    let asked = site.asked();
    site.give(asked);
    site.answer(status(404));
    site.run(20.0);
    site.answer(later(429, 200));
    site.run(25.0);
    let told = |said: &[Message]| {
        let said = said.iter().filter_map(|message| match message {
            Message::Turn(TurnMessage::Over(turns)) => Some(turns),
            _ => None,
        });
        said.flatten().any(|(_, _, gate)| !gate.busy.is_empty())
    };
    assert!(!told(&site.said), "it has its turn");
    site.run(80.0);
    assert!(told(&site.said), "{:?}", site.said);
}

/// What would only lead to more for one that does not keep up waits; who is silent nobody waits for.
#[test]
fn pages_wait_for_an_agent_that_does_not_keep_up() {
    let mut site = Site::new();
    let others = |number| Host::parse(&format!("n{number}.example")).unwrap();
    let is_others = |host: &Host| site.agent.site.token(partition_of(host)).holder == AgentId::from(OTHER);
    let other = (0..99).map(others).find(is_others).unwrap();
    let path = "x".repeat(1_000);
    let offer = |site: &mut Site, batch: u32| {
        let link = |number| format!("http://{}/{path}/{batch}/{number}", other.as_str());
        let found = |number| Found { url: link(number), depth: 1, how: How::Link, redirects: 0 };
        let record = Record::Seeds((0..500).map(found).collect());
        let ticket = site.agent.write(record.clone(), None, None, &mut Vec::new());
        site.step(Event::Recorded { ticket, place: 1, record: Box::new(record) });
    };
    // Some of it is on its way, which the other one does not answer.
    for batch in 0..4 {
        offer(&mut site, batch);
        assert!(!site.agent.is_backed_up(site.clock()), "{batch}");
    }
    (4..10).for_each(|batch| offer(&mut site, batch));
    assert!(site.agent.is_backed_up(site.clock()) && site.agent.status(site.clock()).backed_up);
    site.now = site.now + Duration::from_secs(10);
    assert!(!site.agent.is_backed_up(site.clock()), "it waits for one that is silent");
}
