//! The gRPC service: each call parses its request, calls `exec` or `files`, and builds the answer. No decision is
//! made here.

use crate::{
    exec::{EventStream, Execs, follow, infos},
    files::{EntryStream, FileStream, Files},
    sockets,
};
use atoll_guest_proto::{
    MAX_PROTOCOL, MIN_PROTOCOL, negotiate, to_status,
    v1::{
        AttachRequest, ConfigureReply, ConfigureRequest, ExecInfo, ExecRef, ExecRequest, FileEntry,
        ForgetReply, HelloReply, HelloRequest, ListDirRequest, ListExecsReply, ListExecsRequest,
        MakeDirRequest, MoveRequest, ReadFileRequest, RemoveReply, RemoveRequest, ResizeReply, ResizeRequest,
        SignalReply, SignalRequest, SocketRef, StatRequest, StdinChunk, StdinReply, WriteChunk,
        guest_server::Guest,
    },
};
use atoll_types::{Error, ErrorCode};
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct GuestService {
    execs: Execs,
    files: Files,
    features: Vec<String>,
}

impl GuestService {
    pub(crate) fn new(execs: Execs, files: Files, features: Vec<String>) -> Self {
        Self { execs, files, features }
    }
}

/// Characters of a command in a list.
const LISTED_COMMAND: usize = 200;

type RpcResult<T> = Result<Response<T>, Status>;

fn reply<T>(result: Result<T, Error>) -> RpcResult<T> {
    result.map(Response::new).map_err(|e| to_status(&e))
}

#[tonic::async_trait]
impl Guest for GuestService {
    type ExecStream = EventStream;
    type AttachStream = EventStream;
    type ListDirStream = EntryStream;
    type ReadFileStream = FileStream;

    async fn hello(&self, request: Request<HelloRequest>) -> RpcResult<HelloReply> {
        let HelloRequest { min_protocol, max_protocol } = request.into_inner();
        let protocol = negotiate(min_protocol..=max_protocol, MIN_PROTOCOL..=MAX_PROTOCOL);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let found =
            protocol.map(|protocol| HelloReply { protocol, version, features: self.features.clone() });
        reply(found.ok_or_else(|| {
            let ours = format!("atoll-init speaks protocols {MIN_PROTOCOL} to {MAX_PROTOCOL}");
            Error::new(ErrorCode::VersionMismatch, ours)
        }))
    }

    async fn configure(&self, request: Request<ConfigureRequest>) -> RpcResult<ConfigureReply> {
        reply(self.execs.configure(request.into_inner()).map(|()| ConfigureReply {}))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> RpcResult<EventStream> {
        let exec = self.execs.start(request.into_inner()).map_err(|e| to_status(&e))?;
        // Following begins before the first byte can come, so that a lossless command loses none.
        let events = follow(exec.clone(), self.execs.spool.clone(), 0, true);
        reply(self.execs.started(&exec).await.map(|()| events))
    }

    async fn start_exec(&self, request: Request<ExecRequest>) -> RpcResult<ExecInfo> {
        let exec = self.execs.start(request.into_inner()).map_err(|e| to_status(&e))?;
        reply(self.execs.started(&exec).await.map(|()| exec.info()))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> RpcResult<EventStream> {
        let AttachRequest { exec_id, from, follow: wait } = request.into_inner();
        reply(self.execs.get(&exec_id).map(|exec| follow(exec, self.execs.spool.clone(), from, wait)))
    }

    async fn get_exec(&self, request: Request<ExecRef>) -> RpcResult<ExecInfo> {
        let exec = self.execs.get(&request.get_ref().exec_id).map_err(|e| to_status(&e))?;
        let gone = || Error::internal("nothing is known of the command");
        reply(infos(&[exec]).await.pop().ok_or_else(gone))
    }

    async fn list_execs(&self, _: Request<ListExecsRequest>) -> RpcResult<ListExecsReply> {
        let mut execs = infos(&self.execs.all()).await;
        for info in &mut execs {
            // Many commands must fit into one message; a request for one returns more of its text.
            if let Some((end, _)) = info.command.char_indices().nth(LISTED_COMMAND) {
                info.command.truncate(end);
            }
        }
        Ok(Response::new(ListExecsReply { execs }))
    }

    async fn write_stdin(&self, request: Request<Streaming<StdinChunk>>) -> RpcResult<StdinReply> {
        let mut chunks = request.into_inner();
        let mut exec = None;
        let mut written = 0;
        while let Some(StdinChunk { exec_id, data, close }) = chunks.message().await? {
            let exec = match &exec {
                Some(exec) => exec,
                None => exec.insert(self.execs.get(&exec_id).map_err(|e| to_status(&e))?),
            };
            let open = data.is_empty() || exec.feed(&data, &mut written).await.map_err(|e| to_status(&e))?;
            if close {
                exec.end_input().await;
            }
            if close || !open {
                break;
            }
        }
        Ok(Response::new(StdinReply { written }))
    }

    async fn signal_exec(&self, request: Request<SignalRequest>) -> RpcResult<SignalReply> {
        let SignalRequest { exec_id, signal } = request.into_inner();
        reply(self.execs.get(&exec_id).and_then(|exec| exec.signal(signal)).map(|()| SignalReply {}))
    }

    async fn resize_exec(&self, request: Request<ResizeRequest>) -> RpcResult<ResizeReply> {
        let ResizeRequest { exec_id, terminal } = request.into_inner();
        reply(self.execs.get(&exec_id).and_then(|exec| exec.resize(terminal)).map(|()| ResizeReply {}))
    }

    async fn kill_exec(&self, request: Request<ExecRef>) -> RpcResult<ExecInfo> {
        let exec = self.execs.get(&request.get_ref().exec_id).map_err(|e| to_status(&e))?;
        exec.kill().await;
        Ok(Response::new(exec.info()))
    }

    async fn forget_exec(&self, request: Request<ExecRef>) -> RpcResult<ForgetReply> {
        reply(self.execs.forget(&request.get_ref().exec_id).map(|()| ForgetReply {}))
    }

    async fn find_socket(&self, request: Request<SocketRef>) -> RpcResult<ExecRef> {
        reply(sockets::owner(&self.files, &self.execs, request.into_inner()).await)
    }

    async fn stat(&self, request: Request<StatRequest>) -> RpcResult<FileEntry> {
        reply(self.files.stat(request.into_inner()).await)
    }

    async fn list_dir(&self, request: Request<ListDirRequest>) -> RpcResult<EntryStream> {
        reply(self.files.list(request.into_inner()).await)
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> RpcResult<FileStream> {
        reply(self.files.read(request.into_inner()).await)
    }

    async fn write_file(&self, request: Request<Streaming<WriteChunk>>) -> RpcResult<FileEntry> {
        self.files.write(request.into_inner()).await.map(Response::new)
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> RpcResult<RemoveReply> {
        reply(self.files.remove(request.into_inner()).await.map(|()| RemoveReply {}))
    }

    async fn make_dir(&self, request: Request<MakeDirRequest>) -> RpcResult<FileEntry> {
        reply(self.files.make_dir(request.into_inner()).await)
    }

    async fn r#move(&self, request: Request<MoveRequest>) -> RpcResult<FileEntry> {
        reply(self.files.rename(request.into_inner()).await)
    }
}
