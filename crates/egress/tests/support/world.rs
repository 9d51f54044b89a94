//! The world: servers on loopback that note what they see.

use super::read_head;
use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{RData, Record, RecordType, rdata::A},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

type Shared<T> = Arc<Mutex<T>>;

pub(crate) struct World {
    pub(crate) nameserver: SocketAddr,
    /// Every question that left the proxy.
    pub(crate) questions: Shared<Vec<String>>,
    /// Name to addresses: one for each question, the last one stays.
    addresses: Shared<HashMap<String, Vec<Ipv4Addr>>>,
    /// The authority of every TLS server here, in PEM.
    pub(crate) root: String,
    issuer: Issuer<'static, KeyPair>,
    tasks: Mutex<JoinSet<()>>,
}

/// What a server has seen.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) port: u16,
    /// The heads of requests, as they came.
    pub(crate) heads: Shared<Vec<String>>,
    /// How many connections.
    pub(crate) connections: Shared<usize>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().pem();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let world = Self {
            nameserver: socket.local_addr().unwrap(),
            questions: Arc::default(),
            addresses: Arc::default(),
            root,
            issuer: Issuer::new(params, key),
            tasks: Mutex::new(JoinSet::new()),
        };
        world.spawn(answer(socket, world.questions.clone(), world.addresses.clone()));
        world
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().unwrap().spawn(task);
    }

    /// A name, with an address for each question; the last one stays.
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().rev().map(|a| a.parse().unwrap()).collect();
        self.addresses.lock().unwrap().insert(name.to_owned(), addresses);
    }

    /// A server that says back what it hears.
    pub(crate) async fn echo(&self) -> Server {
        self.serve(|mut stream, _| async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
            let _ = stream.shutdown().await;
        })
        .await
    }

    /// A server that speaks first, and then hears.
    pub(crate) async fn greeter(&self) -> Server {
        self.serve(|mut stream, _| async move {
            let _ = stream.write_all(b"220 welcome\r\n").await;
            let mut buffer = vec![0; 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                let _ = stream.write_all(&buffer[..read]).await;
            }
        })
        .await
    }

    pub(crate) async fn web(&self) -> Server {
        self.serve(web).await
    }

    /// The same over TLS, with a certificate for these names.
    pub(crate) async fn secure_web(&self, names: &[&str]) -> Server {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        self.serve(move |stream, heads| {
            let acceptor = acceptor.clone();
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    web(stream, heads).await;
                }
            }
        })
        .await
    }

    async fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        handle: impl Fn(tokio::net::TcpStream, Shared<Vec<String>>) -> F + Send + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server { port, heads: Arc::default(), connections: Arc::default() };
        let seen = server.clone();
        self.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *seen.connections.lock().unwrap() += 1;
                connections.spawn(handle(stream, seen.heads.clone()));
            }
        });
        server
    }
}

impl Server {
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

async fn answer(
    socket: UdpSocket,
    questions: Shared<Vec<String>>,
    addresses: Shared<HashMap<String, Vec<Ipv4Addr>>>,
) {
    let mut buffer = [0; 2048];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let Ok(asked) = Message::from_vec(&buffer[..length]) else { continue };
        let query = asked.queries[0].clone();
        let name = query.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
        questions.lock().unwrap().push(name.clone());
        let mut reply = Message::response(asked.metadata.id, asked.metadata.op_code);
        reply.metadata.recursion_available = true;
        match addresses.lock().unwrap().get_mut(&name) {
            None => reply.metadata.response_code = ResponseCode::NXDomain,
            Some(left) if query.query_type() == RecordType::A => {
                let address = if left.len() > 1 { left.pop().unwrap() } else { left[0] };
                // Good for no time at all: the next question is asked again.
                reply.add_answer(Record::from_rdata(query.name().clone(), 0, RData::A(A(address))));
            }
            Some(_) => {}
        }
        reply.add_query(query);
        let _ = socket.send_to(&reply.to_vec().unwrap(), from).await;
    }
}

/// A small web server: one answer for each path, and it notes every head.
async fn web(mut stream: impl AsyncRead + AsyncWrite + Unpin, heads: Shared<Vec<String>>) {
    loop {
        let head = read_head(&mut stream).await;
        if !head.ends_with("\r\n\r\n") {
            return;
        }
        heads.lock().unwrap().push(head.clone());
        let body = read_body(&mut stream, &head).await;
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let ok = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answer = match path.as_str() {
            "/redirect" => "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "/loop" => "HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nX: y\r\n\r\n".to_owned(),
            "/close" => "HTTP/1.1 200 OK\r\n\r\nuntil the end".to_owned(),
            "/both" => "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            "/interim" => format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{}", ok("late")),
            "/ws" => "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".to_owned(),
            "/big" => ok(&"x".repeat(1 << 20)),
            _ => ok(&format!("hello {} bytes", body.len())),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        match path.as_str() {
            "/close" => return drop(stream.shutdown().await),
            "/ws" => {
                let mut buffer = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    let _ = stream.write_all(&buffer[..read]).await;
                }
                return drop(stream.shutdown().await);
            }
            _ => {}
        }
    }
}

async fn read_body(stream: &mut (impl AsyncRead + Unpin), head: &str) -> Vec<u8> {
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if let Some(length) = lower.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        body = vec![0; length.parse().unwrap()];
        let _ = stream.read_exact(&mut body).await;
    } else if lower.contains("transfer-encoding: chunked") {
        while !body.ends_with(b"0\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => body.push(byte),
                Err(_) => break,
            }
        }
    }
    body
}
