//! Feeding commands.

use crate::support::*;
use atoll_guest_proto::v1::{ExecRequest, StdinChunk};
use atoll_types::ErrorCode;

/// Writes chunks to a command's stdin; answers how many bytes went through.
pub(crate) async fn write(guest: &Guest, id: &str, chunks: &[&[u8]], close: bool) -> u64 {
    try_write(guest, id, chunks, close).await.unwrap()
}

async fn try_write(guest: &Guest, id: &str, chunks: &[&[u8]], close: bool) -> Result<u64, tonic::Status> {
    let mut messages = vec![StdinChunk { exec_id: id.into(), ..StdinChunk::default() }];
    messages
        .extend(chunks.iter().map(|data| StdinChunk { data: data.to_vec().into(), ..StdinChunk::default() }));
    messages.push(StdinChunk { close, ..StdinChunk::default() });
    let stream = tokio_stream::iter(messages);
    Ok(guest.client.clone().write_stdin(stream).await?.into_inner().written)
}

#[tokio::test]
async fn without_stdin_there_is_nothing_to_read() {
    let guest = Guest::start().await;
    assert_eq!(guest.output("cat; readlink /proc/self/fd/0").await, "/dev/null");
}

#[tokio::test]
async fn everything_written_is_read_in_order() {
    let guest = Guest::start().await;
    let request = ExecRequest { stdin: true, ..sh("wc -c; cat") };
    let (id, chunk) = (request.exec_id.clone(), vec![b'x'; 300_000]);
    guest.client.clone().start_exec(request).await.unwrap();
    assert_eq!(write(&guest, &id, &[&chunk, b"middle"], false).await, 300_006);
    assert_eq!(write(&guest, &id, &[&chunk], true).await, 300_000);
    assert_eq!(guest.attach(&id, 0, true).await.stdout().trim(), "600006");
    assert_eq!(error(try_write(&guest, &id, &[b"more"], false).await).code, ErrorCode::Conflict);
}

#[tokio::test]
async fn a_command_that_closes_its_stdin_ends_the_writing() {
    let guest = Guest::start().await;
    let request = ExecRequest { stdin: true, ..sh("head -c 5; exec <&-; sleep 1000") };
    let (id, chunk) = (request.exec_id.clone(), vec![b'x'; 1 << 20]);
    guest.client.clone().start_exec(request).await.unwrap();
    let written = write(&guest, &id, &[&chunk, &chunk, &chunk], false).await;
    assert!((5..3 << 20).contains(&written), "{written}");
    guest.client.clone().kill_exec(reference(&id)).await.unwrap();
    assert_eq!(guest.attach(&id, 0, true).await.stdout(), "xxxxx");
}

#[tokio::test]
async fn a_command_that_ends_without_reading_lets_its_writer_go() {
    let guest = Guest::start().await;
    // A background process holds the pipe open, so only the end of the command can end the writing.
    let request = ExecRequest { stdin: true, ..sh("sleep 1000 0<&0 & exec true") };
    let (id, chunk) = (request.exec_id.clone(), vec![b'x'; 1 << 20]);
    guest.client.clone().start_exec(request).await.unwrap();
    match try_write(&guest, &id, &[&chunk], false).await {
        Ok(written) => assert!(written < 1 << 20),
        Err(status) => assert_eq!(error(Err::<(), _>(status)).code, ErrorCode::Conflict),
    }
    assert!(guest.client.clone().kill_exec(reference(&id)).await.unwrap().into_inner().exit_code.is_some());
}

#[tokio::test]
async fn a_full_pipe_holds_up_nobody_else() {
    let guest = Guest::start().await;
    let request = ExecRequest { stdin: true, ..sh("sleep 1000") };
    let (id, chunk) = (request.exec_id.clone(), vec![b'x'; 1 << 20]);
    guest.client.clone().start_exec(request).await.unwrap();
    let chunks = [&chunk[..]];
    let writing = write(&guest, &id, &chunks, false);
    let others = async {
        assert_eq!(guest.output("echo other").await, "other");
        guest.client.clone().kill_exec(reference(&id)).await.unwrap();
    };
    let (written, ()) = tokio::join!(writing, others);
    assert!(written < 1 << 20);
}
