//! `atoll stop`, `pause`, `resume` and `rm`. One that fails does not stop the others.

use crate::{Failure, args::Several, failure::each, resolve, terminal};
use atoll_client::Client;

/// The action on each.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LifecycleVerb {
    Stop,
    Pause,
    Resume,
    Remove,
}

async fn one(client: &Client, verb: LifecycleVerb, typed: &str, json: bool) -> Result<(), Failure> {
    let id = resolve::sandbox(client, typed).await?;
    let reply = match verb {
        LifecycleVerb::Stop => client.stop(id).await.map(Some),
        LifecycleVerb::Pause => client.pause(id).await.map(Some),
        LifecycleVerb::Resume => client.resume(id).await.map(Some),
        LifecycleVerb::Remove => client.destroy(id).await.map(|()| None),
    };
    match (reply.map_err(|e| Failure::from(e).about(typed))?, json) {
        (Some(reply), true) => terminal::print_json(&reply.json),
        // The server's response to a destroy is empty.
        (None, true) => Ok(()),
        (_, false) => terminal::print(&format!("{}\n", resolve::short(id))),
    }
}

pub(crate) async fn run(options: Several, verb: LifecycleVerb) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let json = options.server.json;
    each(&options.ids, json, async |typed| one(&client, verb, typed, json).await).await
}
