//! Keys typed here: read by a thread of its own, since reading a terminal blocks, and searched for the two
//! keys that detach.

use bytes::Bytes;
use rustix::io::Errno;
use std::time::Duration;
use tokio::sync::mpsc;

const CONTROL_C: u8 = 3;
const CONTROL_P: u8 = 16;
const CONTROL_Q: u8 = 17;
/// How long the first of the two keys is held before it is sent. The second detaches also later, as long as
/// no other key is typed between them.
const HOLD: Duration = Duration::from_millis(500);
const READ: usize = 64 * 1024;

/// The action for what was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Input(Bytes),
    Detach,
    /// Standard input is over.
    End,
}

/// The state of the first of the two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum First {
    /// It was not typed last.
    #[default]
    No,
    Held,
    Sent,
}

pub(super) struct Keys {
    input: mpsc::Receiver<Bytes>,
    /// Only a terminal's keys are searched; other input passes as it is.
    person: bool,
    first: First,
    /// Both keys came, and the keys before them are being sent.
    leaving: bool,
    /// Typed while there was no connection.
    waiting: Vec<u8>,
}

impl Keys {
    pub(super) fn new(person: bool) -> Self {
        let (sender, input) = mpsc::channel(16);
        std::thread::spawn(move || read(&sender));
        Self { input, person, first: First::No, leaving: false, waiting: Vec::new() }
    }

    pub(super) async fn next(&mut self) -> Typed {
        loop {
            if self.leaving {
                return Typed::Detach;
            }
            if !self.waiting.is_empty() {
                return Typed::Input(std::mem::take(&mut self.waiting).into());
            }
            let received = if self.first == First::Held {
                match tokio::time::timeout(HOLD, self.input.recv()).await {
                    Ok(received) => received,
                    Err(_) => {
                        self.first = First::Sent;
                        return Typed::Input(Bytes::from_static(&[CONTROL_P]));
                    }
                }
            } else {
                self.input.recv().await
            };
            let Some(bytes) = received else { return Typed::End };
            if let Some(typed) = self.search(bytes) {
                return typed;
            }
        }
    }

    /// The input without the keys that detach; none if that is only a held one.
    fn search(&mut self, bytes: Bytes) -> Option<Typed> {
        if !self.person {
            return Some(Typed::Input(bytes));
        }
        let mut out = Vec::with_capacity(bytes.len() + 1);
        for byte in bytes {
            let first = std::mem::take(&mut self.first);
            if first != First::No && byte == CONTROL_Q {
                self.leaving = true;
                break;
            }
            out.extend((first == First::Held).then_some(CONTROL_P));
            match byte {
                CONTROL_P => self.first = First::Held,
                byte => out.push(byte),
            }
        }
        (!out.is_empty()).then(|| Typed::Input(out.into()))
    }

    /// Waits for Ctrl-C, and keeps other input meanwhile, within bounds.
    pub(super) async fn gives_up(&mut self) {
        while let Some(bytes) = self.input.recv().await {
            if self.person && bytes.contains(&CONTROL_C) {
                return;
            }
            self.waiting.extend_from_slice(&bytes);
            if self.waiting.len() >= READ {
                break;
            }
        }
        std::future::pending::<()>().await;
    }
}

fn read(sender: &mpsc::Sender<Bytes>) {
    let mut buffer = vec![0; READ];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Err(Errno::INTR) => {}
            Ok(length @ 1..) => {
                if sender.blocking_send(Bytes::copy_from_slice(&buffer[..length])).is_err() {
                    return;
                }
            }
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(person: bool) -> (mpsc::Sender<Bytes>, Keys) {
        let (sender, input) = mpsc::channel(16);
        (sender, Keys { input, person, first: First::No, leaving: false, waiting: Vec::new() })
    }

    async fn all(person: bool, pieces: &[&'static [u8]]) -> (Vec<u8>, Typed) {
        let (sender, mut keys) = keys(person);
        for piece in pieces {
            sender.send(Bytes::from_static(piece)).await.unwrap();
        }
        drop(sender);
        let mut sent = Vec::new();
        loop {
            match keys.next().await {
                Typed::Input(bytes) => sent.extend_from_slice(&bytes),
                other => return (sent, other),
            }
        }
    }

    #[tokio::test]
    async fn two_keys_detach_and_one_does_not() {
        assert_eq!(all(true, &[b"ls\r"]).await, (b"ls\r".to_vec(), Typed::End));
        assert_eq!(all(true, &[b"ls\x10\x11x"]).await, (b"ls".to_vec(), Typed::Detach));
        assert_eq!(all(true, &[b"\x10", b"\x11"]).await.1, Typed::Detach);
        assert_eq!(all(true, &[b"\x10x\x11"]).await, (b"\x10x\x11".to_vec(), Typed::End));
        assert_eq!(all(true, &[b"\x10\x10", b"\x11"]).await.1, Typed::Detach);
        assert_eq!(all(false, &[b"a\x10\x11b"]).await, (b"a\x10\x11b".to_vec(), Typed::End));
    }

    #[tokio::test]
    async fn a_key_that_waits_in_vain_is_sent() {
        let (sender, mut keys) = keys(true);
        sender.send(Bytes::from_static(b"\x10")).await.unwrap();
        assert_eq!(keys.next().await, Typed::Input(Bytes::from_static(b"\x10")));
        sender.send(Bytes::from_static(b"x\x11")).await.unwrap();
        assert_eq!(keys.next().await, Typed::Input(Bytes::from_static(b"x\x11")));
    }

    #[tokio::test]
    async fn two_keys_detach_whatever_the_pause_between_them() {
        let (sender, mut keys) = keys(true);
        sender.send(Bytes::from_static(b"\x10")).await.unwrap();
        assert_eq!(keys.next().await, Typed::Input(Bytes::from_static(b"\x10")));
        tokio::time::sleep(HOLD).await;
        sender.send(Bytes::from_static(b"\x11")).await.unwrap();
        assert_eq!(keys.next().await, Typed::Detach);
    }
}
