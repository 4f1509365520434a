//! An agent alone in its site, and another site whose hosts are those below `other.example`: what waits for it, and what comes
//! from it.

use super::*;
use crate::cash;
use crate::federation::{AskedRules, Batch, Federation, Release, SiteEntry};
use crate::settings::{OutboxFull, UrlOrder};
use crate::url::Origin;

const ONE: &str = "http://other.example/1";
const TWO: &str = "http://other.example/2";
const A_NEXT: &str = "http://a.example/next";

fn federation(may_send: Option<&[&str]>) -> Federation {
    let domains = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let entry = |name: &str| SiteEntry {
        name: name.to_owned(),
        gateways: vec!["gateway:1".to_owned()],
        may_send: may_send.map(domains),
        ..SiteEntry::default()
    };
    let pinned = [("example", "home"), ("other.example", "away")];
    let pinned = pinned.map(|(domain, site)| (domain.to_owned(), site.to_owned()));
    Federation::new(1, vec![entry("home"), entry("away")], "home", pinned).unwrap()
}

/// A site that has begun, on a web of these pages.
fn rig(settings: Settings, federation: Federation, web: &[(&str, Vec<Reply>)]) -> Rig {
    let mut rig = Rig::with(web);
    rig.settings = Settings { max_wait: rig.settings.max_wait, ..settings };
    let scope = Scope::new(ScopeKind::Any, Vec::new(), Vec::new());
    let site = first_agent(Vec::new(), false);
    rig.agent = Agent::of_site(rig.settings.clone(), scope, site).in_federation(federation);
    rig.start();
    rig.run(5.0);
    rig
}

#[test]
fn pages_wait_while_too_much_waits_for_a_site() {
    let settings = Settings { outbox_urls_max: 2, ..Settings::default() };
    let web = [(A, vec![page(&[ONE, TWO, "/next"])]), (A_NEXT, vec![page(&[])])];
    let mut rig = rig(settings, federation(None), &web);
    rig.find(&[A]);
    rig.run(30.0);
    assert_eq!((rig.times(A).len(), rig.times(A_NEXT).len()), (1, 0));
    let now = rig.at();
    let status = rig.agent.status(now);
    assert_eq!((status.outgoing, status.outbox_full, status.hosts.held_up), (2, true, 1));
    // robots.txt is asked for all the same, and what comes from elsewhere is taken.
    rig.find(&[B]);
    rig.run(60.0);
    assert_eq!((rig.times(B_ROBOTS).len(), rig.times(B).len()), (1, 0));
    let (post, batch) = rig.posts.pop().unwrap();
    assert_eq!(batch.found.len(), 2);
    rig.step(Event::Posted { post, taken: true });
    rig.run(90.0);
    assert_eq!((rig.times(A_NEXT).len(), rig.times(B).len()), (1, 1));
    let now = rig.at();
    let status = rig.agent.status(now);
    assert_eq!((status.outgoing, status.outbox_full, status.totals.sent), (0, false, 2));
}

#[test]
fn what_finds_no_room_is_left_out_if_that_is_wanted() {
    let settings = Settings { outbox_urls_max: 1, outbox_full: OutboxFull::Drop, ..Settings::default() };
    let web = [(A, vec![page(&[ONE, "/next"])]), (A_NEXT, vec![page(&[TWO, "/last"])])];
    let mut rig = rig(settings, federation(None), &web);
    rig.find(&[A]);
    rig.run(60.0);
    assert_eq!((rig.times(A_NEXT).len(), rig.times("http://a.example/last").len()), (1, 1));
    let now = rig.at();
    let status = rig.agent.status(now);
    assert_eq!((status.outgoing, status.totals.dropped), (1, 1));
    let found: Vec<&Found> = rig.records.iter().flat_map(Record::found).collect();
    assert!(found.iter().any(|found| found.url == ONE) && found.iter().all(|found| found.url != TWO));
}

#[test]
fn a_site_gets_its_part_of_what_may_be_sent() {
    let settings = Settings { send_rate: Some(1), ..Settings::default() };
    let links: Vec<&'static str> = vec![ONE, TWO, "http://other.example/3", "/next"];
    let web = [(A, vec![page(&links)]), (A_NEXT, vec![page(&["http://other.example/4"])])];
    let mut rig = rig(settings, federation(None), &web);
    rig.find(&[A]);
    let mut sent = Vec::new();
    for tenths in 50..200 {
        rig.run(f64::from(tenths) / 10.0);
        for (post, batch) in std::mem::take(&mut rig.posts) {
            sent.push((f64::from(tenths) / 10.0, batch.found.len()));
            rig.step(Event::Posted { post, taken: true });
        }
    }
    let [(first, 3), (second, 1)] = sent[..] else { panic!("{sent:?}") };
    assert!((first + 2.9..first + 3.5).contains(&second), "{sent:?}");
}

#[test]
fn a_site_sends_what_it_may() {
    let mut rig = rig(Settings::default(), federation(Some(&["a.example"])), &[]);
    let found = |url: &str| Found { url: url.to_owned(), depth: 1, how: How::Link, redirects: 0 };
    let found =
        ["http://a.example/", "http://www.a.example/", B, "http://aa.example/", ONE].map(found).to_vec();
    let list = federation(None).list();
    let batch = Box::new(Batch { list, found, units: Vec::new() });
    rig.step(Event::Batch { call: 7, site: "away".to_owned(), batch: batch.clone() });
    rig.run(30.0);
    assert_eq!(rig.answers, [(7, true)]);
    let arrived = rig.records.iter().find_map(|record| match record {
        Record::Arrived(arrived) => Some(arrived),
        _ => None,
    });
    let arrived = arrived.unwrap();
    let urls: Vec<&str> = arrived.found.iter().map(|found| &*found.url).collect();
    assert_eq!(urls, ["http://a.example/", "http://www.a.example/"]);
    assert_eq!((arrived.site.as_deref(), arrived.pages[0].0.as_deref()), (Some("away"), Some("site:away")));
    assert_eq!(rig.totals().received, 2);
    let other = rig.agent.other_sites(rig.at()).into_iter().find(|other| other.name == "away").unwrap();
    assert_eq!((other.received, other.refused), (5, 3));
    // Nobody else sends anything.
    rig.step(Event::Batch { call: 8, site: "nobody".to_owned(), batch });
    assert_eq!(rig.answers.last(), Some(&(8, false)));
}

/// A site is believed what it says that it has given, as far as it can be.
#[test]
fn what_a_site_gives_is_bounded() {
    let settings = || Settings { order: UrlOrder::Cash, ..Settings::default() };
    let urls = ["http://a.example/", ONE, "http://a.example/2"];
    let found = |url: &str| Found { url: url.to_owned(), depth: 1, how: How::Link, redirects: 0 };
    for (settings, units, expected) in [
        (settings(), vec![1 << 20, 7, u64::MAX], vec![1 << 20, cash::SEED]),
        (settings(), vec![], vec![0, 0]),
        (Settings::default(), vec![1 << 20, 7, 8], vec![]),
    ] {
        let mut rig = rig(settings, federation(None), &[]);
        let list = federation(None).list();
        let batch = Box::new(Batch { list, found: urls.map(found).to_vec(), units });
        rig.step(Event::Batch { call: 7, site: "away".to_owned(), batch });
        rig.run(30.0);
        let arrived = rig.records.iter().find_map(|record| match record {
            Record::Arrived(arrived) => Some(arrived),
            _ => None,
        });
        let totals = &arrived.unwrap().totals;
        assert_eq!(totals.iter().map(|total| total.units).collect::<Vec<_>>(), expected);
        assert!(totals.iter().all(|total| total.giver == cash::site_giver("away")));
    }
}

/// The list of these two by which each host is crawled by the site that is nearest to it; they are a quarter of the globe apart.
fn by_place() -> Federation {
    let entry = |name: &str, east| SiteEntry {
        name: name.to_owned(),
        gateways: vec!["gateway:1".to_owned()],
        position: Position::new(0.0, east),
        ..SiteEntry::default()
    };
    Federation::new(1, vec![entry("home", 0.0), entry("away", 90.0)], "home", []).unwrap().by_place()
}

/// The front page of a host whose registrar is this site.
fn page_of(registrar: &str) -> String {
    let federation = by_place();
    let mut names = (0..).map(|number| format!("h{number}.example{number}"));
    let name = names.find(|name| federation.owner(&Host::parse(name).unwrap()) == registrar);
    format!("http://{}/", name.unwrap())
}

/// A site that has begun, on a web that is all at one place.
fn rig_by_place(east: Option<f64>) -> Rig {
    let mut rig = rig(Settings::default(), by_place(), &[]);
    rig.position = east.and_then(|east| Position::new(0.0, east));
    rig
}

/// What the other site sends of a page.
fn sent(url: &str) -> Event {
    let found = vec![Found { url: url.to_owned(), depth: 1, how: How::Link, redirects: 0 }];
    Event::Batch {
        call: 7,
        site: "away".to_owned(),
        batch: Box::new(Batch { list: by_place().list(), found, units: Vec::new() }),
    }
}

/// What the other site says of a host that this one claims.
fn release(claim: &Claim, was_owner: bool) -> Option<Box<Release>> {
    let moved = Moved {
        hosts: vec![MovedHost { host: claim.host.clone(), memo: None, seen: Vec::new() }],
        ..Moved::default()
    };
    let (agent, at) = (AgentId::from(9), Wall(WALL_START));
    Some(Box::new(Release { was_owner, keeps: false, agent, at, moved, next: None }))
}

/// The URLs of the last batch that went to the other site, which takes it.
fn taken_away(rig: &mut Rig) -> Vec<String> {
    let Some((post, batch)) = rig.posts.pop() else { return Vec::new() };
    rig.step(Event::Posted { post, taken: true });
    batch.found.into_iter().map(|found| found.url).collect()
}

#[test]
fn a_host_goes_to_the_site_that_is_nearest() {
    let url = page_of("home");
    let mut rig = rig_by_place(Some(80.0));
    rig.find(&[&url]);
    rig.run(60.0);
    assert_eq!((rig.requests.len(), rig.totals().granted), (0, 1));
    assert_eq!(taken_away(&mut rig), [&*url]);
    // That is what it hears when it claims the host, and not of another one.
    let host = Host::of(&Url::parse(&url).unwrap());
    let other = Host::parse(&format!("www.{host}")).unwrap();
    for (host, was_owner) in [(host, true), (other, false)] {
        let claim = Box::new(Claim { list: by_place().list(), host, from: None });
        rig.step(Event::Claim { call: 3, site: "away".to_owned(), claim });
        rig.run(rig.secs() + 1.0);
        let (_, release) = rig.releases.pop().unwrap();
        assert_eq!(release.map(|release| (release.was_owner, release.keeps)), Some((was_owner, false)));
    }
    // And what is found of it later goes there.
    rig.find(&[&format!("{url}later")]);
    rig.run(rig.secs() + 60.0);
    assert_eq!(taken_away(&mut rig), [format!("{url}later")]);
    assert_eq!((rig.requests.len(), rig.totals().granted), (0, 1));
}

#[test]
fn what_is_nearest_or_nowhere_stays() {
    for east in [Some(10.0), None] {
        let url = page_of("home");
        let mut rig = rig_by_place(east);
        rig.find(&[&url]);
        rig.run(60.0);
        assert_eq!((rig.times(&url).len(), rig.posts.len(), rig.totals().granted), (1, 0, 0));
    }
}

#[test]
fn a_host_that_its_registrar_sends_is_claimed() {
    let url = page_of("away");
    let mut rig = rig_by_place(Some(10.0));
    rig.step(sent(&url));
    rig.run(30.0);
    let (call, site, claim) = rig.claims.pop().unwrap();
    assert_eq!((by_place().site(site).name.as_str(), rig.requests.len()), ("away", 0));
    rig.step(Event::Claimed { call, release: release(&claim, true) });
    rig.run(120.0);
    assert_eq!((rig.times(&url).len(), rig.totals().claimed), (1, 1));
    // What is found of it here stays here.
    let next = format!("{url}next");
    rig.find(&[&next]);
    rig.run(240.0);
    assert_eq!((rig.times(&next).len(), rig.posts.len(), rig.claims.len()), (1, 0, 0));
}

#[test]
fn what_this_site_finds_of_a_host_goes_to_its_registrar() {
    let url = page_of("away");
    let mut rig = rig_by_place(Some(10.0));
    rig.find(&[&url]);
    rig.run(60.0);
    assert_eq!((taken_away(&mut rig), rig.claims.len(), rig.requests.len()), (vec![url], 0, 0));
}

/// Each has sent it before it hears that the other one did, and would take it for the other one's.
#[test]
fn what_two_sites_give_to_each_other_at_once_is_kept() {
    let url = page_of("away");
    let mut rig = rig_by_place(Some(10.0));
    rig.find(&[&url]);
    rig.run(60.0);
    let (post, _) = rig.posts.pop().unwrap();
    rig.step(sent(&url));
    rig.step(Event::Posted { post, taken: true });
    rig.run(90.0);
    let (call, _, claim) = rig.claims.pop().unwrap();
    rig.step(Event::Claimed { call, release: release(&claim, true) });
    rig.run(180.0);
    assert_eq!((rig.times(&url).len(), rig.posts.len()), (1, 0));
}

#[test]
fn a_host_that_its_registrar_does_not_confirm_is_not_asked() {
    let url = page_of("away");
    let mut rig = rig_by_place(Some(10.0));
    rig.step(sent(&url));
    rig.run(30.0);
    let (call, _, claim) = rig.claims.pop().unwrap();
    rig.step(Event::Claimed { call, release: release(&claim, false) });
    rig.run(90.0);
    assert_eq!((taken_away(&mut rig), rig.claims.len(), rig.requests.len()), (vec![url.clone()], 0, 0));
    // If it sends more of it, it may have changed its mind.
    rig.step(sent(&format!("{url}more")));
    rig.run(120.0);
    assert_eq!(rig.claims.len(), 1);
}

/// Nobody keeps a host that was never granted, and a registrar cannot say what this site has claimed.
#[test]
fn a_site_is_not_believed_what_it_cannot_know() {
    let url = page_of("away");
    let mut rig = rig_by_place(Some(10.0));
    rig.step(sent(&url));
    rig.run(30.0);
    let (call, _, claim) = rig.claims.pop().unwrap();
    let keeps = release(&claim, true).map(|release| Box::new(Release { keeps: true, ..*release }));
    rig.step(Event::Claimed { call, release: keeps });
    rig.run(60.0);
    assert_eq!((rig.totals().granted, rig.totals().claimed, rig.requests.len()), (0, 0, 0));
    let (call, _, claim) = rig.claims.pop().unwrap();
    let mut said = release(&claim, true);
    let memo = HostMemo::claimed_in(u32::MAX);
    said.as_mut().unwrap().moved.hosts[0].memo = Some(memo);
    rig.step(Event::Claimed { call, release: said });
    rig.run(180.0);
    assert_eq!((rig.times(&url).len(), rig.totals().claimed, rig.claims.len()), (1, 1, 0));
}

#[test]
fn a_claim_that_goes_on_from_nowhere_is_refused() {
    let mut rig = rig(Settings::default(), federation(None), &[]);
    let (list, host) = (federation(None).list(), Host::parse("www.other.example").unwrap());
    for from in [Some(Cursor(vec![7])), None] {
        let is_beginning = from.is_none();
        let claim = Box::new(Claim { list, host: host.clone(), from });
        rig.step(Event::Claim { call: 3, site: "away".to_owned(), claim });
        rig.run(rig.secs() + 1.0);
        let (call, release) = rig.releases.pop().unwrap();
        assert_eq!((call, release.is_some()), (3, is_beginning));
    }
}

/// Who asks for rules may name any URL.
#[test]
fn a_site_reads_no_pages_by_asking_for_rules() {
    let secret = robots("User-agent: *\nDisallow: /a # secret\n<p>secret</p>");
    let moved = Reply { robots: Some("secret"), ..to("http://other.example/secret") };
    let web = [("http://a.example/secret", vec![secret]), ("http://a.example/moved", vec![moved])];
    let mut rig = rig(Settings::default(), federation(None), &web);
    let ask = |rig: &mut Rig, url: &str| {
        let origin = Origin::of(&Url::parse(ONE).unwrap());
        let ask = AskedRules { list: federation(None).list(), origin, url: url.to_owned(), hops: 1 };
        rig.step(Event::RulesAsked { call: 5, ask: Box::new(ask) });
        rig.run(rig.secs() + 30.0);
        let (call, result) = rig.rules_given.pop().unwrap();
        assert_eq!(call, 5);
        result.map(|result| result.unwrap())
    };
    let given = ask(&mut rig, "http://a.example/secret").unwrap();
    assert_eq!(String::from_utf8_lossy(&given.body), "User-agent: *\nDisallow: /a\n");
    let given = ask(&mut rig, "http://a.example/moved").unwrap();
    assert_eq!((given.status, &*given.body), (301, &b""[..]));
    assert_eq!(given.location.as_deref(), Some("http://other.example/secret"));
    // Nothing is asked of a host that is not of the crawl.
    let before = rig.requests.len();
    let mut scope = Scope::new(ScopeKind::Site, Vec::new(), Vec::new());
    scope.add_seed(&Url::parse(A).unwrap());
    let site = first_agent(Vec::new(), false);
    rig.agent = Agent::of_site(rig.settings.clone(), scope, site).in_federation(federation(None));
    rig.start();
    rig.run(rig.secs() + 5.0);
    assert_eq!(ask(&mut rig, "http://b.example/secret"), None);
    assert_eq!(rig.requests.len(), before);
    assert!(ask(&mut rig, "http://a.example/secret").is_some());
}

/// Each part of an answer is written down, so that there must be an end to them.
#[test]
fn a_site_that_does_not_come_to_an_end_is_not_asked_for_ever() {
    for (urls, parts_max) in [(1, 40), (600, 17_u32)] {
        let url = page_of("away");
        let settings = Settings { max_host_pages: 10_000, ..Settings::default() };
        let mut rig = rig(settings, by_place(), &[]);
        rig.position = Position::new(0.0, 10.0);
        rig.step(sent(&url));
        let mut parts = 0_u32;
        while let Some((call, _, claim)) = {
            rig.run(rig.secs() + 30.0);
            rig.claims.pop()
        } {
            parts += 1;
            assert!(parts <= parts_max, "it goes on after {parts} parts");
            let mut said = release(&claim, true).unwrap();
            let fingerprint = |number: u32| {
                let mut bytes = [0; 12];
                bytes[..4].copy_from_slice(&number.to_be_bytes());
                Fingerprint(bytes)
            };
            let seen = |number| {
                let fingerprint = fingerprint(parts * urls + number);
                SeenUrl { fingerprint, place: 0, is_sent: false }
            };
            said.moved.hosts[0].seen = (0..urls).map(seen).collect();
            said.next = Some(Cursor(vec![0; 12]));
            rig.step(Event::Claimed { call, release: Some(said) });
        }
        assert_eq!((parts, rig.totals().claimed), (parts_max, 1));
        let away = rig.agent.other_sites(rig.at()).into_iter().find(|other| other.name == "away").unwrap();
        assert_eq!(away.cut_answers, 1);
        assert_eq!(rig.times(&url).len(), 1);
    }
}
