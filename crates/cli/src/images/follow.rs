//! A build until its end: its log on standard error, and a bar below it where that is a terminal. A connection that breaks is
//! made again, and continues after the last line.

use crate::{Failure, progress, terminal::plain};
use atoll_client::{Build, BuildEvent, BuildProgress, Client, Error, Uuid};
use atoll_types::ErrorCode;
use indicatif::ProgressBar;
use std::{
    io::{Write, stderr},
    time::Duration,
};

/// How many attempts to connect may fail in a row, and the pause between them.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_secs(1);

/// What is shown of a build.
struct Shown {
    bar: ProgressBar,
    /// Whether the log is printed too.
    lines: bool,
    resume: Option<u64>,
}

impl Shown {
    fn take(&mut self, event: &BuildEvent) {
        match event {
            BuildEvent::Log { text, next } => {
                self.resume = next.or(self.resume);
                if self.lines {
                    self.bar.suspend(|| {
                        for line in text.lines() {
                            let _ = writeln!(stderr(), "{}", plain(line));
                        }
                    });
                }
            }
            BuildEvent::Progress(BuildProgress { done_bytes, total_bytes, .. }) => {
                self.bar.set_length(*total_bytes);
                self.bar.set_position(*done_bytes);
            }
            BuildEvent::End { .. } => self.bar.finish_and_clear(),
        }
    }
}

/// Follows a build to its end and returns it as the server describes it. One that failed or was cancelled is an error.
pub(crate) async fn follow(client: &Client, id: Uuid, name: &str, json: bool) -> Result<String, Failure> {
    let bar = progress::bar(name, Some(0), json);
    let mut shown = Shown { bar, lines: !json, resume: None };
    let mut tries = 0;
    loop {
        let broken = match hear(client, id, &mut shown, &mut tries).await {
            Ok(Some((build, json))) => return ended(&build).map(|()| json),
            Ok(None) => Error::Unexpected("the log broke off".into()),
            Err(error @ Error::Api(_)) => return Err(error.into()),
            Err(error) => error,
        };
        tries += 1;
        if tries >= TRIES {
            return Err(broken.into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn hear(
    client: &Client,
    id: Uuid,
    shown: &mut Shown,
    tries: &mut u32,
) -> Result<Option<(Box<Build>, String)>, Error> {
    let mut events = client.follow_build(id, shown.resume).await?;
    while let Some(event) = events.next().await? {
        *tries = 0;
        shown.take(&event);
        if let BuildEvent::End { build, json } = event {
            return Ok(Some((build, json)));
        }
    }
    Ok(None)
}

fn ended(build: &Build) -> Result<(), Failure> {
    let Build { build_id, name, tag, status, error, .. } = build;
    if status == "done" {
        return Ok(());
    }
    let why = error.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let message = format!(
        "the build {build_id} of {name}:{tag} {}{why}",
        match status.as_str() {
            "cancelled" => "was cancelled",
            _ => "failed",
        }
    );
    Err(atoll_types::Error::new(ErrorCode::Unavailable, message).into())
}
