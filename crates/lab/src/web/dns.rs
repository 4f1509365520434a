//! The DNS server for the names of the web, over UDP and TCP.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket},
    sync::Arc,
    time::Duration,
};

use hickory_proto::{
    op::{Message, OpCode, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, AAAA, CNAME, SOA},
    },
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    WebError,
    kinds::Names,
    plan::{Host, Sub},
    server::{CONTROL_NAME, Server},
};

const TTL_S: u32 = 300;
/// How long names that do not exist may be remembered, before the time scale.
const NEGATIVE_TTL_S: f64 = 60.0;
const TCP_TIMEOUT: Duration = Duration::from_secs(10);
const MESSAGE_BYTES_MAX: usize = 4_096;
/// Ports tried before giving up, where any will do but UDP and TCP must have the same.
const TRIES_MAX: usize = 20;

/// The sockets, both of one port.
pub(super) struct Sockets {
    pub tcp: TcpListener,
    pub udp: UdpSocket,
}

/// Takes a port on 127.0.0.1 for UDP and TCP.
pub(super) fn bind(port: u16) -> Result<Sockets, WebError> {
    let try_once = || -> io::Result<Sockets> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, tcp.local_addr()?.port()))?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        Ok(Sockets { tcp, udp })
    };
    let tries = if port == 0 { TRIES_MAX } else { 1 };
    let mut tried = try_once();
    for _ in 1..tries {
        if tried.is_ok() {
            break;
        }
        tried = try_once();
    }
    tried.map_err(|source| WebError::Listen { what: "dns", port, source })
}

/// Answers datagrams for ever.
pub(super) async fn serve_udp(server: Arc<Server>, socket: tokio::net::UdpSocket) {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        // An error here belongs to an answer sent earlier (its receiver is gone), not to the socket.
        let Ok((len, peer)) = socket.recv_from(&mut buffer).await else { continue };
        if let Some(answer) = answer(&server, &buffer[..len], false) {
            let _ = socket.send_to(&answer, peer).await;
        }
    }
}

/// Answers connections for ever.
pub(super) async fn serve_tcp(server: Arc<Server>, listener: tokio::net::TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let _ = tokio::time::timeout(TCP_TIMEOUT, converse(&server, stream)).await;
        });
    }
}

async fn converse(server: &Server, mut stream: tokio::net::TcpStream) -> io::Result<()> {
    loop {
        let mut message = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut message).await?;
        let Some(answer) = answer(server, &message, true) else { return Ok(()) };
        let mut framed = (answer.len() as u16).to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        stream.write_all(&framed).await?;
    }
}

/// What is said about one question: records, or a code.
enum Said {
    Records(Vec<Record>),
    Code(ResponseCode),
    Cut,
    Nothing,
}

/// The answer to a message; none where none is given.
fn answer(server: &Server, message: &[u8], tcp: bool) -> Option<Vec<u8>> {
    let request = Message::from_vec(message).ok()?;
    let query = request.queries.first()?.clone();
    let mut response = Message::response(request.metadata.id, OpCode::Query);
    response.metadata.recursion_desired = request.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.metadata.authoritative = true;
    response.add_query(query.clone());
    match say(server, query.name(), query.query_type(), tcp) {
        Said::Nothing => return None,
        Said::Cut => response.metadata.truncation = true,
        Said::Code(code) => response.metadata.response_code = code,
        Said::Records(records) => {
            response.add_answers(records);
        }
    }
    let has_answer = !response.answers.is_empty();
    let code = response.metadata.response_code;
    if !has_answer
        && matches!(code, ResponseCode::NoError | ResponseCode::NXDomain)
        && !response.metadata.truncation
    {
        response.add_authority(soa(server)?);
    }
    response.to_vec().ok()
}

fn say(server: &Server, name: &Name, wanted: RecordType, tcp: bool) -> Said {
    let text = name.to_ascii().to_ascii_lowercase();
    let text = text.trim_end_matches('.');
    if text == CONTROL_NAME {
        return Said::Records(address(name, wanted, Ipv4Addr::LOCALHOST, TTL_S));
    }
    // Aliases lead to the name without "alias-N.".
    let aliased = text.strip_prefix("alias-1.").or_else(|| text.strip_prefix("alias-2."));
    let Some(host) = server.plan.by_name(aliased.unwrap_or(text)) else {
        return Said::Code(ResponseCode::NXDomain);
    };
    let asked_before = server.judge().dns_query(host.index);
    say_of_host(&host, name, wanted, tcp, asked_before)
}

fn say_of_host(host: &Host<'_>, name: &Name, wanted: RecordType, tcp: bool, asked_before: u32) -> Said {
    let own = host.address();
    let private = Ipv4Addr::from(u32::from(own) | u32::from_be_bytes([0, 128, 0, 0]));
    let records = |to: Ipv4Addr, ttl: u32| Said::Records(address(name, wanted, to, ttl));
    match host.kind.names {
        Names::Plain => records(own, TTL_S),
        Names::NoTtl => records(own, 0),
        Names::NxDomain | Names::Address => Said::Code(ResponseCode::NXDomain),
        Names::ServFail => Said::Code(ResponseCode::ServFail),
        Names::Flaky(times) if asked_before < times => Said::Code(ResponseCode::ServFail),
        Names::Flaky(_) => records(own, TTL_S),
        Names::Timeout => Said::Nothing,
        Names::Rebinding(times) if asked_before < times => records(own, 0),
        Names::Rebinding(_) | Names::PrivateLoopback => records(private, 0),
        Names::Private => records(Ipv4Addr::new(10, 0, (host.serial >> 8) as u8, host.serial as u8), TTL_S),
        Names::PrivateV6 if wanted == RecordType::AAAA => Said::Records(vec![Record::from_rdata(
            name.clone(),
            TTL_S,
            RData::AAAA(AAAA(Ipv6Addr::LOCALHOST)),
        )]),
        Names::PrivateV6 => Said::Records(Vec::new()),
        Names::Truncated if !tcp => Said::Cut,
        Names::Truncated => records(own, TTL_S),
        Names::Alias => Said::Records(alias_chain(host, name, wanted)),
    }
}

/// Two aliases, then the address; all in one answer, as resolvers give them.
fn alias_chain(host: &Host<'_>, name: &Name, wanted: RecordType) -> Vec<Record> {
    let bare = Host { sub: Sub::Bare, ..*host }.name();
    let parsed = [1, 2].map(|step| Name::from_ascii(format!("alias-{step}.{bare}.")));
    let [Ok(first), Ok(second)] = parsed else { return Vec::new() };
    let mut records = vec![
        Record::from_rdata(name.clone(), TTL_S, RData::CNAME(CNAME(first.clone()))),
        Record::from_rdata(first, TTL_S, RData::CNAME(CNAME(second.clone()))),
    ];
    records.extend(address(&second, wanted, host.address(), TTL_S));
    records
}

fn address(name: &Name, wanted: RecordType, address: Ipv4Addr, ttl: u32) -> Vec<Record> {
    match wanted {
        RecordType::A | RecordType::ANY => vec![Record::from_rdata(name.clone(), ttl, RData::A(A(address)))],
        _ => Vec::new(),
    }
}

fn soa(server: &Server) -> Option<Record> {
    let zone = Name::from_ascii("test.").ok()?;
    let negative = (NEGATIVE_TTL_S / server.plan.config.time_scale).ceil().max(1.0) as u32;
    let data = SOA::new(zone.clone(), zone.clone(), 1, 3_600, 600, 86_400, negative);
    Some(Record::from_rdata(zone, negative, RData::SOA(data)))
}
