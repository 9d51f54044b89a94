//! Files through the whole stack, as open descriptors that PID 1 passes.

use super::fixture::{Instance, eventually, says, spec};
use atoll_provider::{Container, ContainerSpec, Entry, Provider, WriteOptions};
use atoll_types::{Error, ErrorCode, Limits, Result};
use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use std::sync::Arc;

const MIB: usize = 1 << 20;

fn body(bytes: Vec<u8>) -> impl futures_util::Stream<Item = Result<Bytes>> + Send + 'static {
    let bytes = Bytes::from(bytes);
    let pieces = (0..bytes.len()).step_by(50_000).map(move |from| {
        let end = bytes.len().min(from + 50_000);
        Ok(bytes.slice(from..end))
    });
    stream::iter(pieces)
}

async fn write(c: &Arc<dyn Container>, path: &str, bytes: &[u8]) -> Result<Entry> {
    c.guest().write_file(path, WriteOptions::default(), body(bytes.to_vec())).await
}

async fn read(c: &Arc<dyn Container>, path: &str) -> Result<Vec<u8>> {
    let reader = c.guest().read_file(path, 0, 0).await?;
    assert!(reader.left().is_some(), "it was not passed as a descriptor");
    reader.collect(1 << 30).await
}

fn noise(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(31) ^ (n >> 9) ^ seed) as u8).collect()
}

#[tokio::test]
async fn files_pass_as_descriptors_with_every_option() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let data = noise(1, 5 * MIB + 17);
    let entry = write(&c, "big", &data).await.unwrap();
    assert_eq!((entry.size, entry.mode, entry.uid), (data.len() as u64, 0o644, 1000));
    assert!(read(&c, "big").await.unwrap() == data);
    assert_eq!(says(&c, "stat -c '%U %G %s' big; ls -A").await, format!("user user {}\nbig", data.len()));
    let part = c.guest().read_file("big", 1_000_001, 700_000).await.unwrap();
    assert!(part.collect(MIB).await.unwrap() == data[1_000_001..1_700_001]);
    let plain = WriteOptions::default();
    let options = WriteOptions { mode: Some(0o711), create_parents: true, ..plain };
    assert_eq!(c.guest().write_file("a/b/c", options, body(vec![1])).await.unwrap().mode, 0o711);
    let append = WriteOptions { append: true, ..plain };
    assert_eq!(c.guest().write_file("a/b/c", append, body(vec![2])).await.unwrap().size, 2);
    assert_eq!(read(&c, "a/b/c").await.unwrap(), [1, 2]);
    let exclusive = WriteOptions { exclusive: true, ..plain };
    let error = c.guest().write_file("a/b/c", exclusive, body(vec![3])).await.unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::AlreadyExists, Some("path")));
    assert_eq!(write(&c, "x/y", b"").await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(read(&c, "nothing").await.unwrap_err().code, ErrorCode::NotFound);
    // Also where the file lies in memory, or in the image.
    write(&c, "/dev/shm/f", &data).await.unwrap();
    assert!(read(&c, "/dev/shm/f").await.unwrap() == data);
    write(&c, "/tmp/f", &data).await.unwrap();
    assert!(read(&c, "/tmp/f").await.unwrap() == data);
    assert!(!read(&c, "/etc/os-release").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_thousand_small_files() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    for n in 0..1000usize {
        write(&c, &format!("f{n}"), &noise(n, n)).await.unwrap();
    }
    for n in 0..1000usize {
        assert!(read(&c, &format!("f{n}")).await.unwrap() == noise(n, n), "{n}");
    }
    assert_eq!(says(&c, "ls -A | wc -l; cat * | wc -c").await, "1000\n499500");
}

#[tokio::test]
async fn many_transfers_at_once_do_not_mix() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let all = (0..40usize).map(|n| {
        let c = Arc::clone(&c);
        async move {
            let (path, data) = (format!("f{n}"), noise(n, MIB + n));
            write(&c, &path, &data).await.unwrap();
            assert!(read(&c, &path).await.unwrap() == data, "{n}");
            write(&c, &path, &data[n..]).await.unwrap();
            assert!(read(&c, &path).await.unwrap() == data[n..], "{n}");
        }
    });
    join_all(all).await;
    assert_eq!(says(&c, "ls -A | wc -l").await, "40");
}

#[tokio::test]
async fn a_disk_that_fills_up_on_the_way_leaves_nothing() {
    let instance = Instance::start().await;
    let limits = Limits { disk_bytes: 50 << 20, ..Limits::default() };
    let c = instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap();
    write(&c, "kept", b"old").await.unwrap();
    for path in ["new", "kept"] {
        let error = write(&c, path, &noise(3, 90 * MIB)).await.unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::DiskFull, Some("path")), "{error:?}");
        assert_eq!(says(&c, "ls -A; cat kept").await, "kept\nold", "nothing half-written is left");
    }
    // What it took is free again, once the disk has noticed.
    says(&c, "sync").await;
    write(&c, "new", &noise(4, 20 * MIB)).await.unwrap();
    assert!(read(&c, "new").await.unwrap() == noise(4, 20 * MIB));
}

#[tokio::test]
async fn a_writer_that_goes_away_leaves_nothing() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    write(&c, "f", b"old").await.unwrap();
    let endless = body(noise(5, 3 * MIB)).chain(stream::pending());
    let guest = c.guest().clone();
    let writing =
        tokio::spawn(async move { guest.write_file("f", WriteOptions::default(), endless).await.map(drop) });
    while says(&c, "find . -name '.atoll-*' -size +2M | wc -l").await == "0" {}
    assert_eq!(says(&c, "cat f").await, "old");
    writing.abort();
    while says(&c, "ls -A").await != "f" {}
    let cut = Error::new(ErrorCode::Unavailable, "cut off");
    let broken = body(noise(6, MIB)).chain(stream::iter([Err(cut.clone())]));
    assert_eq!(c.guest().write_file("f", WriteOptions::default(), broken).await.unwrap_err(), cut);
    assert_eq!(says(&c, "ls -A; cat f").await, "f\nold");
}

#[tokio::test]
async fn a_dead_container_is_the_reason() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    write(&c, "f", b"old").await.unwrap();
    let pid = rustix::process::Pid::from_raw(instance.pid_of(&c)).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("it is dead", || {
        !std::path::Path::new(&format!("/proc/{}/root/", pid.as_raw_nonzero())).exists()
    });
    assert_eq!(read(&c, "f").await.unwrap_err().code, ErrorCode::ContainerDied);
    assert_eq!(write(&c, "f", b"new").await.unwrap_err().code, ErrorCode::ContainerDied);
}
