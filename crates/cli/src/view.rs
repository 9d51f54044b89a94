//! `atoll inspect`.

use crate::{
    Failure,
    args::Inspect,
    list::{labels, mebibytes},
    resolve, table, terminal, when,
};
use atoll_client::{AttachedVolume, Sandbox};

pub(crate) async fn run(options: Inspect) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let id = resolve::sandbox(&client, &options.id).await?;
    let sandbox = client.get(id).await.map_err(|e| Failure::from(e).about(&options.id))?;
    if options.server.json {
        terminal::print_json(&sandbox.json)?;
    } else {
        terminal::print(&rendered(&sandbox))?;
    }
    Ok(0)
}

fn at(time: &str) -> String {
    format!("{time} ({})", when::since(time))
}

fn network(s: &Sandbox) -> String {
    match &s.egress {
        Some(policy) if !policy.mode.is_empty() => policy.mode.clone(),
        _ if s.network_enabled => "yes".into(),
        _ => "no".into(),
    }
}

fn skills(s: &Sandbox) -> String {
    s.skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn volumes(s: &Sandbox) -> String {
    let one = |volume: &AttachedVolume| {
        format!("{}:{}{}", volume.name, volume.path, if volume.read_only { ":ro" } else { "" })
    };
    s.volumes.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn paths(all: &[String]) -> Option<String> {
    (!all.is_empty()).then(|| all.join(" "))
}

fn rendered(s: &Sandbox) -> String {
    let status = match &s.status_reason {
        Some(reason) => format!("{} ({reason})", s.status),
        None => s.status.clone(),
    };
    let rows = [
        ("Id", Some(s.id.to_string())),
        ("Status", Some(status)),
        ("Image", Some(s.image.clone())),
        ("Profile", (!s.profile.is_empty()).then(|| s.profile.clone())),
        ("Session key", s.session_key.clone()),
        ("Labels", (!s.labels.is_empty()).then(|| labels(s))),
        ("Owner", Some(s.user_name.clone())),
        ("Created", Some(at(&s.created_at))),
        ("Last active", Some(at(&s.last_activity_at))),
        ("Stopped", s.stopped_at.as_deref().map(at)),
        ("Memory", Some(mebibytes(s.memory_mb))),
        ("Cpus", Some(s.cpu_cores.to_string())),
        ("Disk", Some(mebibytes(s.disk_mb))),
        ("Processes", Some(s.processes.to_string())),
        ("Idle timeout", Some(format!("{}s", s.idle_timeout_seconds))),
        ("Lifetime", s.max_lifetime_seconds.map(|seconds| format!("{seconds}s"))),
        ("Network", Some(network(s))),
        ("Auto snapshot", (!matches!(s.auto_snapshot.as_str(), "" | "off")).then(|| s.auto_snapshot.clone())),
        ("Commands", Some(format!("{} in {} ms", s.exec_count, s.exec_total_ms))),
        ("Uploaded", Some(format!("{} bytes", s.bytes_uploaded))),
        ("Downloaded", Some(format!("{} bytes", s.bytes_downloaded))),
        ("Container", s.container_id.clone()),
        ("Volume", Some(s.volume_name.clone())),
        ("Skills", (!s.skills.is_empty()).then(|| skills(s))),
        ("Volumes", (!s.volumes.is_empty()).then(|| volumes(s))),
        ("Read-only", paths(&s.filesystem.read_only)),
        ("Writable", paths(&s.filesystem.read_write)),
        ("Blocked", paths(&s.filesystem.blocked)),
    ];
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    table::fields(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_about_one() {
        let sandbox: Sandbox = serde_json::from_value(serde_json::json!({
            "id": "3f2a11bc-0000-4000-8000-000000000001", "status": "dead", "status_reason": "bad\nluck",
            "image": "host", "user_name": "ann", "created_at": "then", "last_activity_at": "now",
            "memory_mb": 1536, "cpu_cores": 2.0, "disk_mb": 1024, "processes": 512,
            "idle_timeout_seconds": 1800, "labels": { "a": "b" }, "volume_name": "v1",
        }))
        .unwrap();
        insta::assert_snapshot!(rendered(&sandbox), @r"
        Id            3f2a11bc-0000-4000-8000-000000000001
        Status        dead (bad\nluck)
        Image         host
        Labels        a=b
        Owner         ann
        Created       then (then)
        Last active   now (now)
        Memory        1536m
        Cpus          2
        Disk          1g
        Processes     512
        Idle timeout  1800s
        Network       no
        Commands      0 in 0 ms
        Uploaded      0 bytes
        Downloaded    0 bytes
        Volume        v1
        ");
    }
}
