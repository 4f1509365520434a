//! An agent of a site, and another one that joins it: what it hands over, and what it believes of itself and of the other.

use super::*;
use crate::assign::partition_of;
use crate::site::{AgentId, Figures, Greeting, LinkedPage, Member, Message, Terms, Token};

/// Agent 1 alone in its site; the test speaks for agent 2, which joins, and for the store.
struct Site {
    agent: Agent,
    now: Mono,
}

impl Site {
    fn new() -> Site {
        let site = first_agent(Vec::new(), false);
        let scope = Scope::new(ScopeKind::Any, Vec::new(), Vec::new());
        let mut site = Site { agent: Agent::of_site(Settings::default(), scope, site), now: Mono(1_000_000) };
        let mut out = Vec::new();
        site.agent.start(site.clock(), Stored::default(), &mut out);
        site.write(out);
        for _ in 0..2 {
            site.now = site.now + Duration::from_secs(1);
            let out = site.step(Event::Wake);
            site.write(out);
        }
        site
    }

    fn clock(&self) -> Now {
        Now { mono: self.now, wall: Wall(WALL_START + self.now.0 / 1_000) }
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.agent.step(self.clock(), event, &mut out);
        out
    }

    fn hear(&mut self, message: Message) -> Vec<Action> {
        let (from, name) = (AgentId::from(2), "two".to_owned());
        self.step(Event::Message { from, name, message: Box::new(message) })
    }

    /// Everything that is written is durable at once.
    fn write(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let Action::Write { ticket, record, .. } = action {
                let out = self.step(Event::Recorded { ticket, place: 1, record });
                self.write(out);
            }
        }
    }
}

impl Site {
    /// Agent 2 joins.
    fn meet(&mut self) {
        let (name, address) = ("two".to_owned(), "two".to_owned());
        let member = Member { name, address, capacity: 1, version: 0, life: 1, forgotten: 0 };
        let (peers, terms) = (vec!["one".to_owned()], Terms::default());
        let out = self.hear(Message::Hello(Greeting { me: AgentId::from(2), member, peers, terms }));
        self.write(out);
    }
}

/// The certificate of agent 2 says who it is, whatever it says itself.
#[test]
fn nobody_comes_under_the_number_of_another() {
    let mut site = Site::new();
    site.meet();
    let mut members = site.agent.site.members.clone();
    let mut member = members.get(AgentId::from(1)).unwrap().clone();
    (member.name, member.version) = ("two".to_owned(), u64::MAX);
    members.put(AgentId::from(1), &member);
    site.hear(Message::Members(members));
    assert_eq!(site.agent.site.members.get(AgentId::from(1)).unwrap().name, "one");
}

/// A URL arrives, its partition is frozen in the very step in which it is durable, and it goes with all others of its host:
/// nobody else is told of it.
#[test]
fn what_becomes_durable_when_its_partition_freezes_is_admitted() {
    let mut site = Site::new();
    site.meet();
    // Not all leave at once.
    let hosts = (0..9_999).filter_map(|number| Host::parse(&format!("h{number}.example")));
    let leaves = |host: &Host| {
        partition_of(host) < 256 && site.agent.site.heir(partition_of(host)) == Some(AgentId::from(2))
    };
    let host = hosts.clone().find(leaves).unwrap();
    let url = format!("http://{}/", host.as_str());
    let found = vec![Found { url, depth: 1, how: How::Link, redirects: 0 }];
    let out = site.hear(Message::Deliver {
        batch: (1, 1),
        pages: vec![LinkedPage { via: None, found, totals: Vec::new() }],
    });
    let arrived = out.into_iter().find_map(|action| match action {
        Action::Write { ticket, record, .. } => Some((ticket, record)),
        _ => None,
    });
    let (ticket, record) = arrived.unwrap();
    // From now on agent 2 can be given something; the next beat is due.
    let (members, wishes) = (site.agent.site.members.digest(), site.agent.site.wishes.digest());
    site.hear(Message::Beat {
        run: 1,
        members,
        wishes,
        holds: 0,
        figures: Figures::default(),
        full: Vec::new(),
    });
    site.hear(Message::Holds { run: 1, version: 0, partitions: Vec::new(), owes: Vec::new() });
    let may_ask = |site: &Site| site.agent.open_partitions().unwrap().contains(partition_of(&host));
    assert!(may_ask(&site));
    site.now = site.now + Duration::from_secs(2);
    let out = site.step(Event::Recorded { ticket, place: 2, record });
    assert!(!may_ask(&site), "nothing leaves");
    let admits = out.iter().find_map(|action| match action {
        Action::Admit { open, .. } => Some(open.as_deref().unwrap().contains(partition_of(&host))),
        _ => None,
    });
    assert_eq!(admits, Some(true));
}

/// A token is made anew elsewhere, and it is heard that it is back before it is heard that it was lost: the partition was held
/// all the time, and its hosts are asked again.
#[test]
fn what_is_back_before_its_loss_is_heard_of_is_asked_again() {
    let mut site = Site::new();
    site.meet();
    let partition = site.agent.site.held.iter().next().unwrap();
    let Token { epoch, .. } = site.agent.site.token(partition);
    let grant = site.hear(Message::Grant { tokens: vec![(partition, epoch + 2)] });
    let lost = Token { holder: AgentId::from(2), epoch: epoch + 1 };
    let loss = site.hear(Message::Outdated(vec![(partition, lost)]));
    assert!(!site.agent.site.may_ask(partition), "a token is kept that is another's");
    let mut written = 0;
    for action in grant.into_iter().chain(loss) {
        if let Action::Write { ticket, record, .. } = action {
            written += 1;
            site.step(Event::Recorded { ticket, place: written, record });
        }
    }
    assert_eq!(written, 2);
    assert!(site.agent.site.holds(partition) && site.agent.site.may_ask(partition));
}

impl Site {
    /// Lets so many seconds pass; says what is to be done meanwhile.
    fn wait(&mut self, secs: u64) -> Vec<Action> {
        let mut done = Vec::new();
        for _ in 0..secs {
            self.now = self.now + Duration::from_secs(1);
            let out = self.step(Event::Wake);
            done.extend(out.iter().cloned());
            self.write(out);
        }
        done
    }
}

/// An agent of a site does not end, and nobody else finds what its store has put off.
#[test]
fn what_may_be_new_is_decided_when_nothing_is_fetched() {
    let mut site = Site::new();
    let offered = Admitted { undecided: 1, ..Admitted::default() };
    site.step(Event::Decided(offered.clone()));
    let decides = |done: Vec<Action>| done.iter().filter(|action| matches!(action, Action::Decide)).count();
    assert_eq!(decides(site.wait(20)), 1, "it is asked while it has not answered");
    assert_eq!(decides(site.step(Event::Admitted(offered))), 1);
    site.step(Event::Admitted(Admitted::default()));
    assert_eq!(decides(site.wait(20)), 0);
    assert_eq!(site.agent.undecided, 0);
}

/// Who is gone may not be as gone as was said.
#[test]
fn a_token_that_was_made_anew_rests_whenever_its_holder_starts() {
    let mut site = Site::new();
    site.meet();
    let partition = site.agent.site.held.iter().next().unwrap();
    let host = (0..).filter_map(|number| Host::parse(&format!("h{number}.example")));
    let host = host.into_iter().find(|host| partition_of(host) == partition).unwrap();
    let epoch = site.agent.site.token(partition).epoch + 1;
    let token = Token { holder: AgentId::from(2), epoch };
    let out = site.step(Event::Message {
        from: AgentId::from(2),
        name: "two".into(),
        message: Box::new(Message::Outdated(vec![(partition, token)])),
    });
    site.write(out);
    assert!(!site.agent.site.holds(partition));

    // Agent 2 has said all that there is to say, and is gone.
    let members = site.agent.site.members.digest();
    let wishes = site.agent.site.wishes.digest();
    site.hear(Message::Beat { run: 1, members, wishes, holds: 0, figures: Figures::default(), full: vec![] });
    site.hear(Message::Holds { run: 1, version: 0, partitions: vec![(partition, epoch)], owes: vec![] });
    let out = site.step(Event::Control(Control::Forget(AgentId::from(2))));
    site.write(out);
    let mut made = None;
    for _ in 0..10 {
        site.wait(1);
        made = made.or(site.agent.site.holds(partition).then_some(site.now));
    }
    let made = made.unwrap();
    let rests = |site: &Site| site.agent.site.came_at(&host).is_some_and(|at| site.now < at);
    assert!(rests(&site) && site.agent.site.token(partition).is_new());

    // It is killed, and starts again from what it wrote down.
    let memo = site.agent.site.memo();
    let scope = Scope::new(ScopeKind::Any, Vec::new(), Vec::new());
    let again = first_agent(Vec::new(), false);
    let mut site = Site { agent: Agent::of_site(Settings::default(), scope, again), now: made };
    site.agent.site.remember(memo);
    site.now = site.now + Duration::from_secs(12);
    let began = site.now;
    let mut out = Vec::new();
    site.agent.start(site.clock(), Stored::default(), &mut out);
    site.write(out);
    site.wait(29);
    assert!(rests(&site) && site.agent.site.token(partition).is_new(), "it does not rest again");
    site.wait(3);
    assert!(!rests(&site) && !site.agent.site.token(partition).is_new(), "it rests for ever");
    assert!(
        site.agent.site.token(partition).holder == AgentId::from(1) && site.now.since(began).as_secs() < 40
    );
    assert!(site.agent.site.resting.is_empty());
}
