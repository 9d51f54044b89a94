//! What a question is answered with. Nothing of a question goes anywhere: an allowed name gets an address of
//! the reserved block, and everything else is refused at once.

use super::table::{LIFETIME, is_reserved};
use crate::{
    Host, Verdict,
    gate::{Caller, shown},
};
use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{
        DNSClass, Name, RData, Record, RecordType,
        rdata::{A, AAAA, PTR},
    },
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Questions are short. What is longer is not a question.
pub(crate) const MOST_BYTES: usize = 4096;

/// The answer to a message, in bytes. None: it is not even a question.
pub(crate) fn answer(bytes: &[u8], caller: &Caller) -> Option<Vec<u8>> {
    if bytes.len() > MOST_BYTES || bytes.len() < 12 {
        return None;
    }
    let asked = Message::from_vec(bytes).ok()?;
    if asked.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut reply = Message::response(asked.metadata.id, asked.metadata.op_code);
    reply.metadata.recursion_desired = asked.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.metadata.response_code = match (asked.metadata.op_code, asked.queries.as_slice()) {
        (OpCode::Query, [query]) => {
            let query = query.clone();
            let (code, data) = decide(&query, caller);
            let lifetime = u32::try_from(LIFETIME.as_secs()).unwrap_or(1);
            reply.add_answers(data.map(|data| Record::from_rdata(query.name().clone(), lifetime, data)));
            reply.add_query(query);
            code
        }
        (OpCode::Query, _) => ResponseCode::FormErr,
        _ => ResponseCode::NotImp,
    };
    if asked.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(1232);
        reply.set_edns(edns);
    }
    reply.to_vec().ok()
}

fn decide(query: &Query, caller: &Caller) -> (ResponseCode, Option<RData>) {
    let text = query.name().to_ascii();
    let refused = |rule: &str, code: ResponseCode| {
        caller.question(&shown(&text), &Verdict::Deny(rule.into()));
        (code, None)
    };
    if query.query_class() != DNSClass::IN {
        return refused("not a question of the internet", ResponseCode::Refused);
    }
    if query.query_type() == RecordType::PTR {
        return reverse(query.name(), caller);
    }
    let Ok(Host::Name(name)) = Host::parse(&text) else {
        return refused("malformed", ResponseCode::NXDomain);
    };
    if name == "localhost" || name.ends_with(".localhost") {
        return (ResponseCode::NoError, localhost(query.query_type()));
    }
    let verdict = caller.gate().rules().may_name(&Host::Name(name.clone()));
    if !matches!(verdict, Verdict::Allow(_)) {
        caller.question(&name, &verdict);
        return (ResponseCode::NXDomain, None);
    }
    if query.query_type() != RecordType::A {
        // There is such a name, and it has nothing else.
        return (ResponseCode::NoError, None);
    }
    match caller.gate().names.address(&name) {
        Some(address) => {
            caller.question(&name, &verdict);
            (ResponseCode::NoError, Some(RData::A(A(address))))
        }
        None => refused("limit: names", ResponseCode::ServFail),
    }
}

fn localhost(kind: RecordType) -> Option<RData> {
    match kind {
        RecordType::A => Some(RData::A(A(Ipv4Addr::LOCALHOST))),
        RecordType::AAAA => Some(RData::AAAA(AAAA(Ipv6Addr::LOCALHOST))),
        _ => None,
    }
}

/// The name of an address that was given out. Of any other nothing is known, and nobody is asked.
fn reverse(name: &Name, caller: &Caller) -> (ResponseCode, Option<RData>) {
    let address = name.parse_arpa_name().ok().map(|net| net.addr());
    let known = match address {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST)) => Some("localhost".to_owned()),
        Some(IpAddr::V4(address)) if is_reserved(address) => caller.gate().names.name(address),
        _ => None,
    };
    match known.and_then(|name| Name::from_ascii(format!("{name}.")).ok()) {
        Some(name) => (ResponseCode::NoError, Some(RData::PTR(PTR(name)))),
        None => (ResponseCode::NXDomain, None),
    }
}
