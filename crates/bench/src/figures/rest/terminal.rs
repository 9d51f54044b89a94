//! A key pressed at a terminal until it comes back, compared with the same at a terminal of this machine.
//! Both are raw, so that `cat` echoes it and not the kernel.

use super::Bench;
use crate::{
    Result,
    pace::{Pace, timed, timed_here},
    pty::Pty,
    report::{Baseline, Row},
    server::{self, Server},
    websocket::Socket,
};

/// The command there: it prints when the terminal is raw.
const CAT: &str = "/terminal?command=stty%20raw%20-echo;printf%20raw;exec%20cat";
const KEY: u8 = b'x';

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    let mut socket = Socket::open(server.connect().await?, &sandbox.path(CAT)).await?;
    let mut said = Vec::new();
    while said != b"raw" {
        said.extend_from_slice(&socket.next().await?);
        if said.len() > 3 {
            return Err(format!("the terminal said {:?}", String::from_utf8_lossy(&said)).into());
        }
    }
    let mut pty = Pty::start()?;
    let mut rows = Vec::new();
    for pace in bench.paces(300) {
        rows.push(one(&mut socket, &mut pty, pace).await?);
    }
    drop(socket);
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}

async fn press(socket: &mut Socket) -> Result<()> {
    socket.send(&[KEY]).await?;
    let back = socket.next().await?;
    if back[..] == [KEY] { Ok(()) } else { Err(format!("{KEY} came back as {back:?}").into()) }
}

async fn one(socket: &mut Socket, pty: &mut Pty, pace: Pace) -> Result<Row> {
    let round = async || {
        pace.wait().await;
        let own = timed(press(socket)).await?.0;
        pace.wait().await;
        Ok(vec![own, timed_here(|| pty.press(KEY))?.0])
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, local) = (next()?, Baseline::new("the same, local terminal", next()?));
    Ok(Row::latency("rest terminal, a key", pace.name, own, vec![local]).by_difference())
}
