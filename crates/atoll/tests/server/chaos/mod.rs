//! Several clients at once, and a server that is killed again and again while it works for them. Then it is
//! looked at, from outside, whether anything is lost, is there by half, or is left of what nobody owns.
//!
//! `make test` has the short form; `make chaos` the whole, which is set by `ATOLL_CHAOS_ROUNDS`,
//! `ATOLL_CHAOS_OPERATIONS` and `ATOLL_CHAOS_SEED`. Each round has a seed of its own, which it prints: what
//! clients ask and whom chance kills follows from it, though not how far everybody got by then.

mod believed;
mod client;
mod kills;
mod link;
mod random;
mod spoiled;
mod verdict;
mod world;

use super::fixture::Server;
use believed::{Beliefs, Faults};
use client::{Client, SETTINGS};
use link::Link;
use random::Random;
use std::{
    sync::atomic::Ordering,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};
use world::World;

const CLIENTS: u64 = 4;
/// Operations for each kill.
const PER_KILL: usize = 25;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// A server that sees to things every second, and what it is without a sandbox.
fn empty_server() -> (Server, World) {
    let arguments =
        ["lifecycle.interval_seconds=1", "lifecycle.orphan_seconds=2", "pool.min=1", "pool.max=3"];
    let arguments: Vec<&str> = arguments.iter().flat_map(|setting| ["--set", setting]).collect();
    let server = Server::start_with(&arguments);
    let world = World::of(&server);
    (server, world)
}

fn round(seed: u64, operations: usize) -> Faults {
    let (mut server, world) = empty_server();
    let set = server.ask("PATCH", SETTINGS, r#"{"warm_pool_enabled":true}"#);
    let present = set.json()["idle_timeout_seconds"].as_u64().unwrap();
    let link = Link::new(server.address);
    let kills = (operations / PER_KILL).max(2);
    let (beliefs, killed) = thread::scope(|scope| {
        let working: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Client::new(&link, seed, number);
                let client = if number == 0 { client.changing_settings(present) } else { client };
                scope.spawn(move || client.work(operations))
            })
            .collect();
        let killed = kills::run(&mut server, &link, Random::new(!seed), kills, operations);
        let beliefs: Vec<Beliefs> = working.into_iter().map(|client| client.join().unwrap()).collect();
        (beliefs, killed)
    });
    let count = |wanted: bool| {
        beliefs.iter().flat_map(|b| &b.sandboxes).filter(|s| s.was_deleted() == wanted).count()
    };
    eprintln!(
        "chaos: killed {killed}; {} sandboxes, {} of them asked away, {} creates refused, {} answers did not come, {} said it cannot",
        count(true) + count(false),
        count(true),
        beliefs.iter().map(|b| b.refused.len()).sum::<usize>(),
        link.unanswered.load(Ordering::Relaxed),
        link.unable.load(Ordering::Relaxed),
    );
    let mut faults = link.take_faults();
    faults.0.extend(verdict::of(&server, &world, &beliefs).0);
    faults.0.extend(verdict::emptied(&server, &world).0);
    if !faults.0.is_empty() {
        let log = std::fs::read_to_string(server.data().join("launch.log")).unwrap_or_default();
        eprintln!("chaos: launch.log:\n{log}");
    }
    // That nothing is left after `down` is the fixture's to see.
    faults
}

#[test]
fn killed_at_any_moment_it_loses_nothing_and_leaves_nothing() {
    let (rounds, operations) = (setting("ATOLL_CHAOS_ROUNDS", 1), setting("ATOLL_CHAOS_OPERATIONS", 60));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = setting("ATOLL_CHAOS_SEED", now.as_nanos() as u64 % 1_000_000_000);
    for seed in (0..rounds).map(|round| first.wrapping_add(round)) {
        let again =
            format!("ATOLL_CHAOS_SEED={seed} ATOLL_CHAOS_ROUNDS=1 ATOLL_CHAOS_OPERATIONS={operations}");
        eprintln!("chaos: {again}");
        let Faults(faults) = round(seed, usize::try_from(operations).unwrap());
        assert!(faults.is_empty(), "again with {again}\n{faults:#?}");
    }
}
