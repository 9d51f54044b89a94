//! Sandboxes that reach the proxy over a network: a good token with every request, or nothing.

use crate::support::*;
use atoll_egress::{LIFETIME, Rules, Tokens};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::watch, task::JoinHandle};

struct Network {
    world: World,
    server: Server,
    at: SocketAddr,
    tokens: Tokens,
    told: Arc<Told>,
    rules: watch::Sender<Arc<Rules>>,
    task: JoinHandle<()>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn network() -> Network {
    let world = World::new().await;
    let server = world.web().await;
    for name in ["a.test", "b.test", "x.c.test"] {
        world.name(name, &["127.0.0.1"]);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let tokens = Tokens::new(&[1; 32]).unwrap();
    let (rules, receiver) = watch::channel(rules(&allow(&["a.test", "b.test", "*.c.test", "127.0.0.1"])));
    let told = Arc::new(Told::default());
    let egress = egress(&world, None);
    let (verifier, recorder) = (tokens.clone(), told.clone());
    let task = tokio::spawn(async move {
        let lookup = move |session: &str| {
            (session == "s1").then(|| (receiver.clone(), recorder.clone() as Arc<dyn atoll_egress::Recorder>))
        };
        egress.serve_network(listener, verifier, Arc::new(lookup)).await;
    });
    Network { world, server, at, tokens, told, rules, task }
}

fn basic(token: &str) -> String {
    format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("sandbox:jwt_{token}")))
}

impl Network {
    fn token(&self, session: &str, hosts: &[&str]) -> String {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        self.tokens.sign(session, Some("t"), &hosts, LIFETIME).unwrap()
    }

    fn request(&self, host: &str, lines: &str) -> String {
        let host = format!("{host}:{}", self.server.port);
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n")
    }

    async fn get(&self, host: &str, lines: &str) -> Answer {
        ask(self.at, self.request(host, lines)).await
    }
}

#[tokio::test]
async fn a_good_token_reaches_what_both_it_and_the_policy_allow() {
    let network = network().await;
    let token = network.token("s1", &["A.test", "*.c.test"]);
    assert_eq!(network.get("a.test", &basic(&token)).await.status(), 200);
    assert_eq!(network.get("x.c.test", &basic(&token)).await.status(), 200);
    assert!(!network.server.heads()[0].contains("Proxy-Authorization"), "the token goes no further");
    let refused = network.get("b.test", &basic(&token)).await;
    assert_eq!((refused.status(), refused.text().as_str()), (403, "Host not allowed: b.test (token)\n"));
    let nothing = network.token("s1", &[]);
    assert_eq!(network.get("a.test", &basic(&nothing)).await.status(), 403, "an empty list is an empty list");
    let all = network.token("s1", &["*"]);
    assert_eq!(network.get("b.test", &basic(&all)).await.status(), 200);
    network.rules.send(rules("{}")).unwrap();
    assert_eq!(network.get("b.test", &basic(&all)).await.status(), 403, "the policy has the last word");
    let told = network.told.about("a.test").await;
    assert!(told.allowed);
    let _ = &network.world;
}

#[tokio::test]
async fn a_client_without_a_valid_token_is_refused() {
    let network = network().await;
    let other = Tokens::new(&[2; 32]).unwrap().sign("s1", None, &["*".to_owned()], LIFETIME).unwrap();
    let expired = network.tokens.sign("s1", None, &["*".to_owned()], Duration::ZERO).unwrap();
    let good = network.token("s1", &["*"]);
    let unsigned = {
        let none = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
        format!("{none}.{}.", good.split('.').nth(1).unwrap())
    };
    for (what, lines) in [
        ("missing", String::new()),
        ("another key", basic(&other)),
        ("expired", basic(&expired)),
        ("alg none", basic(&unsigned)),
        ("garbage", basic("garbage")),
        ("twice", format!("{}{}", basic(&good), basic(&good))),
        ("bearer", format!("Proxy-Authorization: Bearer {good}\r\n")),
        ("in the wrong header", basic(&good).replace("Proxy-", "")),
    ] {
        let answer = network.get("a.test", &lines).await;
        assert_eq!(answer.status(), 407, "{what}");
        assert!(answer.head.contains("Proxy-Authenticate: Basic"), "{what}");
    }
    let foreign = network.get("a.test", &basic(&network.token("s2", &["*"]))).await;
    assert_eq!(foreign.status(), 403, "a sandbox that is not served here");
    assert!(network.server.heads().is_empty());
    assert!(network.world.questions.lock().unwrap().is_empty());
}

#[tokio::test]
async fn every_request_of_a_connection_shows_its_token() {
    let network = network().await;
    let token = network.token("s1", &["*"]);
    let mut stream = TcpStream::connect(network.at).await.unwrap();
    stream.write_all(network.request("a.test", &basic(&token)).as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status(), 200);
    stream.write_all(network.request("a.test", "").as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status(), 407);
    assert!(rest(&mut stream).await.is_empty());
}

#[tokio::test]
async fn tunnels_need_one_too_and_socks_has_no_room_for_it() {
    let network = network().await;
    let to = format!("a.test:{}", network.server.port);
    assert_eq!(connect(network.at, &to).await.unwrap_err().status(), 407);
    let token = network.token("s1", &["a.test"]);
    let mut stream = TcpStream::connect(network.at).await.unwrap();
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\n{}\r\n", basic(&token)).as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status(), 200);
    let mut stream = TcpStream::connect(network.at).await.unwrap();
    stream.write_all(&[5, 1, 0, 13, 10, 13, 10]).await.unwrap();
    let back = rest(&mut stream).await;
    assert!(back.is_empty() || back.starts_with(b"HTTP/1.1 400"), "{back:?}");
}
