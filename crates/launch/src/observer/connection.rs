//! A connection to the observer. Neither reading nor writing waits: a client that sends a part of a request, or
//! does not read its answer, delays no other.

use atoll_launch_proto::{
    HEADER, MAX_ANSWER, MAX_REQUEST, ObserveAnswer, ObserveRequest, decode, encode, frame_length,
};
use rustix::event::PollFlags;
use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// How long a client may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Connection {
    pub(super) stream: UnixStream,
    /// Whether its client is root.
    pub(super) root: bool,
    /// Whether a request of it has no answer yet.
    pub(super) busy: bool,
    input: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    answered: Instant,
    /// Its client is gone or sent a malformed request.
    closed: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, root: bool) -> Self {
        let (input, answer) = (Vec::new(), Vec::new());
        Self { stream, root, busy: false, input, answer, sent: 0, answered: Instant::now(), closed: false }
    }

    /// What to wait for. The next request is not read before the answer to this one is.
    pub(super) fn interest(&self) -> PollFlags {
        match (self.unsent(), self.busy) {
            (0, false) => PollFlags::IN,
            (0, true) => PollFlags::empty(),
            _ => PollFlags::OUT,
        }
    }

    /// How many bytes of its answer are not sent yet.
    pub(super) fn unsent(&self) -> usize {
        self.answer.len() - self.sent
    }

    /// Whether it is of no more use.
    pub(super) fn is_over(&self) -> bool {
        self.closed || self.unsent() > 0 && self.answered.elapsed() > PATIENCE
    }

    /// Reads and writes what is possible at once, after a poll returned these events.
    pub(super) fn transfer(&mut self, events: PollFlags) {
        if self.unsent() > 0 {
            self.send();
        } else if !self.busy {
            self.receive();
        } else {
            self.closed |= events.intersects(PollFlags::HUP | PollFlags::ERR);
        }
    }

    fn receive(&mut self) {
        let mut piece = [0; 4096];
        while self.input.len() <= HEADER + MAX_REQUEST {
            match self.stream.read(&mut piece) {
                Ok(0) => return self.closed = true,
                Ok(n) => self.input.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.closed = true,
            }
        }
        self.closed = true;
    }

    /// The next request that has arrived as a whole, if the one before is answered.
    pub(super) fn next_request(&mut self) -> Option<ObserveRequest> {
        if self.busy || self.unsent() > 0 {
            return None;
        }
        let header = self.input.first_chunk::<HEADER>()?;
        let Ok(length) = frame_length(*header, MAX_REQUEST) else {
            self.closed = true;
            return None;
        };
        let body = self.input.get(HEADER..HEADER + length)?;
        let request = decode(body).ok();
        self.closed |= request.is_none();
        self.input.drain(..HEADER + length);
        request
    }

    /// Answers its request, as far as its client reads.
    pub(super) fn answer(&mut self, answer: &ObserveAnswer) {
        self.busy = false;
        match encode(answer, MAX_ANSWER) {
            Ok(frame) => (self.answer, self.sent, self.answered) = (frame, 0, Instant::now()),
            Err(_) => return self.closed = true,
        }
        self.send();
    }

    fn send(&mut self) {
        while self.unsent() > 0 {
            match self.stream.write(&self.answer[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.closed = true,
            }
        }
        (self.answer, self.sent) = (Vec::new(), 0);
    }
}
