//! Sandboxes that are ready before anybody asks.

mod admin;
mod claims;
mod crashes;
mod replaced;

use super::fixture::{KEY, Server};
use crate::engine::fixture::eventually;
use atoll_launch_proto::Layout;
use atoll_provider::{Provider, Volumes};
use atoll_provider_native::{LauncherClient, NativeProvider};
use serde_json::Value;
use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

const ROOT: &str = "/api/v1/sandboxes";
const POOL: &str = "/api/v1/pool";

/// A server that keeps this many ready, with more arguments, once they are.
fn keeping(count: u32, more: &[&str]) -> Server {
    let (min, max) = (format!("pool.min={count}"), format!("pool.max={count}"));
    let mut arguments = vec!["--set", "warm_pool_enabled=true", "--set", &min, "--set", &max];
    arguments.extend(more);
    let server = Server::start_with(&arguments);
    eventually("a full pool", || of(&server, "ready") == u64::from(count));
    server
}

/// The pool of the one image that there is.
fn key(server: &Server) -> Value {
    let answer = server.ask("GET", POOL, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["keys"][0].clone()
}

fn of(server: &Server, field: &str) -> u64 {
    let key = key(server);
    key[field].as_u64().unwrap_or_else(|| panic!("{field} in {key}"))
}

/// What there really is.
#[derive(Debug, PartialEq, Eq)]
struct World {
    containers: BTreeSet<String>,
    volumes: BTreeSet<String>,
}

impl World {
    fn of(server: &Server) -> Self {
        let layout = Layout::new(&server.data().canonicalize().unwrap());
        let provider = NativeProvider::new(Arc::new(LauncherClient::new(&layout)));
        let looked = async {
            let containers =
                provider.list().await.unwrap().into_iter().map(|one| one.id.to_string()).collect();
            let volumes = provider.list_volumes().await.unwrap().iter().map(ToString::to_string).collect();
            Self { containers, volumes }
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(looked)
    }

    /// What of it no sandbox has.
    fn without(mut self, sandboxes: &[Value]) -> Self {
        for sandbox in sandboxes {
            self.containers.remove(sandbox["container_id"].as_str().unwrap_or_default());
            self.volumes.remove(sandbox["volume_name"].as_str().unwrap());
        }
        self
    }

    fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.volumes.is_empty()
    }
}

fn sandboxes(server: &Server) -> Vec<Value> {
    let all = server.ask("GET", &format!("{ROOT}?page_size=200"), "").json();
    all["items"].as_array().unwrap().clone()
}

/// The record that the launcher keeps of a container.
fn record(server: &Server, container: &str) -> PathBuf {
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    layout.run().join("c").join(container).join("record.json")
}

/// Sees that sandboxes have all that there is but for a full pool, which is there.
fn nothing_else_is_there(server: &Server, ready: usize) {
    eventually("nothing else", || {
        let left = World::of(server).without(&sandboxes(server));
        (left.containers.len(), left.volumes.len()) == (ready, ready) && of(server, "ready") == ready as u64
    });
}
