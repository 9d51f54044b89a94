//! Output that keeps its newest part, and a spool that ended commands do not fill.

use crate::support::*;
use atoll_guest_proto::{
    GuestConfig,
    v1::{AttachRequest, ExecRequest, ExecState},
};

/// Prints numbered lines of 16 bytes, so that every offset says what must be there.
fn lines(count: u64) -> ExecRequest {
    let script = format!("import sys\nfor n in range({count}): sys.stdout.write('%015d\\n' % n)");
    ExecRequest { keep_newest: true, output_limit: 1 << 20, ..python(&script) }
}

/// Checks that what was seen are the lines at their offsets, to the end.
fn check(seen: &Seen, from: u64, count: u64) {
    let text = seen.stdout();
    let mut expected = String::new();
    for n in from / 16..count {
        expected.push_str(&format!("{n:015}\n"));
    }
    assert!(text == expected[(from % 16) as usize..], "from {from}: {} bytes", text.len());
}

/// On-disk size of all output.
fn on_disk(guest: &Guest) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(guest.spool()).unwrap();
    files.map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[tokio::test]
async fn the_newest_output_is_kept_and_offsets_go_on() {
    let guest = Guest::start().await;
    let count = 500_000;
    let request = lines(count);
    let id = request.exec_id.clone();
    guest.run(request).await;
    let info = guest.client.clone().get_exec(reference(&id)).await.unwrap().into_inner();
    assert_eq!((info.output_bytes, info.dropped_bytes), (count * 16, 0));
    let kept = info.output_bytes - info.first_offset;
    assert!((7 << 17..=1 << 20).contains(&kept), "{kept}");
    assert!(on_disk(&guest) < 2 << 20, "{}", on_disk(&guest));
    // A reader of what is gone gets what there is, and the offset says that something is missing.
    for from in [0, 1, info.first_offset - 1, info.first_offset, info.first_offset + 5] {
        let seen = guest.attach(&id, from, true).await;
        let first = seen.outputs.first().unwrap().offset;
        assert_eq!(first, from.max(info.first_offset));
        assert_eq!(seen.bytes().len() as u64, info.output_bytes - first);
        check(&seen, first, count);
    }
}

#[tokio::test]
async fn a_reader_that_falls_behind_goes_on_with_what_there_is() {
    let guest = Guest::start().await;
    let request = ExecRequest { stdin: true, ..sh("read x; head -c 30000000 /dev/zero; echo end >&2") };
    let request = ExecRequest { keep_newest: true, output_limit: 1 << 20, ..request };
    let id = request.exec_id.clone();
    let mut slow = guest.client.clone().exec(request).await.unwrap().into_inner();
    let mut seen = Seen::default();
    seen.add(slow.message().await.unwrap().unwrap());
    crate::stdin::write(&guest, &id, &[b"\n"], true).await;
    let mut client = guest.connect_again().await;
    eventually("the end", async || {
        client.get_exec(reference(&id)).await.unwrap().into_inner().state() == ExecState::Ended
    })
    .await;
    // It has read nothing of it yet, and the window of its connection is far smaller.
    while let Some(event) = slow.message().await.unwrap() {
        seen.add(event);
    }
    let gaps: Vec<(u64, u64)> = seen
        .outputs
        .windows(2)
        .map(|two| (two[0].offset + two[0].data.len() as u64, two[1].offset))
        .filter(|(end, next)| end != next)
        .collect();
    // It may fall behind more than once, and never goes back.
    assert!(!gaps.is_empty() && gaps.iter().all(|(end, next)| end < next), "{gaps:?}");
    assert_eq!((seen.info().output_bytes, seen.stderr().as_str()), (30_000_004, "end\n"));
    let last = seen.outputs.last().unwrap();
    assert_eq!(last.offset + last.data.len() as u64, 30_000_004);
}

#[tokio::test]
async fn both_streams_keep_their_order_when_old_output_goes() {
    let guest = Guest::start().await;
    let script = "import os\nfor n in range(40000): os.write(1 + n % 2, b'%07d\\n' % n)";
    let request = ExecRequest { keep_newest: true, output_limit: 200_000, ..python(script) };
    let id = request.exec_id.clone();
    guest.run(request).await;
    let seen = guest.attach(&id, 0, true).await;
    // Two pipes have no common order, but each its own.
    for (text, parity) in [(seen.stdout(), 0), (seen.stderr(), 1)] {
        let text = &text[text.find('\n').unwrap() + 1..];
        let numbers: Vec<u32> = text.lines().map(|l| l.parse().unwrap()).collect();
        assert!(!numbers.is_empty() && numbers.windows(2).all(|two| two[1] == two[0] + 2), "{numbers:?}");
        assert_eq!(numbers[0] % 2, parity);
        assert_eq!(*numbers.last().unwrap(), 39_998 + parity);
    }
}

#[tokio::test]
async fn ended_commands_hold_half_of_the_spool_at_most() {
    let guest = Guest::with(GuestConfig { spool_bytes: 10 << 20, ..config() }).await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        let request = sh("head -c 2000000 /dev/zero");
        ids.push(request.exec_id.clone());
        assert_eq!(guest.run(request).await.stdout().len(), 2_000_000);
    }
    let running = ExecRequest { stdin: true, ..sh("head -c 2000000 /dev/zero; read x") };
    let running_id = running.exec_id.clone();
    guest.client.clone().start_exec(running).await.unwrap();
    let mut client = guest.client.clone();
    let info = async |id: &str| guest.client.clone().get_exec(reference(id)).await.unwrap().into_inner();
    eventually("its output", async || info(&running_id).await.output_bytes == 2_000_000).await;
    // The oldest lost their output, but not how they went.
    for (number, id) in ids.iter().enumerate() {
        let info = info(id).await;
        let (first, left) = if number < 4 { (2_000_000, 0) } else { (0, 2_000_000) };
        assert_eq!((info.exit_code, info.output_bytes, info.first_offset), (Some(0), 2_000_000, first));
        assert_eq!(guest.attach(id, 0, true).await.stdout().len(), left);
    }
    assert_eq!(info(&running_id).await.first_offset, 0, "a running one keeps its output");
    assert!(on_disk(&guest) < 7 << 20);
    client.kill_exec(reference(&running_id)).await.unwrap();
}

#[tokio::test]
async fn a_reader_may_be_slow_while_output_goes() {
    let guest = Guest::with(GuestConfig { spool_bytes: 2 << 20, ..config() }).await;
    let request = sh("head -c 5000000 /dev/zero");
    let id = request.exec_id.clone();
    let attach = AttachRequest { exec_id: id.clone(), from: 0, follow: true };
    guest.run(request).await;
    let mut slow = guest.client.clone().attach(attach).await.unwrap().into_inner();
    slow.message().await.unwrap().unwrap();
    guest.run(sh("head -c 2000000 /dev/zero")).await;
    let mut last = None;
    while let Some(event) = slow.message().await.unwrap() {
        last = event.event;
    }
    assert!(matches!(last, Some(atoll_guest_proto::v1::exec_event::Event::Ended(_))), "{last:?}");
}
