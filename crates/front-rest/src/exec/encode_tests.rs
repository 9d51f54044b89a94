use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn parse(text: &str) -> Vec<(u64, Value)> {
    let events = text.split_terminator("\n\n");
    events
        .map(|event| {
            let (id, data) = event.split_once('\n').unwrap();
            let id = id.strip_prefix("id: ").unwrap().parse().unwrap();
            (id, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap())
        })
        .collect()
}

fn bytes(event: &Value) -> Vec<u8> {
    let data = event["data"].as_str().unwrap();
    match event.get("encoding") {
        Some(encoding) => {
            assert_eq!(encoding, "base64");
            STANDARD.decode(data).unwrap()
        }
        None => data.as_bytes().to_vec(),
    }
}

/// What a client does with events: each stream in its order, resuming where an id says.
#[derive(Default)]
struct Reader {
    streams: [Vec<u8>; 2],
    next: [u64; 2],
    id: u64,
    dropped: Vec<(u64, u64)>,
    base64: usize,
}

impl Reader {
    fn read(&mut self, text: &str) {
        for (id, event) in parse(text) {
            let place = match event["type"].as_str().unwrap() {
                "stdout" => 0,
                "stderr" => 1,
                "dropped" => {
                    self.dropped.push((event["offset"].as_u64().unwrap(), event["bytes"].as_u64().unwrap()));
                    self.id = id;
                    continue;
                }
                _ => continue,
            };
            let data = bytes(&event);
            let offset = event["offset"].as_u64().unwrap();
            let end = event["next"].as_u64().unwrap_or(offset + data.len() as u64);
            let known = usize::try_from(self.next[place].saturating_sub(offset)).unwrap().min(data.len());
            self.streams[place].extend_from_slice(&data[known..]);
            self.next[place] = self.next[place].max(end);
            self.base64 += usize::from(event.get("encoding").is_some());
            self.id = id;
        }
    }
}

fn stream(out: bool) -> OutputStream {
    if out { OutputStream::Stdout } else { OutputStream::Stderr }
}

#[test]
fn text_is_text_and_bytes_are_base64() {
    let mut encoder = Encoder::new(0, None);
    let mut out = String::new();
    encoder.output(&mut out, OutputStream::Stdout, 0, "a\"\\\n\t\r\u{1}é🏝".as_bytes());
    encoder.output(&mut out, OutputStream::Stderr, 13, &[0xff, 0xfe]);
    encoder.output(&mut out, OutputStream::Stdout, 20, b"x");
    insta::assert_snapshot!(out, @r#"
    id: 13
    data: {"type":"stdout","offset":0,"data":"a\"\\\n\t\r\u0001é🏝"}

    id: 15
    data: {"type":"stderr","offset":13,"encoding":"base64","data":"//4="}

    id: 20
    data: {"type":"dropped","offset":15,"bytes":5}

    id: 21
    data: {"type":"stdout","offset":20,"data":"x"}
    "#);
}

#[test]
fn a_cut_character_waits_across_the_other_output() {
    let mut encoder = Encoder::new(0, None);
    let island = "🏝".as_bytes();
    let mut out = String::new();
    encoder.output(&mut out, OutputStream::Stdout, 0, &[b"ab", &island[..2]].concat());
    encoder.output(&mut out, OutputStream::Stderr, 4, b"error");
    encoder.output(&mut out, OutputStream::Stdout, 9, &[&island[2..], b"cd"].concat());
    let seen: Vec<String> = parse(&out).into_iter().map(|(id, event)| format!("{id} {event}")).collect();
    insta::assert_snapshot!(seen.join("\n"), @r#"
    2 {"type":"stdout","offset":0,"data":"ab"}
    2 {"type":"stderr","offset":4,"data":"error"}
    11 {"type":"stdout","offset":2,"next":11,"data":"🏝"}
    13 {"type":"stdout","offset":11,"data":"cd"}
    "#);
}

fn chunks() -> impl Strategy<Value = Vec<(bool, usize)>> {
    prop::collection::vec((any::<bool>(), 1usize..7), 0..60)
}

proptest! {
    /// However plain text is cut and mixed, it stays text.
    #[test]
    fn plain_text_never_becomes_base64(
        texts in [r"[a-z\n é🏝\u{7ff}\u{800}]{0,80}", r"[a-z\n é🏝]{0,80}"], cuts in chunks(),
    ) {
        let mut encoder = Encoder::new(0, None);
        let (mut out, mut offset, mut left) = (String::new(), 0, texts.clone().map(String::into_bytes));
        let rest = [(true, usize::MAX), (false, usize::MAX)];
        for (first, length) in cuts.into_iter().chain(rest) {
            let from = &mut left[usize::from(!first)];
            let piece: Vec<u8> = from.drain(..length.min(from.len())).collect();
            encoder.output(&mut out, stream(first), offset, &piece);
            offset += piece.len() as u64;
        }
        let mut reader = Reader::default();
        reader.read(&out);
        prop_assert_eq!(reader.base64, 0);
        prop_assert_eq!(reader.streams.map(|b| String::from_utf8(b).unwrap()), texts);
    }

    /// Whatever is printed, each byte arrives once, also when the connection breaks after any event.
    #[test]
    fn every_byte_arrives_once(
        pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(
            prop_oneof![Just(0xf0u8), Just(0x9f), Just(0x8f), Just(0x9d), Just(0xc3), Just(0xa9), Just(b'a'), any::<u8>()],
            1..6)), 0..30),
        breaks in prop::collection::vec(any::<bool>(), 30),
    ) {
        let mut wanted: [Vec<u8>; 2] = Default::default();
        let mut all: Vec<(bool, u8)> = Vec::new();
        for (first, bytes) in &pieces {
            wanted[usize::from(!*first)].extend_from_slice(bytes);
            all.extend(bytes.iter().map(|b| (*first, *b)));
        }
        let (mut reader, mut encoder) = (Reader::default(), Encoder::new(0, None));
        let mut at = 0;
        let mut breaks = breaks.into_iter();
        while at < all.len() {
            // A piece is a run of one output, as far as the first time it was cut.
            let first = all[at].0;
            let end = (at..all.len()).find(|i| all[*i].0 != first).unwrap_or(all.len()).min(at + 5);
            let piece: Vec<u8> = all[at..end].iter().map(|(_, b)| *b).collect();
            let mut out = String::new();
            encoder.output(&mut out, stream(first), at as u64, &piece);
            reader.read(&out);
            at = end;
            if breaks.next() == Some(true) {
                at = usize::try_from(reader.id).unwrap();
                encoder = Encoder::new(reader.id, None);
            }
        }
        let mut out = String::new();
        encoder.give_up_cuts(&mut out);
        reader.read(&out);
        prop_assert_eq!(&reader.streams, &wanted);
        prop_assert!(reader.dropped.is_empty());
    }
}

/// Cut anywhere, the pieces are what the whole would be: plain text, characters of several bytes, control
/// characters, bytes that are no text and a character that ends too early.
#[tokio::test]
async fn pieces_of_json_are_the_whole() {
    for unit in [
        &b"plain text\n"[..],
        "\u{0}\u{1}\"\\\u{7f}".as_bytes(),
        "a\u{e4}\u{20ac}\u{1f600}".as_bytes(),
        b"\xff\xc3(\xe2\x82",
    ] {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, PIECE + 2, PIECE + 3, 3 * PIECE + 5] {
            let bytes: Vec<u8> = unit.iter().copied().cycle().take(length).collect();
            let whole = String::from_utf8_lossy(&bytes).into_owned();
            let pieces: String = json_pieces(bytes).collect().await;
            assert!(
                serde_json::from_str::<String>(&format!("\"{pieces}\"")).unwrap() == whole,
                "{unit:?} {length}"
            );
        }
    }
}
