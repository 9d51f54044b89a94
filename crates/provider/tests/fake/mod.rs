//! A PID 1 of a test's making: calls know Hello only, and on connections of descriptors a function of the
//! test's speaks, on a thread of its own.

use async_trait::async_trait;
use atoll_guest_proto::{
    DESCRIPTOR_MAGIC, from_frame, to_frame,
    v1::{
        DescriptorReply, DescriptorRequest, HelloReply, HelloRequest, descriptor_reply::Reply,
        descriptor_request::Request,
    },
};
use atoll_provider::{Dial, Guest, Lost};
use atoll_types::{Death, Error, Result};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::{
    fs,
    io::{IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex},
    thread::JoinHandle,
};
use tonic::{Response, Status, codegen::Service, transport::Endpoint};

/// PID 1's end of a connection.
pub(crate) struct End(UnixStream);

impl End {
    /// The next request; none when the connection has ended.
    pub(crate) fn try_request(&mut self) -> Option<Request> {
        let mut header = [0; 4];
        self.0.read_exact(&mut header).ok()?;
        let mut body = vec![0; u32::from_be_bytes(header) as usize];
        self.0.read_exact(&mut body).ok()?;
        Some(from_frame::<DescriptorRequest>(&body).unwrap().request.unwrap())
    }

    pub(crate) fn request(&mut self) -> Request {
        self.try_request().unwrap()
    }

    pub(crate) fn answer(&mut self, reply: Reply, passed: &[BorrowedFd<'_>]) {
        let frame = to_frame(&DescriptorReply { reply: Some(reply) });
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !passed.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(passed)));
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL);
        // The caller may have gone.
        assert!(sent.is_err() || sent == Ok(frame.len()));
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // The caller may have gone.
        let _ = self.0.write_all(bytes);
    }

    pub(crate) fn wait_for_end(&mut self) {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
    }
}

type Script = dyn Fn(&mut End) + Send + Sync;

/// Hands out connections to the test's function.
pub(crate) struct FakeDial {
    script: Arc<Script>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    dialled: Mutex<usize>,
}

impl FakeDial {
    pub(crate) fn new(script: impl Fn(&mut End) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { script: Arc::new(script), threads: Mutex::default(), dialled: Mutex::default() })
    }

    /// How many connections were made.
    pub(crate) fn dialled(&self) -> usize {
        *self.dialled.lock().unwrap()
    }

    /// Waits for every connection's end, and for what its function found.
    pub(crate) fn join(&self) {
        for thread in self.threads.lock().unwrap().drain(..) {
            thread.join().unwrap();
        }
    }
}

#[async_trait]
impl Dial for FakeDial {
    async fn dial(&self) -> Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let script = Arc::clone(&self.script);
        *self.dialled.lock().unwrap() += 1;
        self.threads.lock().unwrap().push(std::thread::spawn(move || {
            let mut end = End(theirs);
            let mut magic = [0; DESCRIPTOR_MAGIC.len()];
            end.0.read_exact(&mut magic).unwrap();
            assert_eq!(magic, DESCRIPTOR_MAGIC);
            script(&mut end);
        }));
        Ok(ours)
    }
}

/// Never has a connection.
pub(crate) struct NoDial;

#[async_trait]
impl Dial for NoDial {
    async fn dial(&self) -> Result<UnixStream> {
        Err(Error::internal("there is none"))
    }
}

struct Alive;

#[async_trait]
impl Lost for Alive {
    async fn death(&self) -> Option<Death> {
        None
    }
}

/// Answers Hello with these features.
#[derive(Clone)]
struct Hello(Vec<String>);

impl tonic::server::UnaryService<HelloRequest> for Hello {
    type Response = HelloReply;
    type Future = std::future::Ready<Result<Response<HelloReply>, Status>>;

    fn call(&mut self, request: tonic::Request<HelloRequest>) -> Self::Future {
        let protocol = request.into_inner().max_protocol;
        let reply = HelloReply { protocol, version: "0".into(), features: self.0.clone() };
        std::future::ready(Ok(Response::new(reply)))
    }
}

impl Service<hyper::Request<hyper::body::Incoming>> for Hello {
    type Response = hyper::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = futures_util::future::BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: hyper::Request<hyper::body::Incoming>) -> Self::Future {
        let hello = self.clone();
        Box::pin(async move {
            if !request.uri().path().ends_with("/Hello") {
                return Ok(Status::unimplemented("only Hello").into_http());
            }
            let codec = tonic_prost::ProstCodec::<HelloReply, HelloRequest>::default();
            Ok(tonic::server::Grpc::new(codec).unary(hello, request).await)
        })
    }
}

/// A guest that was greeted.
pub(crate) async fn greet(features: &[&str]) -> Guest {
    let hello = Hello(features.iter().map(ToString::to_string).collect());
    let connector = tower::service_fn(move |_| {
        let hello = hyper_util::service::TowerToHyperService::new(hello.clone());
        async move {
            let (ours, theirs) = tokio::net::UnixStream::pair()?;
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(theirs), hello));
            Ok::<_, std::io::Error>(TokioIo::new(ours))
        }
    });
    let channel = Endpoint::from_static("http://fake").connect_with_connector(connector).await.unwrap();
    Guest::greet(channel, None, Arc::new(Alive)).await.unwrap()
}

/// One whose files pass as descriptors.
pub(crate) async fn greet_with(dial: &Arc<FakeDial>) -> Guest {
    greet(&["descriptors"]).await.with_descriptors(Arc::clone(dial) as _)
}

/// What the kernel calls an open file.
pub(crate) fn name(file: &OwnedFd) -> String {
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).unwrap();
    link.to_string_lossy().into_owned()
}

/// How often this process has it open.
pub(crate) fn copies(name: &str) -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|e| fs::read_link(e.path()).is_ok_and(|to| to.to_string_lossy() == name)).count()
}
