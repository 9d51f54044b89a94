//! Redacting secrets in texts and streams. A secret is searched as it is, in Base64 (wherever it begins
//! within a group of three, in both alphabets) and percent-encoded. All forms are searched at once with one
//! automaton (Aho and Corasick's), fed byte by byte: the time is linear however the bytes are cut, and what
//! is held back is never longer than the longest form. The crate of that name cannot stop in the middle of a
//! match and say how much of it there is, which a stream needs.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use std::{collections::VecDeque, sync::Arc};

/// Shorter values would redact half of every text.
const SHORTEST: usize = 4;

/// The replacement of a secret.
const MARK: &[u8] = b"[secret]";

/// A set of secrets. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    nodes: Arc<Vec<Node>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor(..)")
    }
}

#[derive(Default)]
struct Node {
    next: Vec<(u8, u32)>,
    /// The node of the longest suffix that begins a form too.
    fail: u32,
    /// How many bytes led here.
    depth: u32,
    /// The longest form that ends here; zero: none.
    ends: u32,
}

impl Node {
    fn step(&self, byte: u8) -> Option<u32> {
        self.next.binary_search_by_key(&byte, |(byte, _)| *byte).ok().map(|at| self.next[at].1)
    }
}

impl Redactor {
    /// A redactor of these secrets; those shorter than four bytes are ignored.
    pub fn new<T: AsRef<[u8]>>(values: impl IntoIterator<Item = T>) -> Self {
        let mut nodes = vec![Node::default()];
        for value in values {
            if value.as_ref().len() >= SHORTEST {
                forms(value.as_ref()).iter().for_each(|form| insert(&mut nodes, form));
            }
        }
        link(&mut nodes);
        Self { nodes: Arc::new(nodes) }
    }

    /// The text without secrets.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut stream = self.stream();
        let mut safe = stream.feed(text.as_bytes());
        safe.extend(stream.finish());
        // A form may be cut out of the middle of a letter only where the secret is no text.
        String::from_utf8_lossy(&safe).into_owned()
    }

    /// Redacts bytes that come in pieces.
    #[must_use]
    pub fn stream(&self) -> Stream {
        Stream {
            redactor: self.clone(),
            state: 0,
            held: VecDeque::new(),
            from: 0,
            secret: VecDeque::new(),
            marked: None,
        }
    }
}

fn insert(nodes: &mut Vec<Node>, form: &[u8]) {
    let mut at = 0;
    for (byte, depth) in form.iter().zip(1..) {
        at = match nodes[at].next.binary_search_by_key(byte, |(byte, _)| *byte) {
            Ok(found) => nodes[at].next[found].1 as usize,
            Err(place) => {
                let fresh = nodes.len();
                nodes[at].next.insert(place, (*byte, fresh as u32));
                nodes.push(Node { depth, ..Node::default() });
                fresh
            }
        };
    }
    nodes[at].ends = form.len() as u32;
}

/// Computes for every node where to continue when the next byte does not match.
fn link(nodes: &mut [Node]) {
    let mut queue: VecDeque<u32> = nodes[0].next.iter().map(|(_, child)| *child).collect();
    while let Some(at) = queue.pop_front() {
        for (byte, child) in nodes[at as usize].next.clone() {
            let mut fail = nodes[at as usize].fail;
            let fallback = loop {
                match nodes[fail as usize].step(byte) {
                    Some(next) => break next,
                    None if fail == 0 => break 0,
                    None => fail = nodes[fail as usize].fail,
                }
            };
            nodes[child as usize].fail = fallback;
            let ends = nodes[fallback as usize].ends;
            let own = &mut nodes[child as usize].ends;
            *own = (*own).max(ends);
            queue.push_back(child);
        }
    }
}

/// All forms of a secret.
fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![value.to_vec()];
    for shift in 0..3 {
        let shifted = [&[0; 2][..shift], value].concat();
        // The characters that depend on this value alone, and not on its neighbours.
        let (first, last) = ((shift * 8).div_ceil(6), shifted.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)] {
            forms.push(text.as_bytes()[first..last].to_vec());
        }
    }
    let encoded = |digits: &[u8; 16], space: &[u8]| {
        let mut text = Vec::new();
        for byte in value {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(*byte),
                b' ' if !space.is_empty() => text.extend(space),
                _ => text.extend([b'%', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]),
            }
        }
        text
    };
    for digits in [b"0123456789ABCDEF", b"0123456789abcdef"] {
        forms.push(encoded(digits, b""));
        forms.push(encoded(digits, b"+"));
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

/// A stream in pieces. Positions are counted from the beginning of the stream.
#[derive(Debug)]
pub struct Stream {
    redactor: Redactor,
    state: u32,
    /// Bytes that may still turn out to be a secret, or part of one.
    held: VecDeque<u8>,
    /// The position of the first of them.
    from: u64,
    /// The secret ranges among them, in order, and never touching.
    secret: VecDeque<(u64, u64)>,
    /// Where the last secret that was replaced ended.
    marked: Option<u64>,
}

impl Stream {
    /// The bytes that are safe to show after this piece.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<u8> {
        let nodes = self.redactor.nodes.clone();
        if nodes.len() < 2 {
            return piece.to_vec();
        }
        let mut safe = Vec::with_capacity(piece.len());
        for byte in piece {
            let mut state = self.state;
            self.state = loop {
                match nodes[state as usize].step(*byte) {
                    Some(next) => break next,
                    None if state == 0 => break 0,
                    None => state = nodes[state as usize].fail,
                }
            };
            let Node { depth, ends, .. } = nodes[self.state as usize];
            self.held.push_back(*byte);
            if ends > 0 {
                self.hide(u64::from(ends));
            }
            self.release(self.held.len() - depth as usize, &mut safe);
        }
        safe
    }

    /// The bytes that were held back; the redactor is then ready for another stream.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut safe = Vec::new();
        self.release(self.held.len(), &mut safe);
        (self.state, self.marked) = (0, None);
        safe
    }

    /// The last bytes are a secret.
    fn hide(&mut self, count: u64) {
        let end = self.from + self.held.len() as u64;
        let mut start = end - count;
        while let Some((from, _)) = self.secret.back().copied().filter(|(_, to)| *to >= start) {
            start = start.min(from);
            self.secret.pop_back();
        }
        self.secret.push_back((start, end));
    }

    fn release(&mut self, count: usize, safe: &mut Vec<u8>) {
        for byte in self.held.drain(..count) {
            let place = self.from;
            self.from += 1;
            match self.secret.front().copied() {
                Some((from, to)) if from <= place => {
                    if self.marked != Some(place) {
                        safe.extend(MARK);
                    }
                    self.marked = Some(place + 1);
                    if place + 1 == to {
                        self.secret.pop_front();
                    }
                }
                _ => safe.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;
    use proptest::{collection::vec, prelude::*, sample::select};

    #[test]
    fn every_form_is_found() {
        let secret = "pa ss/w?rd+\u{e9}";
        let redactor = Redactor::new([secret]);
        for before in ["", "x", "xy", "xyz"] {
            for after in ["", "x", "xy"] {
                let whole = format!("{before}{secret}{after}");
                for text in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
                    let shown = redactor.text(&text);
                    assert!(shown.contains("[secret]"), "{text} is shown as {shown}");
                    assert!(shown.len() <= 8 + (before.len() + after.len() + 4) * 2, "{shown}");
                }
            }
        }
        assert_eq!(redactor.text("a=pa%20ss%2Fw%3Frd%2B%C3%A9&b"), "a=[secret]&b");
        assert_eq!(redactor.text("a=pa+ss%2fw%3frd%2b%c3%a9&b"), "a=[secret]&b");
        assert_eq!(redactor.text(&format!("<{secret}{secret}>")), "<[secret]>");
        assert_eq!(redactor.text("nothing"), "nothing");
        assert_eq!(Redactor::new(["abc"]).text("abc"), "abc", "too short to be a secret");
        assert_eq!(Redactor::default().text("abc"), "abc");
    }

    #[test]
    fn secrets_that_overlap_are_both_gone() {
        let redactor = Redactor::new(["abcdef", "defghi", "cdef", "xabcdefy"]);
        assert_eq!(redactor.text("-abcdefghi-"), "-[secret]-");
        assert_eq!(redactor.text("-xabcdefz"), "-x[secret]z");
        assert_eq!(redactor.text("abcde"), "abcde");
    }

    #[test]
    fn a_long_text_in_single_bytes_takes_no_longer_than_in_one_piece() {
        // Would take minutes where a piece is compared with all that is held.
        let text = "a".repeat(200_000);
        let shown = |secret: &str| {
            let mut stream = Redactor::new([secret]).stream();
            let mut shown: Vec<u8> = text.bytes().flat_map(|byte| stream.feed(&[byte])).collect();
            shown.extend(stream.finish());
            String::from_utf8(shown).unwrap()
        };
        assert_eq!(shown(&("a".repeat(20_000) + "b")), text);
        assert_eq!(shown(&"a".repeat(20_000)), "[secret]");
    }

    /// The slow and plain way: every byte that is part of any form.
    fn plainly(text: &[u8], secrets: &[Vec<u8>]) -> Vec<u8> {
        let mut hidden = vec![false; text.len()];
        for secret in secrets.iter().filter(|secret| secret.len() >= SHORTEST) {
            for form in forms(secret) {
                for at in 0..text.len() {
                    if text[at..].starts_with(&form) {
                        hidden[at..at + form.len()].fill(true);
                    }
                }
            }
        }
        let mut shown = Vec::new();
        for (at, byte) in text.iter().enumerate() {
            match hidden[at] {
                true if at > 0 && hidden[at - 1] => {}
                true => shown.extend(MARK),
                false => shown.push(*byte),
            }
        }
        shown
    }

    proptest! {
        #[test]
        fn however_it_is_cut(
            secrets in vec(vec(select(b"ab ".to_vec()), 0..7), 0..4),
            text in vec(select(b"ab YWIg%20+".to_vec()), 0..80),
            cuts in vec(1..9_usize, 1..40),
        ) {
            let redactor = Redactor::new(&secrets);
            let mut stream = redactor.stream();
            let (mut shown, mut rest, mut cuts) = (Vec::new(), &text[..], cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                shown.extend(stream.feed(piece));
                rest = after;
            }
            shown.extend(stream.finish());
            prop_assert_eq!(String::from_utf8(shown), String::from_utf8(plainly(&text, &secrets)));
        }
    }
}
