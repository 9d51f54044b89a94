//! Short forms of requests and answers.

use super::Guest;
use atoll_guest_proto::v1::{
    Arguments, AttachRequest, ExecEvent, ExecInfo, ExecRequest, Output, Stream, exec_event::Event,
    exec_request::Program,
};
use atoll_types::ExecId;
use tonic::Streaming;

pub(crate) fn new_id() -> String {
    ExecId::random().to_string()
}

pub(crate) fn sh(script: &str) -> ExecRequest {
    ExecRequest { exec_id: new_id(), program: Some(Program::Shell(script.into())), ..ExecRequest::default() }
}

pub(crate) fn argv(words: &[&str]) -> ExecRequest {
    let argv = words.iter().map(|w| w.as_bytes().to_vec()).collect();
    let program = Some(Program::Arguments(Arguments { argv }));
    ExecRequest { exec_id: new_id(), program, ..ExecRequest::default() }
}

pub(crate) fn python(script: &str) -> ExecRequest {
    argv(&["/usr/bin/python3", "-c", script])
}

/// All that came over one stream.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) started: Option<ExecInfo>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) ended: Option<ExecInfo>,
}

impl Seen {
    fn of(&self, stream: Stream) -> String {
        let chunks = self.outputs.iter().filter(|o| o.stream() == stream);
        String::from_utf8(chunks.flat_map(|o| o.data.to_vec()).collect()).unwrap()
    }

    pub(crate) fn stdout(&self) -> String {
        self.of(Stream::Stdout)
    }

    pub(crate) fn stderr(&self) -> String {
        self.of(Stream::Stderr)
    }

    pub(crate) fn info(&self) -> &ExecInfo {
        self.ended.as_ref().expect("the stream ended without its last event")
    }

    /// Every byte with its stream; checks that offsets have no gap.
    pub(crate) fn bytes(&self) -> Vec<(Stream, u8)> {
        let mut next = self.outputs.first().map_or(0, |o| o.offset);
        let mut all = Vec::new();
        for output in &self.outputs {
            assert_eq!(output.offset, next);
            next += output.data.len() as u64;
            all.extend(output.data.iter().map(|b| (output.stream(), *b)));
        }
        all
    }

    pub(crate) fn add(&mut self, event: ExecEvent) {
        assert!(self.ended.is_none(), "an event after the end");
        match event.event.unwrap() {
            Event::Started(info) => self.started = Some(info),
            Event::Output(output) => self.outputs.push(output),
            Event::Ended(info) => self.ended = Some(info),
        }
    }
}

pub(crate) async fn collect(mut events: Streaming<ExecEvent>) -> Seen {
    let mut seen = Seen::default();
    while let Some(event) = events.message().await.unwrap() {
        seen.add(event);
    }
    seen
}

impl Guest {
    /// Runs a command to its end.
    pub(crate) async fn run(&self, request: ExecRequest) -> Seen {
        collect(self.client.clone().exec(request).await.unwrap().into_inner()).await
    }

    /// What a script prints, without the last newline; it must succeed.
    pub(crate) async fn output(&self, script: &str) -> String {
        let seen = self.run(sh(script)).await;
        assert_eq!(seen.info().exit_code, Some(0), "{script}: {} {:?}", seen.stderr(), seen.ended);
        seen.stdout().trim_end().to_owned()
    }

    pub(crate) async fn attach(&self, id: &str, from: u64, follow: bool) -> Seen {
        let request = AttachRequest { exec_id: id.into(), from, follow };
        collect(self.client.clone().attach(request).await.unwrap().into_inner()).await
    }
}
