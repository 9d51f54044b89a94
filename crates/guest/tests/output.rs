//! Output: order, offsets, readers of every speed, the cap, and what comes after the end.

use crate::support::*;
use atoll_guest_proto::v1::{AttachRequest, ExecRequest, ExecState, Stream};

#[tokio::test]
async fn streams_keep_their_order_and_offsets() {
    let guest = Guest::start().await;
    let script = "for i in 1 2 3 4 5; do echo out$i; sleep 0.01; echo err$i >&2; sleep 0.01; done";
    let request = sh(script);
    let id = request.exec_id.clone();
    let seen = guest.run(request).await;
    // Each pipe has its order; between the two there is none that a slow machine would keep.
    assert_eq!(seen.stdout(), "out1\nout2\nout3\nout4\nout5\n");
    assert_eq!(seen.stderr(), "err1\nerr2\nerr3\nerr4\nerr5\n");
    let all = seen.bytes();
    assert_eq!(seen.info().output_bytes, all.len() as u64);
    // From every offset a later reader sees the same bytes of the same streams.
    for from in 0..=all.len() {
        let again = guest.attach(&id, from as u64, from % 2 == 0).await;
        assert_eq!(again.bytes(), all[from..]);
        assert_eq!(again.ended, seen.ended);
    }
    assert!(guest.attach(&id, 10_000, true).await.outputs.is_empty());
}

#[tokio::test]
async fn all_of_a_large_output_arrives() {
    let guest = Guest::start().await;
    let seen = guest.run(sh("head -c 20000000 /dev/zero; echo end >&2")).await;
    assert_eq!((seen.stdout().len(), seen.stderr().as_str()), (20_000_000, "end\n"));
    assert_eq!((seen.info().output_bytes, seen.info().dropped_bytes), (20_000_004, 0));
}

#[tokio::test]
async fn the_cap_drops_and_never_blocks() {
    let guest = Guest::start().await;
    let request = ExecRequest { output_limit: 100_000, ..sh("head -c 5000000 /dev/zero; echo late >&2") };
    let seen = guest.run(request).await;
    assert_eq!(seen.bytes().len(), 100_000);
    assert_eq!((seen.info().output_bytes, seen.info().dropped_bytes), (100_000, 4_900_005));
    assert_eq!(seen.info().exit_code, Some(0));
}

#[tokio::test]
async fn a_spool_that_cannot_be_written_loses_output_only() {
    let guest = Guest::start().await;
    std::fs::remove_dir(guest.spool()).unwrap();
    let seen = guest.run(sh("echo lost; exit 3")).await;
    assert_eq!((seen.info().exit_code, seen.info().output_bytes, seen.info().dropped_bytes), (Some(3), 0, 5));
}

#[tokio::test]
async fn a_slow_reader_slows_nobody() {
    let guest = Guest::start().await;
    let request = sh("head -c 30000000 /dev/zero; echo finished >done");
    let id = request.exec_id.clone();
    let mut slow = guest.client.clone().exec(request).await.unwrap().into_inner();
    let mut seen = Seen::default();
    seen.add(slow.message().await.unwrap().unwrap());
    // This reader takes nothing more until the command has ended for everybody else.
    let fast = guest.connect_again().await.attach(AttachRequest { exec_id: id, from: 0, follow: true }).await;
    assert_eq!(collect(fast.unwrap().into_inner()).await.bytes().len(), 30_000_000);
    assert_eq!(guest.output("cat done").await, "finished");
    while let Some(event) = slow.message().await.unwrap() {
        seen.add(event);
    }
    assert_eq!(seen.bytes().len(), 30_000_000);
}

#[tokio::test]
async fn leaving_the_stream_does_not_end_the_command() {
    let guest = Guest::start().await;
    let request = ExecRequest { stdin: true, ..sh("echo one; read x; echo two") };
    let id = request.exec_id.clone();
    drop(guest.client.clone().exec(request).await.unwrap());
    let before = guest.attach(&id, 0, false).await;
    assert!(before.ended.is_none());
    crate::stdin::write(&guest, &id, &[b"\n"], true).await;
    assert_eq!(guest.attach(&id, 0, true).await.stdout(), "one\ntwo\n");
}

#[tokio::test]
async fn the_end_does_not_wait_for_background_processes() {
    let guest = Guest::start().await;
    let request = sh("(while ! test -e go; do sleep 0.02; done; echo late; touch went) & echo now");
    let id = request.exec_id.clone();
    let seen = guest.run(request).await;
    assert_eq!((seen.stdout().as_str(), seen.info().exit_code), ("now\n", Some(0)));
    assert!(seen.info().descendants_alive);
    let mut client = guest.client.clone();
    let forget = error(client.forget_exec(reference(&id)).await);
    assert_eq!(forget.code, atoll_types::ErrorCode::Conflict);
    guest.output("touch go").await;
    eventually("the background process has ended", async || {
        let info = client.get_exec(reference(&id)).await.unwrap().into_inner();
        assert_eq!(info.state(), ExecState::Ended);
        !info.descendants_alive
    })
    .await;
    assert_eq!(guest.attach(&id, 0, true).await.stdout(), "now\nlate\n");
    client.forget_exec(reference(&id)).await.unwrap();
}

#[tokio::test]
async fn a_background_process_that_never_stops_writing_does_not_hold_up_the_end() {
    let guest = Guest::start().await;
    let request = ExecRequest { output_limit: 1 << 20, ..sh("yes & echo $! >pid; exit 4") };
    let id = request.exec_id.clone();
    let seen = guest.run(request).await;
    assert_eq!(seen.info().exit_code, Some(4));
    let info = guest.client.clone().kill_exec(reference(&id)).await.unwrap().into_inner();
    assert!(!info.descendants_alive && !info.killed);
}

#[tokio::test]
async fn bytes_that_are_no_text_pass() {
    let guest = Guest::start().await;
    let seen = guest.run(sh(r"printf '\000\377\n'")).await;
    assert_eq!(seen.bytes(), [0, 0xff, b'\n'].map(|b| (Stream::Stdout, b)));
}

#[tokio::test]
async fn the_pipes_can_be_opened_by_name() {
    let guest = Guest::start().await;
    let seen = guest.run(sh("echo out >/dev/stdout; echo err >/proc/self/fd/2")).await;
    assert_eq!((seen.stdout().as_str(), seen.stderr().as_str()), ("out\n", "err\n"));
}

#[tokio::test]
async fn a_lossless_command_waits_for_its_reader() {
    let guest = Guest::start().await;
    let request =
        ExecRequest { lossless: true, output_limit: 1 << 20, ..sh("head -c 30000000 /dev/zero; echo e >&2") };
    let id = request.exec_id.clone();
    let mut events = guest.client.clone().exec(request).await.unwrap().into_inner();
    let mut seen = Seen::default();
    seen.add(events.message().await.unwrap().unwrap());
    // The command cannot run ahead of us, and others are not disturbed.
    guest.output("sleep 0.3").await;
    let info = guest.client.clone().get_exec(reference(&id)).await.unwrap().into_inner();
    assert_eq!(info.state(), ExecState::Running);
    assert!(info.output_bytes < 10_000_000, "{}", info.output_bytes);
    while let Some(event) = events.message().await.unwrap() {
        seen.add(event);
    }
    assert_eq!((seen.bytes().len(), seen.info().dropped_bytes), (30_000_002, 0));
    let blocks = std::fs::read_dir(guest.spool()).unwrap().map(|entry| {
        use std::os::unix::fs::MetadataExt;
        entry.unwrap().metadata().unwrap().blocks() * 512
    });
    assert!(blocks.sum::<u64>() < 6 << 20, "what was read is still on disk");
}

#[tokio::test]
async fn a_lossless_command_does_not_wait_for_a_reader_that_left() {
    let guest = Guest::start().await;
    let request = ExecRequest { lossless: true, output_limit: 1 << 20, ..sh("head -c 30000000 /dev/zero") };
    let id = request.exec_id.clone();
    drop(guest.client.clone().exec(request).await.unwrap());
    let mut client = guest.client.clone();
    eventually("it ends without a reader", async || {
        client.get_exec(reference(&id)).await.unwrap().into_inner().state() == ExecState::Ended
    })
    .await;
}
