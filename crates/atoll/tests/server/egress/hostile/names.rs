//! Names carry nothing out: a question for one that is not allowed ends inside, and one that is allowed is
//! asked for outside only when somebody connects.

use super::{Stage, outside::PUBLIC, policies, python};
use serde_json::json;

/// Asks the sandbox's resolver for names of every type, over UDP and TCP, and prints the codes of its
/// answers and how many records came.
const QUESTIONS: &str = r"
import json, socket as s, struct, sys
def question(name, kind):
    labels = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.'))
    return struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('!HH', kind, 1)
def udp(q):
    x = s.socket(s.AF_INET, s.SOCK_DGRAM); x.settimeout(20); x.sendto(q, ('127.0.0.53', 53)); return x.recv(4096)
def tcp(q):
    x = s.create_connection(('127.0.0.53', 53), 20); x.sendall(struct.pack('!H', len(q)) + q)
    return x.makefile('rb').read(2 + 12)[2:]
codes = []
for name in NAMES:
    for kind in (1, 28, 16, 15, 2, 6, 33, 65, 255, 252):
        for way in (udp, tcp):
            try: a = way(question(name, kind)); codes.append([name, kind, a[3] & 15, struct.unpack('!H', a[6:8])[0]])
            except OSError as e: codes.append([name, kind, str(e), 0])
print(json.dumps(codes))
";

fn questions(stage: &Stage, sandbox: &str, names: &[&str]) -> Vec<(String, u16, serde_json::Value, u16)> {
    let program = QUESTIONS.replace("NAMES", &json!(names).to_string());
    serde_json::from_str(&python(&stage.server, sandbox, &program)).unwrap()
}

#[test]
fn data_in_the_labels_of_a_name_goes_nowhere() {
    let stage = Stage::new();
    stage.world.name("public.test", &[PUBLIC]);
    let long = format!("{}.{}.evil.test", "s3cret".repeat(10), "more".repeat(15));
    let evil = ["s3cret.evil.test", &long, "s3cret.public.test", "public.test.evil.test", "s3cret"];
    let [none, listed, full] = policies();
    for policy in [&none, &listed] {
        let sandbox = stage.sandbox(policy);
        for (name, kind, code, count) in questions(&stage, &sandbox, &evil) {
            assert!(code != 0 && count == 0, "{name} {kind}: {code} {count}");
        }
        let asks: Vec<_> = ["connect", "http", "socks", "direct"]
            .into_iter()
            .flat_map(|way| evil.iter().map(move |host| (way, *host, 80)))
            .collect();
        let answers = stage.ask(&sandbox, &asks);
        let refused = ["403", "socks 2", "no such name"];
        assert!(answers.iter().all(|answer| refused.contains(&&**answer)), "{answers:?}");
        // Nor to a server of names that somebody knows by its address.
        let to = stage.world.names;
        let program = format!(
            "import socket as s\nfor a in (('{}',{}),('192.0.2.1',53),('{PUBLIC}',53)):\n x=s.socket(2,2); x.settimeout(1)\n \
             try: x.sendto(b's3cret',a); x.recv(9); print('answered')\n except OSError: pass",
            to.ip(),
            to.port()
        );
        assert_eq!(python(&stage.server, &sandbox, &program), "", "{policy}");
        assert_eq!(stage.world.questions(), [""; 0], "{policy}");
    }
    // Where every name may pass, a question alone still asks nobody.
    let sandbox = stage.sandbox(&full);
    let answered = questions(&stage, &sandbox, &evil[..1]);
    assert!(answered.iter().any(|(_, kind, code, count)| (*kind, code, *count) == (1, &json!(0), 1)));
    assert_eq!((stage.world.questions(), stage.outside.came()), (vec![], vec![]));
}

#[test]
fn a_name_is_resolved_only_for_a_connection() {
    let stage = Stage::new();
    stage.world.name("public.test", &[PUBLIC]);
    let sandbox = stage.sandbox(&json!({ "mode": "allowlist", "allow": ["public.test", "*.wide.test"] }));
    let answers = questions(&stage, &sandbox, &["public.test", "data.wide.test"]);
    assert!(answers.iter().any(|(_, kind, code, count)| (*kind, code, *count) == (1, &json!(0), 1)));
    assert_eq!(stage.world.questions(), [""; 0]);
    let page = format!("outside {PUBLIC}");
    assert_eq!(stage.ask(&sandbox, &[("direct", "public.test", stage.outside.port)]), [page]);
    let asked = stage.world.questions();
    assert!(!asked.is_empty() && asked.iter().all(|name| name == "public.test"), "{asked:?}");
    // A policy that allows all names below one lets data pass there, and the server of names sees it.
    stage.ask(&sandbox, &[("connect", "data.wide.test", 80)]);
    let asked = stage.world.questions();
    assert!(asked.contains(&"data.wide.test".to_owned()), "{asked:?}");
}
