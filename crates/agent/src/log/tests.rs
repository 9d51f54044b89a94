use super::*;
use atoll_types::ThreadCheckpointId;
use atoll_types::conversation::{
    Block, Checkpoint, CheckpointSource, ConversationState, Message, Metadata, Role, RunStatus, StopReason,
};

fn text(text: &str) -> EventKind {
    EventKind::Text { message: "m".into(), block: 0, text: text.into() }
}

fn end() -> EventKind {
    EventKind::Finished { status: RunStatus::Success, stopped: StopReason::Answered, failure: None }
}

fn thread() -> ThreadId {
    "t".parse().unwrap()
}

#[tokio::test]
async fn a_run_is_followed_to_its_end_and_a_thread_beyond_it() {
    let (logs, first, second) = (ThreadLogs::default(), RunId::random(), RunId::random());
    let mut of_run = logs.follow("ann", &thread(), Some(first), 0);
    let mut of_all = logs.follow("ann", &thread(), None, 0);
    for (run, kind) in [(first, text("a")), (second, text("b")), (first, end()), (second, end())] {
        logs.append("ann", &thread(), run, kind);
    }
    let mut seen = Vec::new();
    while let Some(event) = of_run.next().await.unwrap() {
        seen.push(event);
    }
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|event| event.run == first));
    for _ in 0..4 {
        assert!(of_all.next().await.unwrap().is_some());
    }
    assert!(logs.last_seq("ann", &thread()) < 1 << 53);
    assert_eq!(logs.last_seq("bob", &thread()), 0, "another owner's thread of the same id is another thread");
    let after = seen[0].seq;
    let mut rest = logs.follow("ann", &thread(), Some(first), after);
    assert_eq!(rest.next().await.unwrap().unwrap().seq, seen[1].seq);
    assert_eq!(rest.next().await.unwrap(), None);
    logs.close("ann", &thread());
    assert_eq!(of_all.next().await.unwrap(), None, "the thread is deleted");
}

#[tokio::test]
async fn a_follower_that_is_too_slow_is_told() {
    let (logs, run) = (ThreadLogs::default(), RunId::random());
    let mut slow = logs.follow("ann", &thread(), Some(run), 0);
    for _ in 0..MOST_EVENTS + 10 {
        logs.append("ann", &thread(), run, text("x"));
    }
    assert!(matches!(slow.next().await.unwrap().unwrap().kind, EventKind::Missed));
    let mut last = 0;
    for _ in 0..MOST_EVENTS {
        let event = slow.next().await.unwrap().unwrap();
        assert!(event.seq > last, "in their order");
        last = event.seq;
    }
    let big = "y".repeat(MOST_BYTES);
    logs.append("ann", &thread(), run, text(&big));
    logs.append("ann", &thread(), run, end());
    let log = logs.of("ann", &thread());
    assert_eq!(locked(&log.kept).events.len(), 1, "a large event leaves with the next");
}

/// A checkpoint with these messages.
fn checkpoint(messages: &[Arc<Message>]) -> EventKind {
    EventKind::Checkpoint(Arc::new(Checkpoint {
        id: ThreadCheckpointId::random(),
        thread: thread(),
        parent: None,
        run: None,
        step: 0,
        source: CheckpointSource::Loop,
        node: None,
        next: None,
        state: ConversationState { messages: messages.to_vec(), values: Metadata::new() },
        interrupts: Vec::new(),
        metadata: Metadata::new(),
        created_at: 0,
    }))
}

fn picture(bytes: usize) -> Arc<Message> {
    let block = Block::Image { mime: "image/png".into(), data: "x".repeat(bytes) };
    Arc::new(Message::new("m", Role::User, vec![block]))
}

fn bytes(logs: &ThreadLogs) -> usize {
    logs.0.bytes.load(Ordering::Relaxed)
}

#[test]
fn a_message_is_counted_once_however_many_checkpoints_share_it() {
    let (logs, run) = (ThreadLogs::default(), RunId::random());
    let shared = [picture(MOST_BYTES / 2)];
    for _ in 0..100 {
        logs.append("ann", &thread(), run, checkpoint(&shared));
    }
    assert_eq!(locked(&logs.of("ann", &thread()).kept).events.len(), 100, "none was dropped");
    assert!(bytes(&logs) < MOST_BYTES, "{}", bytes(&logs));
    // Pictures that are not shared fill the log.
    for _ in 0..10 {
        logs.append("ann", &thread(), run, checkpoint(&[picture(MOST_BYTES / 2)]));
    }
    let of_one = locked(&logs.of("ann", &thread()).kept).events.len();
    assert!(of_one <= 2 && bytes(&logs) <= 2 * MOST_BYTES, "{of_one} events, {} bytes", bytes(&logs));
    logs.close("ann", &thread());
    assert_eq!(bytes(&logs), 0, "what is dropped is counted off");
}

#[test]
fn a_log_that_is_not_needed_is_dropped() {
    let (logs, run) = (ThreadLogs::default(), RunId::random());
    let other = |name: &str| -> ThreadId { name.parse().unwrap() };
    for name in ["ended", "followed", "running"] {
        logs.append("ann", &other(name), run, text("x"));
    }
    for name in ["ended", "followed"] {
        logs.append("ann", &other(name), run, end());
    }
    let _follower = logs.follow("ann", &other("followed"), None, 0);
    for log in locked(&logs.0.logs).values() {
        locked(&log.kept).written -= SILENT + 1;
    }
    logs.0.swept.store(0, Ordering::Relaxed);
    logs.append("ann", &thread(), run, text("x"));
    let left = ["ended", "followed", "running"].map(|name| logs.known("ann", &other(name)).is_some());
    assert_eq!(left, [false, true, true]);
}

#[test]
fn all_logs_together_are_bounded() {
    let (logs, run) = (ThreadLogs::default(), RunId::random());
    let other = |number: usize| -> ThreadId { format!("t{number}").parse().unwrap() };
    // The bytes of others, so that the test needs no such memory.
    logs.0.bytes.fetch_add(MOST_OF_ALL, Ordering::Relaxed);
    let piece = "x".repeat(MOST_BYTES_THEN / 4);
    for _ in 0..8 {
        logs.append("ann", &other(0), run, text(&piece));
    }
    assert!(bytes(&logs) - MOST_OF_ALL <= MOST_BYTES_THEN, "a log that is written keeps less");
    logs.append("ann", &other(0), run, end());
    logs.0.swept.store(0, Ordering::Relaxed);
    logs.append("ann", &other(1), run, text("x"));
    assert!(logs.known("ann", &other(0)).is_none() && logs.known("ann", &other(1)).is_some());
}
