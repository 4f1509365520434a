//! An agent alone in its site, and another site whose hosts are those below `other.example`: what waits for it, and what comes
//! from it.

use super::*;
use crate::federation::{Batch, Federation, SiteEntry};
use crate::settings::OutboxFull;

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
    let batch = Box::new(Batch { list, found });
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
