//! Those who are no agents of the site, or not the one that they say: nothing of theirs is delivered.

use std::path::PathBuf;

use bytes::Bytes;
use jiff::civil::date;
use jiff::{ToSpan, Zoned};
use nephila_node::peers::{Identity, IdentityError, Peer};
use rcgen::ExtendedKeyUsagePurpose;
use rustls::version::{TLS12, TLS13};

use crate::raw;
use crate::site::*;

const A: &str = "a.paris.nephila.internal";
const METHOD: &str = "/nephila.Site/Deliver";

#[tokio::test(flavor = "current_thread")]
async fn who_has_no_valid_certificate_says_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut a = authority.agent(A);
    let server_only = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let b = "b.paris.nephila.internal";
    let strangers: Vec<(&str, Option<PathBuf>)> = vec![
        ("no certificate", None),
        ("another authority", Some(other.make(terms(b)))),
        ("over", Some(authority.make(Terms { valid: (date(2019, 1, 1), date(2020, 1, 1)), ..terms(b) }))),
        ("not yet", Some(authority.make(Terms { valid: (date(2110, 1, 1), date(2120, 1, 1)), ..terms(b) }))),
        ("another site", Some(authority.make(terms("b.rome.nephila.internal")))),
        ("no site", Some(authority.make(terms("b.example.org")))),
        ("all agents", Some(authority.make(terms("*.paris.nephila.internal")))),
        ("no client", Some(authority.make(Terms { usages: server_only, ..terms(b) }))),
    ];
    let body = raw::frame_of(&message(666));
    for (what, identity) in &strangers {
        let tls = raw::tls(&authority.pem(), identity.as_deref(), &[&TLS13]);
        let answer = raw::call(a.peers.address(), &tls, A, METHOD, body.clone()).await;
        assert!(answer.is_err(), "{what}: {answer:?}");
    }
    // A good one, with an older protocol.
    let good = authority.make(terms(b));
    let tls = raw::tls(&authority.pem(), Some(&good), &[&TLS12]);
    assert!(raw::call(a.peers.address(), &tls, A, METHOD, body.clone()).await.is_err());
    let refused = strangers.len() as u64 + 1;
    wait_until(|| a.peers.counts().refused == refused).await;
    assert_eq!(a.peers.counts().received, 0);

    // So it was the certificates; and whoever it says it is, it is who its certificate says.
    let tls = raw::tls(&authority.pem(), Some(&good), &[&TLS13]);
    assert_eq!(raw::call(a.peers.address(), &tls, A, METHOD, body).await.unwrap(), "0");
    assert_eq!(a.next().await, ("b".to_owned(), message(666)));
    assert!(a.inbox.try_recv().is_none());
}

#[tokio::test(flavor = "current_thread")]
async fn who_has_no_valid_certificate_hears_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let a = authority.agent(A);
    // They listen under the name of b: agents of another authority, and of another site.
    for mut impostor in [other.agent("b.paris.nephila.internal"), authority.agent("b.rome.nephila.internal")]
    {
        for whom in [peer("b"), Peer::At(impostor.address().into())] {
            a.peers.send(&whom, &impostor.address(), &message(1)).unwrap();
            wait_until(|| a.peers.peers()[0].last_error.is_some()).await;
            assert!(!a.peers.is_connected(&whom));
            assert!(impostor.inbox.try_recv().is_none());
            assert_eq!(impostor.peers.counts().accepted, 0);
            a.peers.forget(&whom);
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_agent_that_says_what_it_must_not_is_not_heard() {
    let authority = Authority::new();
    let mut a = authority.agent(A);
    let tls = raw::tls(&authority.pem(), Some(&authority.make(terms("b.paris.nephila.internal"))), &[&TLS13]);
    let good = raw::frame_of(&message(1));
    let huge = [&[0][..], &(5_u32 << 20).to_be_bytes(), &[7; 100]].concat();
    let trailing = raw::frame(&[&postcard::to_stdvec(&message(2)).unwrap()[..], &[0]].concat());
    let cases: [(&str, &str, Bytes, &str); 7] = [
        ("nothing", METHOD, Bytes::new(), "0"),
        ("not a message", METHOD, raw::frame(&[0xff; 40]), "3"),
        ("more than a message", METHOD, trailing, "3"),
        ("a huge message", METHOD, huge.into(), "11"),
        ("compressed", METHOD, [&[1][..], &good[1..]].concat().into(), "13"),
        ("half a message", METHOD, good.slice(..good.len() - 1), "13"),
        ("another method", "/nephila.Site/Dance", good.clone(), "12"),
    ];
    for (what, path, body, status) in cases {
        let answer = raw::call(a.peers.address(), &tls, A, path, body).await;
        assert_eq!(answer.unwrap_or_else(|error| panic!("{what}: {error}")), status, "{what}");
    }
    assert_eq!(a.peers.counts().received, 0);
    assert_eq!(raw::call(a.peers.address(), &tls, A, METHOD, good).await.unwrap(), "0");
    assert_eq!(a.next().await, ("b".to_owned(), message(1)));
}

#[test]
fn an_agent_knows_when_its_own_certificate_is_no_good() {
    let authority = Authority::new();
    let b = "b.paris.nephila.internal";
    let read = |terms| Identity::read(&authority.make(terms)).unwrap_err();
    assert!(matches!(
        read(Terms { valid: (date(2019, 1, 1), date(2020, 1, 1)), ..terms(b) }),
        IdentityError::Expired(_)
    ));
    assert!(matches!(
        read(Terms { valid: (date(2110, 1, 1), date(2120, 1, 1)), ..terms(b) }),
        IdentityError::Expired(_)
    ));
    assert!(matches!(read(terms("b.example.org")), IdentityError::Nameless(_)));
    let today = Zoned::now().date();
    for (days, expected) in [(10, true), (60, false)] {
        let valid = (date(2020, 1, 1), today.saturating_add(days.days()));
        let identity = Identity::read(&authority.make(Terms { valid, ..terms(b) })).unwrap();
        assert_eq!(identity.expires_soon(), expected, "{days}");
    }
}
