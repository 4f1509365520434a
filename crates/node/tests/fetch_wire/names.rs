//! Names, asked of a DNS server of our own.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use nephila_core::agent::{Addresses, NoAddress};
use nephila_core::url::Host;
use nephila_node::dns::{Resolver, TTL_MAX, TTL_MIN};
use tokio::net::UdpSocket;

/// What the server knows of a name.
fn reply(name: &str, kind: RecordType) -> Option<(ResponseCode, Vec<(u32, RData)>)> {
    let four = |last: u8| RData::A(A::new(192, 0, 2, last));
    let six = |last: u16| RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let ok = |records| Some((ResponseCode::NoError, records));
    match (name, kind) {
        ("both.test.", RecordType::A) => ok(vec![(60, four(1)), (60, four(2)), (60, four(1))]),
        ("both.test.", RecordType::AAAA) => ok(vec![(300, six(1))]),
        ("four.test.", RecordType::A) => ok(vec![(0, four(3))]),
        ("alias.test.", RecordType::A) => {
            let target = Name::from_ascii("four.test.").unwrap();
            ok(vec![(900, RData::CNAME(CNAME(target))), (5, four(3))])
        }
        ("lossy.test.", RecordType::A) => ok(vec![(60, four(5))]),
        ("broken-six.test.", RecordType::A) => ok(vec![(60, four(4))]),
        ("broken-six.test.", _) => Some((ResponseCode::ServFail, vec![])),
        ("none.test.", _) | ("lossy.test.", _) | ("four.test.", _) | ("alias.test.", _) => ok(vec![]),
        ("servfail.test.", _) => Some((ResponseCode::ServFail, vec![])),
        ("refused.test.", _) => Some((ResponseCode::Refused, vec![])),
        ("silent.test.", _) => None,
        _ => Some((ResponseCode::NXDomain, vec![])),
    }
}

async fn serve(socket: UdpSocket) {
    let mut packet = [0; 1_500];
    let mut asked_for = HashSet::new();
    loop {
        let Ok((count, from)) = socket.recv_from(&mut packet).await else { continue };
        let asked = Message::from_vec(&packet[..count]).unwrap();
        let question = asked.queries[0].clone();
        let name = question.name().to_ascii().to_lowercase();
        let is_first = asked_for.insert((name.clone(), question.query_type()));
        if is_first && name == "lossy.test." {
            continue;
        }
        let Some((code, records)) = reply(&name, question.query_type()) else { continue };
        let mut answer = Message::response(asked.metadata.id, asked.metadata.op_code);
        answer.metadata.message_type = MessageType::Response;
        answer.metadata.recursion_available = true;
        answer.metadata.response_code = code;
        let mut owner = question.name().clone();
        answer.add_query(question);
        for (ttl, data) in records {
            answer.add_answer(Record::from_rdata(owner.clone(), ttl, data.clone()));
            if let RData::CNAME(target) = data {
                owner = target.0;
            }
        }
        socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
    }
}

fn with_resolver<F: Future>(test: impl FnOnce(Resolver) -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server: SocketAddr = socket.local_addr().unwrap();
        let serving = tokio::spawn(serve(socket));
        let result = test(Resolver::new(Some(server), Duration::from_millis(300), 4).unwrap()).await;
        serving.abort();
        result
    })
}

#[test]
fn names_with_addresses() {
    let minute = Duration::from_secs(60);
    let cases: [(&str, &[&str], Duration); 7] = [
        ("both.test", &["2001:db8::1", "192.0.2.1", "192.0.2.2"], minute),
        ("four.test", &["192.0.2.3"], TTL_MIN),
        ("alias.test", &["192.0.2.3"], Duration::from_secs(5)),
        ("broken-six.test", &["192.0.2.4"], minute),
        ("lossy.test", &["192.0.2.5"], minute),
        ("192.0.2.9", &["192.0.2.9"], TTL_MAX),
        ("2001:db8::9", &["2001:db8::9"], TTL_MAX),
    ];
    with_resolver(|resolver| async move {
        for (name, list, ttl) in cases {
            let answer: Addresses = resolver.resolve(&Host::parse(name).unwrap()).await.unwrap();
            let list: Vec<IpAddr> = list.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(answer.list, list, "{name}");
            // Some of the time to live has passed already.
            assert!(
                answer.ttl <= ttl && answer.ttl + Duration::from_secs(2) >= ttl,
                "{name}: {:?}",
                answer.ttl
            );
        }
    });
}

#[test]
fn names_without() {
    let cases = [
        ("nobody.test", true),
        ("none.test", false),
        ("servfail.test", false),
        ("refused.test", false),
        ("silent.test", false),
    ];
    with_resolver(|resolver| async move {
        for (name, no_such_name) in cases {
            let answer: NoAddress = resolver.resolve(&Host::parse(name).unwrap()).await.unwrap_err();
            assert_eq!(answer.no_such_name, no_such_name, "{name}: {}", answer.detail);
            assert!(answer.detail.contains(name), "{}", answer.detail);
        }
    });
}

#[test]
fn many_names_at_once() {
    with_resolver(|resolver| async move {
        let resolver = std::sync::Arc::new(resolver);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let resolver = std::sync::Arc::clone(&resolver);
            tasks.spawn(async move { resolver.resolve(&Host::parse("both.test").unwrap()).await });
        }
        while let Some(answer) = tasks.join_next().await {
            assert_eq!(answer.unwrap().unwrap().list.len(), 3);
        }
    });
}
