//! A command that prints much, followed to its end without losing a byte, compared with the same program on a
//! plain pipe.

use super::Bench;
use crate::{
    Result, baseline,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
};
use atoll_provider::{Command, ExecEvent, Guest};
use atoll_types::ExecId;
use std::io::Read;

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let size: u64 = bench.scale.pick(16 << 20, 256 << 20, 256 << 20);
    let text = size.to_string();
    let arguments = ["/usr/bin/head", "-c", &text, "/dev/zero"];
    let container = bench.container().await?;
    let pace = Pace::tight(bench.scale.pick(1, 5, 20));
    let round = async || {
        let (own, bytes) = timed(follow(container.guest(), &arguments)).await?;
        let (bare, bare_bytes) = timed_here(|| read_pipe(&arguments))?;
        if [bytes, bare_bytes] != [size; 2] {
            return Err(format!("{size} bytes became {bytes} and {bare_bytes}").into());
        }
        Ok(vec![own, bare])
    };
    let mut series = pace.take(round).await?.into_iter();
    bench.destroy(&container).await?;
    let mut next = || series.next().ok_or("a series is missing");
    let (own, bare) = (next()?, Baseline::new("the same through a pipe", next()?));
    Ok(vec![Row::throughput("output", size, &own, &bare)])
}

async fn follow(guest: &Guest, arguments: &[&str]) -> Result<u64> {
    let command = Command { lossless: true, ..Command::new(arguments.iter().copied()) };
    let id = ExecId::random();
    let mut events = guest.exec(id, &command).await?;
    let mut bytes = 0;
    loop {
        match events.next().await? {
            Some(ExecEvent::Started(_)) => {}
            Some(ExecEvent::Output { data, .. }) => bytes += data.len() as u64,
            Some(ExecEvent::Ended(report)) if report.exit_code == Some(0) => return Ok(bytes),
            Some(ExecEvent::Ended(report)) => return Err(format!("it went wrong: {report:?}").into()),
            None => return Err("the output broke off".into()),
        }
    }
}

/// Runs a program to its end and counts what it prints.
pub(super) fn read_pipe(arguments: &[&str]) -> Result<u64> {
    let mut child = baseline::piped(arguments)?;
    let mut pipe = child.stdout.take().ok_or("the child has no output")?;
    let (mut buffer, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        match pipe.read(&mut buffer)? {
            0 => break,
            length => bytes += length as u64,
        }
    }
    child.wait()?;
    Ok(bytes)
}
