//! A small world for sandboxes to reach, on loopback: a server of names for `.test`, a web server and one
//! that speaks TLS. They end with the test.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// The world.
pub(super) struct World {
    pub(super) names: SocketAddr,
    pub(super) web: SocketAddr,
    pub(super) tls: SocketAddr,
    /// The certificate of `secure.test`, in PEM.
    pub(super) certificate: String,
    /// Connections to `/hold` that are open.
    pub(super) held: Arc<AtomicUsize>,
    /// The first line of every request to the web server.
    pub(super) seen: Arc<Mutex<Vec<String>>>,
    pub(super) asked: Arc<Asked>,
    config: tempfile::NamedTempFile,
}

/// What the server of names knows and was asked.
#[derive(Default)]
pub(super) struct Asked {
    /// Every name that somebody asked for.
    pub(super) questions: Mutex<Vec<String>>,
    /// The addresses of names that are not this machine's, one after the other.
    pub(super) elsewhere: Mutex<HashMap<String, Vec<Ipv4Addr>>>,
}

impl World {
    pub(super) fn new() -> Self {
        let (held, seen) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["secure.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let asked = Arc::default();
        let names = names(Arc::clone(&asked));
        let file = tempfile::NamedTempFile::new().unwrap();
        // The server that reads it is an ordinary user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(file.path(), open).unwrap();
        std::fs::write(file.path(), format!("[egress]\nnameservers = [\"{names}\"]\n")).unwrap();
        Self {
            names,
            web: web(Arc::clone(&held), Arc::clone(&seen)),
            tls: tls(Arc::new(config)),
            certificate: cert.pem(),
            held,
            seen,
            asked,
            config: file,
        }
    }

    /// Says more in the configuration.
    pub(super) fn configure(&self, more: &str) {
        let text = format!("[egress]\nnameservers = [\"{}\"]\n{more}", self.names);
        std::fs::write(self.config.path(), text).unwrap();
    }

    /// Says where a name is; of several addresses the next is told each time.
    pub(super) fn name(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.asked.elsewhere.lock().unwrap().insert(name.to_owned(), addresses);
    }

    /// The names that were asked for, which are forgotten then.
    pub(super) fn questions(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.questions.lock().unwrap())
    }

    /// What a server is started with to live in this world.
    pub(super) fn arguments(&self) -> [&str; 2] {
        ["--config", self.config.path().to_str().unwrap()]
    }

    /// A policy that allows these hosts, and the addresses that they have here.
    pub(super) fn allow(&self, hosts: &[&str]) -> serde_json::Value {
        let addresses = [self.web, self.tls].map(|address| address.to_string());
        let allow: Vec<String> = hosts.iter().map(ToString::to_string).chain(addresses).collect();
        serde_json::json!({ "mode": "allowlist", "allow": allow })
    }

    /// The address of a page.
    pub(super) fn page(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.web.port())
    }
}

/// Every name below `.test` is this machine unless it is elsewhere, and nothing else exists.
fn names(asked: Arc<Asked>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let _ = socket.send_to(&answer(&question[..length], &asked), from);
        }
    });
    address
}

fn answer(question: &[u8], asked: &Asked) -> Vec<u8> {
    let (mut at, mut labels) = (12, Vec::new());
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..end]).to_lowercase());
        at = end;
    }
    let end = at + 5;
    let name = labels.join(".");
    asked.questions.lock().unwrap().push(name.clone());
    let is_a = question[at + 1..at + 3] == [0, 1];
    let known = labels.last().is_some_and(|label| label == "test");
    let code = if known { 0x80 } else { 0x83 };
    let count = u8::from(known && is_a);
    let mut answer = [&question[..2], &[0x81, code, 0, 1, 0, count, 0, 0, 0, 0], &question[12..end]].concat();
    if count == 1 {
        let mut elsewhere = asked.elsewhere.lock().unwrap();
        let address = elsewhere.get_mut(&name).map_or(Ipv4Addr::LOCALHOST, |addresses| {
            addresses.rotate_left(1);
            addresses[addresses.len() - 1]
        });
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}

fn web(held: Arc<AtomicUsize>, seen: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (held, seen) = (Arc::clone(&held), Arc::clone(&seen));
            thread::spawn(move || _ = page(stream, &held, &seen));
        }
    });
    address
}

fn page(mut stream: TcpStream, held: &AtomicUsize, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let mut host = String::new();
    while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
        if let Some(name) = line.to_lowercase().strip_prefix("host: ") {
            host = name.to_owned();
        }
    }
    seen.lock().unwrap().push(first.clone());
    if !first.contains("/hold") {
        let body = format!("page of {host}\n");
        let length = body.len();
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
    }
    held.fetch_add(1, Ordering::SeqCst);
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    // Until the reader is gone.
    while write!(stream, ".").is_ok() && stream.flush().is_ok() {
        thread::sleep(Duration::from_millis(20));
    }
    held.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

fn tls(config: Arc<ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap();
                let mut stream = StreamOwned::new(connection, stream);
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                }
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nsecure\n");
                stream.conn.send_close_notify();
                let _ = stream.flush();
            });
        }
    });
    address
}
