//! Answers to DNS queries. No query leaves the server: an allowed name gets an address of the reserved block, and
//! every other is refused at once.

use super::table::{LIFETIME, is_reserved};
use crate::{
    Host, Verdict,
    session::{Caller, shown},
};
use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{
        DNSClass, Name, RData, Record, RecordType,
        rdata::{A, AAAA, PTR},
    },
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Queries are short. A longer message is not a query.
pub(crate) const MOST_BYTES: usize = 4096;

/// The answer to a message, in bytes. None: it is not a DNS query.
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
    let verdict = caller.session().rules().may_name(&Host::Name(name.clone()));
    if !matches!(verdict, Verdict::Allow(_)) {
        caller.question(&name, &verdict);
        return (ResponseCode::NXDomain, None);
    }
    if query.query_type() != RecordType::A {
        // The name exists, and has no other records.
        return (ResponseCode::NoError, None);
    }
    match caller.session().names.address(&name) {
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

/// The name of an address that was given out. For any other there is none, and no server is queried.
fn reverse(name: &Name, caller: &Caller) -> (ResponseCode, Option<RData>) {
    let address = name.parse_arpa_name().ok().map(|net| net.addr());
    let known = match address {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST)) => Some("localhost".to_owned()),
        Some(IpAddr::V4(address)) if is_reserved(address) => caller.session().names.name(address),
        _ => None,
    };
    match known.and_then(|name| Name::from_ascii(format!("{name}.")).ok()) {
        Some(name) => (ResponseCode::NoError, Some(RData::PTR(PTR(name)))),
        None => (ResponseCode::NXDomain, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decision, Egress, EgressSettings, Policy, Presets, Recorder, Rules, session::EgressSession};
    use proptest::prelude::*;
    use std::{
        net::SocketAddr,
        sync::{Arc, OnceLock},
    };

    struct NoRecorder;

    impl Recorder for NoRecorder {
        fn asked(&self, _: SocketAddr) -> u64 {
            0
        }
        fn decided(&self, _: u64, decision: Decision) {
            assert!(decision.host.len() <= 255 && !decision.host.chars().any(char::is_control));
        }
    }

    fn caller() -> Arc<Caller> {
        let policy: Policy = serde_json::from_str(r#"{"mode":"allowlist","allow":["*.a.example"]}"#).unwrap();
        let rules = Rules::new("egress", &policy, &Presets::default(), &Arc::default()).unwrap();
        let (_, rules) = tokio::sync::watch::channel(Arc::new(rules));
        let nameservers = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 9))];
        // The machine's certificates take a while to read.
        static EGRESS: OnceLock<Egress> = OnceLock::new();
        let settings = EgressSettings { nameservers, ..EgressSettings::default() };
        let egress = EGRESS.get_or_init(|| Egress::new(settings).unwrap());
        Caller::new(&EgressSession::new(Arc::clone(&egress.0), rules, Arc::new(NoRecorder)), 0, None)
    }

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = Message::new(1, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::from(kind)));
        message.set_edns(Edns::new());
        message.to_vec().unwrap()
    }

    /// Every answer is a valid message, and every address in it stands for an allowed name.
    fn check(bytes: &[u8], caller: &Caller) -> Result<(), TestCaseError> {
        let Some(reply) = answer(bytes, caller) else { return Ok(()) };
        let reply = Message::from_vec(&reply).expect("a message");
        prop_assert_eq!(reply.metadata.message_type, MessageType::Response);
        for record in &reply.answers {
            if let RData::A(address) = &record.data {
                let name = caller.session().names.name(address.0);
                let fits = name.is_some_and(|name| name == "a.example" || name.ends_with(".a.example"));
                prop_assert!(fits || address.0 == Ipv4Addr::LOCALHOST, "{record}");
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::fuzz_cases()))]
        #[test]
        fn arbitrary_bytes_are_survived(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20)) {
            let caller = caller();
            for bytes in all {
                check(&bytes, &caller)?;
            }
        }

        #[test]
        fn changed_questions_are_survived(
            all in prop::collection::vec((
                "[a-z0-9_]{1,20}(\\.[a-z0-9]{1,9}){0,3}\\.(a\\.example|evil\\.example|localhost)\\.",
                prop_oneof![Just(1_u16), Just(28), Just(12), any::<u16>()],
                prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            ), 1..20),
        ) {
            let caller = caller();
            for (name, kind, changes) in all {
                let mut bytes = question(&name, kind);
                for (at, byte) in changes {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
                check(&bytes, &caller)?;
            }
        }
    }
}
