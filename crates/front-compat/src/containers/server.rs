//! What the server itself has: its state, the pool, tiers, graphics processors.

use super::{audit::total, life::own, removed};
use crate::App;
use atoll_core::{FoundGpus, Gpu, PoolKey};
use atoll_http::{Failure, Who};
use atoll_types::{Ceiling, Status, Tier, audit::OperationQuery, time::now_ms};
use axum::{Json, extract::State};
use serde_json::{Value, json};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Whether sandboxes can run, and what the caller's do. `docker_available` means that the provider is ready, whichever
/// it is; the version is this server's.
pub(super) async fn status(State(app): State<App>, Who(caller): Who) -> Result<Json<Value>, Failure> {
    let now = now_ms();
    let today = OperationQuery {
        owner: Some(caller.owner.clone()),
        since: Some(now - now.rem_euclid(DAY_MS)),
        ..OperationQuery::default()
    };
    Ok(Json(json!({
        "docker_available": app.core.ready().await.is_ok(),
        "docker_version": env!("CARGO_PKG_VERSION"),
        "active_containers": own(&app, &caller, &[Status::Ready, Status::Paused]).await?.len(),
        "total_executions_today": total(&app, &caller, today).await?.count,
    })))
}

/// What is kept ready. For admins.
pub(super) async fn pool(State(app): State<App>, Who(caller): Who) -> Result<Json<Value>, Failure> {
    let view = app.core.pool.view(&caller)?;
    let counts = app.core.sandboxes.status_counts().await?;
    let in_use: u64 = [Status::Ready, Status::Paused].iter().filter_map(|status| counts.get(status)).sum();
    let sum = |of: fn(&PoolKey) -> u32| view.keys.iter().map(|key| u64::from(of(key))).sum::<u64>();
    let image = |key: &PoolKey| {
        let PoolKey { image, ready, target, .. } = key;
        json!({ "image": image, "idle": ready, "target": target })
    };
    Ok(Json(json!({
        "idle": sum(|key| key.ready), "in_use": in_use, "target": sum(|key| key.target),
        "per_image": view.keys.iter().map(image).collect::<Vec<_>>(),
    })))
}

/// Destroys what is ready; it is made anew. For admins.
pub(super) async fn drain(State(app): State<App>, Who(caller): Who) -> Result<Json<Value>, Failure> {
    Ok(removed(app.core.pool.drain(&caller, false).await? as u64))
}

/// The machine's graphics processors, which no sandbox has access to; without a driver none, and the reason.
pub(super) async fn gpu(State(app): State<App>, Who(_): Who) -> Json<Value> {
    Json(gpu_answer(&app.core.gpus.list().await))
}

fn gpu_answer(found: &FoundGpus) -> Value {
    let reason = match found {
        Ok(_) => "sandboxes have no access to graphics processors yet",
        Err(reason) => reason,
    };
    let device = |gpu: &Gpu| {
        let Gpu { index, name, memory_mb, utilization_percent, temperature_celsius, driver_version } = gpu;
        json!({
            "index": index, "name": name, "memory_mb": memory_mb, "utilization_percent": utilization_percent,
            "temperature_celsius": temperature_celsius, "driver_version": driver_version,
        })
    };
    let devices: Vec<_> = found.iter().flatten().map(device).collect();
    json!({ "supported": found.is_ok(), "gpu_count": devices.len(), "devices": devices, "reason": reason })
}

/// The ceilings of keys, by their tier.
pub(super) async fn tiers(State(app): State<App>, Who(_): Who) -> Json<Value> {
    let tier = |tier: &Tier| {
        let Ceiling { cpu_millis, memory_mb, disk_mb, processes, timeout_seconds, network, .. } =
            app.core.settings.tiers().of(*tier);
        json!({
            "tier": tier.as_str(), "cpu_cores": f64::from(cpu_millis) / 1000.0, "memory_mb": memory_mb,
            "disk_mb": disk_mb, "max_processes": processes, "timeout_seconds": timeout_seconds,
            "network": network.as_str(),
        })
    };
    Json(json!({ "tiers": Tier::ALL.iter().map(tier).collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// On a machine with a processor of NVIDIA's, whose device file its driver makes, every figure is filled; `--no-capture`
    /// shows them. Elsewhere there are none, or the reason says that it is the driver.
    #[tokio::test]
    async fn processors_are_listed_or_the_reason_is_told() {
        let answer = gpu_answer(&atoll_core::Gpus::default().list().await);
        println!("{answer:#}");
        let devices = answer["devices"].as_array().unwrap();
        assert_eq!(answer["gpu_count"], devices.len());
        if !Path::new("/dev/nvidia0").exists() {
            let reason = answer["reason"].as_str().unwrap();
            assert!(answer["supported"] == true || reason.contains("driver"), "{answer}");
            return;
        }
        assert!(answer["supported"] == true && !devices.is_empty(), "{answer}");
        for (index, device) in devices.iter().enumerate() {
            let figure = |name: &str| device[name].as_u64().unwrap_or_else(|| panic!("{name}: {device}"));
            assert_eq!(figure("index"), index as u64);
            assert!(!device["name"].as_str().unwrap().is_empty(), "{device}");
            let version = device["driver_version"].as_str().unwrap();
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{device}");
            assert!((512..1 << 24).contains(&figure("memory_mb")), "{device}");
            assert!(figure("utilization_percent") <= 100, "{device}");
            assert!((1..150).contains(&figure("temperature_celsius")), "{device}");
        }
    }
}
