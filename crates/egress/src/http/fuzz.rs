//! Whatever bytes come in, parsing never panics, and the forwarded message parses as the one that was decided on.

use super::{
    body::{Coding, Framing, relay},
    head,
    io::{Buffered, Source},
    target::{self, Front},
};
use proptest::prelude::*;
use std::{
    io::{self, Cursor},
    task::{Context, Poll},
};

impl Source for Cursor<Vec<u8>> {
    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn abort(&self) {}
}

/// Passes a chunked message on in another coding, and returns the bytes left after it.
fn passed(bytes: Vec<u8>, coding: Coding) -> Option<(Vec<u8>, Vec<u8>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut from = Buffered::new(Cursor::new(bytes), Vec::new());
    let mut out = Vec::new();
    let done = runtime.block_on(relay(&mut from, Framing::Chunked, &mut out, coding, None));
    let (_, rest) = from.into_parts();
    done.ok().map(|()| (out, rest))
}

/// Heads that are nearly valid, so that many of them are.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let host = prop_oneof![
        Just("a.example".to_owned()),
        Just("A.Example:80".to_owned()),
        Just("127.0.0.1".to_owned()),
        Just("[::1]:8080".to_owned()),
        Just("0x7f.1".to_owned()),
        Just("a.example@b.example".to_owned()),
        "[a-z0-9.:@\\[\\]\\\\/#%-]{0,20}",
    ];
    let line = prop_oneof![
        Just("Content-Length: 3".to_owned()),
        Just("Transfer-Encoding: chunked".to_owned()),
        Just("Connection: upgrade, host".to_owned()),
        Just("Upgrade: websocket".to_owned()),
        Just("X: y\nHost: b.example".to_owned()),
        Just(" folded".to_owned()),
        "[A-Za-z-]{1,10}: ?\\PC{0,20}",
        "Host: ?[a-z0-9.:]{0,20}",
    ];
    let method = prop_oneof![Just("GET".to_owned()), Just("CONNECT".to_owned()), "[A-Z]{1,8}"];
    let end = prop_oneof![Just("\r\n"), Just("\n"), Just("\r")];
    let parts = (method, host.clone(), host, "[/?a-z.%#\\\\ ]{0,12}", prop::collection::vec(line, 0..5), end);
    parts.prop_map(|(method, host, again, path, lines, end)| {
        let mut text = format!("{method} http://{host}{path} HTTP/1.1\r\nHost: {again}\r\n");
        for line in lines {
            text.push_str(&line);
            text.push_str(if line.len() % 7 == 0 { end } else { "\r\n" });
        }
        text.push_str("\r\n");
        text.into_bytes()
    })
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(Some((read, length))) = head::request(bytes) else { return Ok(()) };
    prop_assert!(length <= bytes.len());
    let Ok(to) = target::destination(&read, &Front::Proxy) else { return Ok(()) };
    let sent = target::forwarded(&read, &to, false);
    let (again, whole) = head::request(&sent).expect("readable").expect("whole");
    prop_assert_eq!(whole, sent.len(), "one head and nothing after it");
    prop_assert_eq!(again.framing, read.framing);
    prop_assert_eq!(&again.method, &read.method);
    let inside = target::destination(&again, &Front::Inside(to.host.clone(), to.port));
    prop_assert_eq!(inside.as_ref(), Ok(&to), "the same host: {}", String::from_utf8_lossy(&sent));
    // A server that does not know its own name from the connection reads the same from `Host`.
    let text = again.only("host").expect("one").expect("there");
    prop_assert_eq!(target::authority(text, Some(80)), Ok((to.host, to.port)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::fuzz_cases()))]

    #[test]
    fn heads_that_are_nearly_right(bytes in nearly()) {
        check(&bytes)?;
    }

    #[test]
    fn heads_with_bytes_changed(
        bytes in nearly(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = bytes;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check(&bytes)?;
    }

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check(&bytes)?;
        let _ = head::response(&bytes);
    }

    #[test]
    fn a_chunked_message_is_the_same_after_it_was_framed_anew(
        parts in prop::collection::vec(prop_oneof![
            "[0-9a-f]{1,2}(;[a-z=]{0,5})?",
            "[a-z]{0,20}",
            Just("\r\n".to_owned()),
            Just("\n".to_owned()),
            Just("0\r\n\r\n".to_owned()),
            Just("5\r\nhello\r\n".to_owned()),
        ], 0..12),
    ) {
        let bytes = parts.concat().into_bytes();
        if let Some((plain, _)) = passed(bytes.clone(), Coding::Raw) {
            let (chunked, _) = passed(bytes, Coding::Chunked).expect("the same once more");
            let (again, rest) = passed(chunked, Coding::Raw).expect("what is written is readable");
            prop_assert_eq!(again, plain);
            prop_assert!(rest.is_empty(), "and ends where it ends");
        }
    }

    #[test]
    fn cut_anywhere_the_end_is_found_in_the_same_place(bytes in nearly(), step in 1_usize..40) {
        let whole = head::Scan::default().end(&bytes);
        let mut scan = head::Scan::default();
        let mut found = Ok(None);
        for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
            found = scan.end(&bytes[..end]);
            if found != Ok(None) { break }
        }
        prop_assert_eq!(found, whole);
    }
}
