//! What the observer reports, whatever becomes of a reply, of another container's scan and of itself.

use super::fixture::{Instance, eventually, python, says};
use atoll_launch_proto::{
    HEADER, Layout, MAX_ANSWER, MAX_REQUEST, ObserveAnswer, ObserveRequest, decode, encode, frame_length,
};
use atoll_provider::{ChangeReport, Container};
use atoll_types::{ContainerId, files::Changed};
use std::{pin::pin, process::Command, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

/// Reports, as the paths in them, which are all.
fn paths(changed: Changed) -> Vec<String> {
    assert!(!changed.truncated, "{changed:?}");
    changed.files.into_iter().map(|file| file.path).collect()
}

async fn taken(container: &Arc<dyn Container>) -> Changed {
    let ChangeReport { sequence, changed } = container.changes().unwrap().take().await.unwrap();
    container.changes().unwrap().acknowledge(sequence);
    changed
}

async fn send(stream: &mut UnixStream, request: ObserveRequest) {
    stream.write_all(&encode(&request, MAX_REQUEST).unwrap()).await.unwrap();
}

/// A request for changes, and the moment when its answer begins to arrive.
async fn ask(layout: &Layout, container: ContainerId, reader: u64, received: u64) -> UnixStream {
    let mut stream = UnixStream::connect(layout.observer()).await.unwrap();
    send(&mut stream, ObserveRequest::Take { container, reader, received }).await;
    stream.readable().await.unwrap();
    stream
}

async fn answer(stream: &mut UnixStream) -> (u64, Changed) {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await.unwrap();
    let mut body = vec![0; frame_length(header, MAX_ANSWER).unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    match decode(&body).unwrap() {
        ObserveAnswer::Changes { sequence, changed } => (sequence, changed),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cancelled_caller_loses_no_change() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    taken(&c).await;
    let (mut told, mut cancelled) = (Vec::new(), 0);
    // Cancelled at each step: when it connects, when it sends, and when the answer has come and is not read.
    for n in 0..40 {
        says(&c, &format!("echo x >{n}")).await;
        let mut take = pin!(c.changes().unwrap().take());
        let mut done = None;
        for _ in 0..n % 10 {
            done = match futures_util::poll!(take.as_mut()) {
                std::task::Poll::Ready(report) => Some(report.unwrap().changed),
                std::task::Poll::Pending => None,
            };
            if done.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        std::thread::sleep(Duration::from_millis(10));
        cancelled += usize::from(done.is_none());
        told.extend(done.map(paths).unwrap_or_default());
    }
    assert!(cancelled > 0);
    told.extend(paths(taken(&c).await));
    told.sort_by_key(|path| path.parse::<u32>().unwrap());
    assert_eq!(told, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_report_is_handed_out_until_it_is_acknowledged() {
    let instance = Instance::start().await;
    let (c, layout) = (instance.container("default").await, &instance.layout);
    drop(ask(layout, c.id(), 7, 0).await);
    says(&c, "echo x >a").await;
    // Answered, and never read.
    drop(ask(layout, c.id(), 7, 0).await);
    says(&c, "echo x >b").await;
    let (first, changed) = answer(&mut ask(layout, c.id(), 7, 0).await).await;
    assert_eq!(paths(changed), ["a", "b"]);
    // The next request of the same reader acknowledges it.
    says(&c, "echo x >c").await;
    let mut stream = ask(layout, c.id(), 7, first).await;
    let (second, changed) = answer(&mut stream).await;
    assert_eq!(paths(changed), ["c"]);
    // And so it does itself, also for another reader.
    send(&mut stream, ObserveRequest::Acknowledge { container: c.id(), sequence: second }).await;
    drop(stream);
    assert_eq!(paths(answer(&mut ask(layout, c.id(), 8, 0).await).await.1), Vec::<String>::new());
    // What another may have recorded is told again, and not as if it were sure.
    says(&c, "echo x >d").await;
    drop(ask(layout, c.id(), 8, 0).await);
    let (_, changed) = answer(&mut ask(layout, c.id(), 9, 0).await).await;
    assert_eq!((changed.files[0].path.as_str(), changed.files.len(), changed.truncated), ("d", 1, true));
}

#[tokio::test]
async fn a_large_scan_delays_no_other_container() {
    let instance = Instance::start_with(&["--storage", "dir"]).await;
    let (large, small) = (instance.container("default").await, instance.container("default").await);
    python(&large, "for n in range(50000): open(str(n), 'w').close()").await;
    assert!(taken(&large).await.truncated, "more than an answer has");
    says(&small, "echo x >f").await;
    says(&large, "echo y >1").await;
    let order = std::sync::Mutex::new(Vec::new());
    let take = async |name: &'static str, container| {
        let told = paths(taken(container).await);
        order.lock().unwrap().push(name);
        told
    };
    let told = tokio::join!(take("large", &large), take("small", &small));
    assert_eq!((told.0, told.1), (vec!["1".to_owned()], vec!["f".to_owned()]));
    assert_eq!(order.into_inner().unwrap(), ["small", "large"]);
}

/// Renames as fast as one processor can, for ever.
const RENAMES: &str = "import os; open('0', 'w').close(); n = 0\nopen('began', 'w').close()\n\
                       while True: os.rename(str(n), str(n + 1)); n += 1";

#[tokio::test]
async fn a_flood_of_renames_leaves_a_neighbours_changes_whole() {
    let instance = Instance::start().await;
    let (hostile, other) = (instance.container("default").await, instance.container("default").await);
    taken(&other).await;
    let flooding = Arc::clone(&hostile);
    let flood = tokio::spawn(async move {
        flooding.guest().run(&atoll_provider::Command::new(["/usr/bin/python3", "-c", RENAMES])).await
    });
    while !says(&hostile, "ls").await.contains("began") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for n in 0..50 {
        says(&other, &format!("echo x >{n}")).await;
        assert_eq!(paths(taken(&other).await), [n.to_string()]);
        // The one that floods is asked too, as after each of its commands.
        taken(&hostile).await;
    }
    assert!(!flood.is_finished(), "{:?}", flood.await);
    flood.abort();
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other() {
    let instance = Instance::start().await;
    let (c, other) = (instance.container("default").await, instance.container("default").await);
    // Much more than a socket holds.
    python(&c, "for n in range(5000): open(f'{n:0200}', 'w').close()").await;
    let mut unread = ask(&instance.layout, c.id(), 7, 0).await;
    says(&other, "echo x >f").await;
    assert_eq!(paths(taken(&other).await), ["f"]);
    assert_eq!(paths(answer(&mut unread).await.1).len(), 5000, "its own answer is whole");
}

#[tokio::test]
async fn a_restarted_observer_says_that_it_is_not_sure() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    taken(&c).await;
    says(&c, "echo x >before").await;
    let pid = |stream: UnixStream| stream.peer_cred().unwrap().pid().unwrap();
    let observer = pid(UnixStream::connect(instance.layout.observer()).await.unwrap());
    assert!(Command::new("kill").args(["-KILL", &observer.to_string()]).status().unwrap().success());
    eventually("another observer", || {
        let stream = std::os::unix::net::UnixStream::connect(instance.layout.observer());
        stream.is_ok_and(|stream| {
            stream.set_nonblocking(true).unwrap();
            pid(UnixStream::from_std(stream).unwrap()) != observer
        })
    });
    assert!(taken(&c).await.truncated);
    says(&c, "echo x >after").await;
    assert_eq!(paths(taken(&c).await), ["after"]);
}
