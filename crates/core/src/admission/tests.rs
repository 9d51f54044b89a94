use super::*;
use crate::runtime_settings::Preset;
use crate::runtime_settings::Source;
use atoll_types::{Limits, Profile, VolumeId};
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: u64 = 1 << 20;

/// A machine with this many megabytes of memory and plenty of the rest.
fn machine(megabytes: u64, free: Arc<AtomicU64>) -> Machine {
    let total = Need { cpu_millis: 1 << 40, memory_bytes: megabytes * MIB, processes: 1 << 40 };
    Machine::made_up(total, move || Need {
        memory_bytes: free.load(Ordering::Relaxed),
        ..Need { cpu_millis: u64::MAX, memory_bytes: 0, processes: u64::MAX }
    })
}

fn admission_on(megabytes: u64, wait: u32, free: Arc<AtomicU64>) -> Admission {
    let mut preset = Preset::default();
    preset.set(Source::Flag, "admission.memory_ratio", 1.into()).unwrap();
    preset.set(Source::Flag, "admission.wait_seconds", wait.into()).unwrap();
    Admission::new(machine(megabytes, free), Arc::new(LiveSettings::new(preset)))
}

fn admission(megabytes: u64, wait: u32) -> Admission {
    admission_on(megabytes, wait, Arc::new(AtomicU64::new(u64::MAX)))
}

fn need(megabytes: u64) -> Need {
    Need { memory_bytes: megabytes * MIB, ..Need::default() }
}

fn quota(concurrent: u32, sandboxes: u32, disk_mb: u64) -> Quota {
    Quota {
        plan: "free".into(),
        concurrent,
        sandboxes,
        volumes: 2,
        skills: 100,
        skills_mb: 500,
        disk_mb,
        execs_per_second: 1,
        exec_burst: 1,
    }
}

async fn seated(admission: &Admission, owner: &str, megabytes: u64) -> Result<Reservation> {
    let reservation = admission.place(SandboxId::random(), owner, 0, None)?;
    reservation.wait(need(megabytes), admission.deadline()).await?;
    Ok(reservation)
}

fn used(admission: &Admission) -> u64 {
    admission.0.ledger().used.memory_bytes / MIB
}

fn record(limits: Limits, status: Status) -> SandboxRecord {
    let id = SandboxId::random();
    SandboxRecord::from(atoll_store::NewSandbox {
        id,
        owner: "ann".into(),
        owner_name: "ann".into(),
        status,
        image: "host".into(),
        provider: atoll_types::ProviderName::native(),
        profile: Profile::builtin("default").unwrap(),
        container: None,
        volume: VolumeId::random(),
        limits,
        idle_timeout_seconds: 60,
        max_lifetime_seconds: None,
        network_enabled: false,
        egress: "{}".into(),
        session_key: None,
        auto_snapshot: atoll_types::AutoSnapshot::Off,
        labels: std::collections::BTreeMap::new(),
        skills: Vec::new(),
        environment: atoll_store::Sealed::default(),
        created_at: 0,
    })
}

#[tokio::test]
async fn of_many_at_once_exactly_the_allowed_get_a_place() {
    let admission = admission(1000, 0);
    let quota = quota(3, 100, 1000);
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (admission, quota) = (admission.clone(), quota.clone());
            tokio::spawn(async move { admission.place(SandboxId::random(), "ann", MIB, Some(&quota)) })
        })
        .collect();
    let mut placed = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(reservation) => placed.push(reservation),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::LimitExceeded);
                let refusal = error.refusal.unwrap();
                assert_eq!((&refusal.facts["used"], &refusal.facts["allowed"]), (&3.into(), &3.into()));
                assert!(refusal.retry_after_seconds.is_some());
            }
        }
    }
    assert_eq!(placed.len(), 3);
    assert!(admission.place(SandboxId::random(), "bob", 0, Some(&quota)).is_ok(), "others have their own");
    drop(placed);
    assert_eq!(admission.0.ledger().tally("ann"), ledger::Tally::default());
}

#[test]
fn volumes_and_sandboxes_are_one_sum() {
    let admission = admission(1000, 0);
    let quota = quota(10, 10, 100);
    let volume = |mb: u64| admission.place_volume(VolumeId::random(), "ann", mb * MIB, Some(&quota));
    let limit = |error: Error| error.refusal.unwrap().facts["limit"].clone();
    let sandbox = admission.place(SandboxId::random(), "ann", 40 * MIB, Some(&quota)).unwrap();
    assert_eq!(limit(volume(61).err().unwrap()), "disk_mb");
    let first = VolumeId::random();
    admission.place_volume(first, "ann", 30 * MIB, Some(&quota)).unwrap().keep();
    // One that is known is not counted again.
    admission.adopt_volume(first, "ann", 30 * MIB);
    drop(volume(10).unwrap());
    let second = volume(10).unwrap();
    assert_eq!(limit(volume(1).err().unwrap()), "volumes");
    assert_eq!(limit(admission.resize_volume(first, 51 * MIB, Some(&quota)).unwrap_err()), "disk_mb");
    admission.resize_volume(first, 50 * MIB, Some(&quota)).unwrap();
    let full = admission.place(SandboxId::random(), "ann", MIB, Some(&quota));
    assert_eq!(limit(full.err().unwrap()), "disk_mb");
    assert!(admission.place_volume(VolumeId::random(), "bob", 100 * MIB, Some(&quota)).is_ok());
    drop((sandbox, second));
    admission.volume_gone(first);
    assert_eq!(admission.0.ledger().tally("ann"), ledger::Tally::default());
}

#[tokio::test]
async fn disks_and_sandboxes_in_all_are_counted_while_they_are_stopped() {
    let admission = admission(1000, 0);
    let (quota, disk) = (quota(10, 3, 100), |mb: u64| mb * MIB);
    let id = SandboxId::random();
    admission.place(id, "ann", disk(60), Some(&quota)).unwrap().keep();
    admission.stopped(id);
    let refused = admission.place(SandboxId::random(), "ann", disk(41), Some(&quota)).map(drop).unwrap_err();
    assert_eq!((refused.code, refused.field.as_deref()), (ErrorCode::LimitExceeded, Some("disk_mb")));
    assert_eq!(refused.refusal.unwrap().facts["used"], 60);
    let never = admission.place(SandboxId::random(), "ann", disk(101), Some(&quota)).map(drop).unwrap_err();
    assert_eq!(never.code, ErrorCode::PermissionDenied);
    let more =
        [20, 20].map(|mb| admission.place(SandboxId::random(), "ann", disk(mb), Some(&quota)).unwrap());
    let refused = admission.place(SandboxId::random(), "ann", 0, Some(&quota)).map(drop).unwrap_err();
    assert_eq!(refused.refusal.unwrap().facts["limit"], "sandboxes");
    drop(more);
    admission.gone(id);
    assert!(admission.place(SandboxId::random(), "ann", disk(100), Some(&quota)).is_ok());
}

#[tokio::test]
async fn five_hundred_sandboxes_with_the_usual_limits_fit_a_small_machine() {
    let total = Need { cpu_millis: 2000, memory_bytes: 24 << 30, processes: 190_000 };
    let settings = Arc::new(LiveSettings::new(Preset::default()));
    let admission = Admission::new(Machine::made_up(total, move || total), settings);
    admission.set_disk(DiskRoom { capacity_bytes: 80_000_000_000, free_bytes: 80_000_000_000, low: false });
    let (limits, mut kept) = (Limits::default(), Vec::new());
    for _ in 0..500 {
        let reservation = admission.place(SandboxId::random(), "ann", limits.disk_bytes, None).unwrap();
        reservation.wait(Need::of(&limits), admission.deadline()).await.unwrap();
        kept.push(reservation);
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_figures() {
    let admission = admission(100, 0);
    let kept = seated(&admission, "ann", 70).await.unwrap();
    let refused = seated(&admission, "bob", 31).await.map(drop).unwrap_err();
    assert_eq!((refused.code, refused.field.as_deref()), (ErrorCode::LimitExceeded, Some("memory_mb")));
    let refusal = refused.refusal.unwrap();
    let figures = ["asked", "free", "capacity"].map(|name| refusal.facts[name].as_u64());
    assert_eq!(figures, [Some(31), Some(30), Some(100)]);
    let never = seated(&admission, "bob", 101).await.map(drop).unwrap_err();
    assert_eq!((never.code, never.refusal.unwrap().retry_after_seconds), (ErrorCode::PermissionDenied, None));
    assert_eq!(used(&admission), 70);
    drop(kept);
    assert_eq!(used(&admission), 0);
}

#[tokio::test]
async fn a_waiting_create_starts_when_room_is_free_and_owners_take_turns() {
    let admission = admission(10, 600);
    let first = seated(&admission, "ann", 10).await.unwrap();
    let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
    let enter = |owner: &'static str, count: usize| {
        for _ in 0..count {
            let (admission, told) = (admission.clone(), told.clone());
            tokio::spawn(async move {
                let reservation = seated(&admission, owner, 10).await.unwrap();
                told.send(owner).unwrap();
                drop(reservation);
            });
        }
    };
    enter("ann", 20);
    while admission.0.ledger().tally("ann").live < 21 {
        tokio::task::yield_now().await;
    }
    enter("bob", 1);
    while admission.0.ledger().tally("bob").live < 1 {
        tokio::task::yield_now().await;
    }
    drop(first);
    let mut seen = Vec::new();
    while seen.len() < 21 {
        seen.push(order.recv().await.unwrap());
    }
    let bob = seen.iter().position(|owner| *owner == "bob").unwrap();
    assert!(bob <= 1, "one of twenty of another's went before: {seen:?}");
    assert_eq!(used(&admission), 0);
}

#[tokio::test]
async fn who_goes_away_leaves_its_place_and_lets_others_pass() {
    let admission = admission(10, 600);
    let first = seated(&admission, "ann", 6).await.unwrap();
    let large = tokio::spawn({
        let admission = admission.clone();
        async move { seated(&admission, "bob", 10).await.map(drop) }
    });
    while admission.0.ledger().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    large.abort();
    assert!(large.await.unwrap_err().is_cancelled());
    assert!(admission.0.ledger().queue.is_empty());
    assert_eq!(admission.0.ledger().tally("bob"), ledger::Tally::default());
    drop(first);
    assert_eq!(used(&admission), 0);
}

#[tokio::test]
async fn nothing_starts_while_the_machine_itself_has_no_memory_free() {
    let free = Arc::new(AtomicU64::new(0));
    let refused = seated(&admission_on(100, 0, Arc::clone(&free)), "ann", 1).await.map(drop).unwrap_err();
    assert_eq!(refused.field.as_deref(), Some("memory_mb"));
    let admission = admission_on(100, 600, Arc::clone(&free));
    let waits = tokio::spawn({
        let admission = admission.clone();
        async move { seated(&admission, "ann", 1).await.map(drop) }
    });
    while admission.0.ledger().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    // There is no notification for this; the waiting request polls.
    free.store(u64::MAX, Ordering::Relaxed);
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn records_are_counted_as_they_are_and_once() {
    let admission = admission(4096, 0);
    let limits = Limits { memory_bytes: 100 * MIB, disk_bytes: 7 * MIB, ..Limits::default() };
    let all: Vec<SandboxRecord> = Status::ALL.iter().map(|status| record(limits, *status)).collect();
    for record in all.iter().chain(&all).filter(|record| record.status != Status::Destroyed) {
        admission.adopt(record);
    }
    let tally = admission.0.ledger().tally("ann");
    assert_eq!((tally.sandboxes, tally.live, tally.disk_bytes / MIB), (5, 3, 35));
    assert_eq!(used(&admission), 300);
    // Starting one of them again counts it again, and giving up does not forget it.
    let stopped = all.iter().find(|record| record.status == Status::Stopped).unwrap();
    let refused = admission.wake(stopped, Some(&quota(3, 100, 100))).map(drop).unwrap_err();
    assert_eq!(refused.refusal.unwrap().facts["limit"], "concurrent_sandboxes");
    let reservation = admission.wake(stopped, Some(&quota(4, 1, 1))).unwrap();
    reservation.wait(Need::of(&stopped.limits), admission.deadline()).await.unwrap();
    assert!(reservation.covers(&Need::of(&stopped.limits)) && !reservation.covers(&need(101)));
    assert_eq!(used(&admission), 400);
    drop(reservation);
    assert_eq!((used(&admission), admission.0.ledger().tally("ann").sandboxes), (300, 5));
}

#[tokio::test]
async fn what_the_pool_holds_moves_to_a_sandbox_without_a_gap_or_goes_first() {
    let admission = admission(100, 0);
    let mut pooled = admission.pool_reservation(need(60)).unwrap();
    assert_eq!(used(&admission), 60);
    assert!(admission.pool_reservation(need(60)).is_none(), "it does not fit");
    let reservation = admission.place(SandboxId::random(), "ann", 0, None).unwrap();
    assert!(!reservation.take_over(&mut pooled, need(101)), "more than there is");
    assert!(reservation.take_over(&mut pooled, need(100)));
    assert_eq!(used(&admission), 100);
    drop(pooled);
    assert_eq!(used(&admission), 100, "it was moved, and is not freed twice");
    drop(reservation);
    assert_eq!(used(&admission), 0);

    // A request that does not fit beside the pool is granted when the pool has gone, however short its
    // deadline.
    let pooled = admission.pool_reservation(need(60)).unwrap();
    let gives_way = {
        let admission = admission.clone();
        tokio::spawn(async move {
            admission.crowded().await;
            drop(pooled);
        })
    };
    let large = seated(&admission, "ann", 90).await.unwrap();
    gives_way.await.unwrap();
    assert_eq!(used(&admission), 90);
    // While a request waits, nothing is made for the pool, and a claim does not pass it.
    let mut pooled = admission.pool_reservation(need(5)).unwrap();
    let waiting = admission.place(SandboxId::random(), "bob", 0, None).unwrap();
    let deadline = Instant::now() + Duration::from_secs(600);
    let waits = tokio::spawn(async move { waiting.wait(need(50), deadline).await.map(|()| waiting) });
    admission.crowded().await;
    assert!(admission.pool_reservation(need(1)).is_none());
    let late = admission.place(SandboxId::random(), "cid", 0, None).unwrap();
    assert!(!late.take_over(&mut pooled, need(1)));
    drop(large);
    assert!(waits.await.unwrap().is_ok());
    assert!(late.take_over(&mut pooled, need(1)));
}
