//! Commands and files in a container of any provider. PID 1's replies are hostile input: each is checked
//! before it becomes a value of ours.

mod command;
mod descriptors;
mod exec;
mod files;

use async_trait::async_trait;
use atoll_guest_proto::{
    MAX_PROTOCOL, MIN_PROTOCOL, from_status, is_spoken,
    v1::{ConfigureRequest, HelloReply, HelloRequest, guest_client::GuestClient},
};
use atoll_types::{Death, Error, ErrorCode, Result};
pub use command::{Command, Program};
pub use descriptors::Dial;
pub use exec::{ExecEvent, ExecStream, Finished};
pub use files::{FileReader, about_path};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

/// Knows why a guest does not answer.
#[async_trait]
pub trait Lost: Send + Sync {
    /// How the container died, if it did.
    async fn death(&self) -> Option<Death>;
}

/// Adds the token to every call, where PID 1 requires one.
#[derive(Clone)]
struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

type Client = GuestClient<InterceptedService<Channel, Token>>;

/// Changes for later commands; what is none stays.
#[derive(Debug, Clone, Default)]
pub struct GuestChange {
    /// All of it, not some more.
    pub environment: Option<BTreeMap<String, String>>,
    /// Open files of one process.
    pub open_files: Option<u32>,
    /// Processes and threads of one user.
    pub processes: Option<u32>,
    /// The size of the spool.
    pub spool: Option<Spool>,
}

/// How much output of commands is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spool {
    /// Of all together.
    pub bytes: u64,
    /// Of one command that names no limit.
    pub of_one: u64,
}

/// Commands and files in one container.
#[derive(Clone)]
pub struct Guest {
    client: Client,
    lost: Arc<dyn Lost>,
    /// The features that PID 1 announced; empty before the handshake.
    features: Arc<OnceLock<Box<[String]>>>,
    descriptors: Option<Arc<descriptors::Descriptors>>,
}

/// No message of PID 1's needs more.
const LARGEST_MESSAGE: usize = 4 << 20;
const MOST_FEATURES: usize = 64;

impl Guest {
    /// Does the handshake with PID 1 over a channel and agrees on a protocol version.
    pub async fn greet(channel: Channel, token: Option<&str>, lost: Arc<dyn Lost>) -> Result<Self> {
        let guest = Self::silent(channel, token, lost)?;
        guest.hello().await?;
        Ok(guest)
    }

    /// PID 1 of a paused container: the handshake follows after it is resumed ([`Guest::hello`]).
    pub fn silent(channel: Channel, token: Option<&str>, lost: Arc<dyn Lost>) -> Result<Self> {
        let token = token.map(|t| format!("Bearer {t}").parse::<MetadataValue<Ascii>>());
        let token = token.transpose().map_err(|_| Error::internal("the token is not a header value"))?;
        let client =
            GuestClient::with_interceptor(channel, Token(token)).max_decoding_message_size(LARGEST_MESSAGE);
        Ok(Self { client, lost, features: Arc::default(), descriptors: None })
    }

    /// Does the handshake with PID 1, unless that was done.
    pub async fn hello(&self) -> Result<()> {
        if self.features.get().is_some() {
            return Ok(());
        }
        let request = HelloRequest { min_protocol: MIN_PROTOCOL, max_protocol: MAX_PROTOCOL };
        let reply = self.client().hello(request).await;
        let HelloReply { protocol, features, version: _ } = self.check(reply).await?.into_inner();
        if !(MIN_PROTOCOL..=MAX_PROTOCOL).contains(&protocol) {
            let message = format!(
                "atoll-init speaks protocol {protocol}, this release {MIN_PROTOCOL} to {MAX_PROTOCOL}"
            );
            return Err(Error::new(ErrorCode::VersionMismatch, message));
        }
        // A concurrent handshake may have been quicker, with the same result.
        let _ = self.features.set(features.into_iter().take(MOST_FEATURES).collect());
        Ok(())
    }

    /// Whether PID 1 supports this, which an older one may not.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.get().is_some_and(|features| features.iter().any(|f| f == feature))
    }

    fn client(&self) -> Client {
        self.client.clone()
    }

    /// A reply, or why there is none: where the container died, that is the reason.
    async fn check<T>(&self, reply: Result<T, Status>) -> Result<T> {
        match reply {
            Ok(value) => Ok(value),
            Err(status) => Err(self.explain(&status).await),
        }
    }

    async fn explain(&self, status: &Status) -> Error {
        let error = from_status(status);
        // A broken stream has many codes; PID 1's own errors carry one of ours.
        match is_spoken(status) {
            true => error,
            false => self.lost.death().await.map_or(error, Error::died),
        }
    }

    /// Replaces the environment of every later command, and changes how many files it may open and how much
    /// of its output is kept.
    pub async fn configure(&self, change: GuestChange) -> Result<()> {
        let GuestChange { environment, open_files, processes, spool } = change;
        let Spool { bytes, of_one } = spool.unwrap_or_default();
        let request = ConfigureRequest {
            set_environment: environment.is_some(),
            environment: environment.unwrap_or_default().into_iter().collect(),
            open_files: open_files.unwrap_or(0),
            spool_bytes: bytes,
            output_limit: of_one,
            processes: processes.unwrap_or(0),
        };
        let reply = self.client().configure(request).await;
        self.check(reply).await.map(|_| ())
    }
}
