//! The graphics processors of this machine, as NVIDIA's driver reports them. Its library is loaded when it is asked for,
//! so a machine without a driver needs nothing; no sandbox has access to a processor.

use nvml_wrapper::{Nvml, enum_wrappers::device::TemperatureSensor, error::NvmlError};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Mutex, task::JoinHandle};

const MIB: u64 = 1 << 20;
/// The name that drivers install; the one without a version is for programs that are compiled.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// How long figures are cached: any key may ask, and each reading loads the driver's library.
const KEPT: Duration = Duration::from_secs(1);
/// How long a caller waits for the driver, which may hang where a processor does.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many are reported at most.
const MOST: u32 = 64;

/// A graphics processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub index: u32,
    pub name: String,
    pub memory_mb: Option<u64>,
    pub utilization_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub driver_version: String,
}

/// What there is, or why that is not known.
pub type FoundGpus = std::result::Result<Vec<Gpu>, String>;

/// The last reading of the driver, and the one that has not ended, of which there is one at most.
#[derive(Default)]
struct LastLook {
    last: Option<(Instant, FoundGpus)>,
    looking: Option<JoinHandle<FoundGpus>>,
}

/// The graphics processors of this machine.
#[derive(Clone, Default)]
pub struct Gpus(Arc<Mutex<LastLook>>);

impl Gpus {
    /// Those that the driver reports now, cached for a moment; or why there are none.
    pub async fn list(&self) -> FoundGpus {
        self.read(PATIENCE, || look().map_err(|error| reason(&error))).await
    }

    /// A reading that does not end in time goes on; until it has ended, no other is begun.
    async fn read(&self, patience: Duration, look: impl FnOnce() -> FoundGpus + Send + 'static) -> FoundGpus {
        let mut state = self.0.lock().await;
        if let Some((_, found)) = state.last.as_ref().filter(|(at, _)| at.elapsed() < KEPT) {
            return found.clone();
        }
        let looking = state.looking.get_or_insert_with(|| tokio::task::spawn_blocking(look));
        let found = match tokio::time::timeout(patience, looking).await {
            Ok(looked) => {
                state.looking = None;
                looked.unwrap_or_else(|_| Err("NVIDIA's driver could not be read".into()))
            }
            Err(_) => Err("NVIDIA's driver does not answer".into()),
        };
        state.last = Some((Instant::now(), found.clone()));
        found
    }
}

/// A figure that a processor does not have is absent; any other error is the whole's.
fn figure<T>(read: std::result::Result<T, NvmlError>) -> std::result::Result<Option<T>, NvmlError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(NvmlError::NotSupported) => Ok(None),
        Err(error) => Err(error),
    }
}

fn look() -> std::result::Result<Vec<Gpu>, NvmlError> {
    let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init()?;
    let driver_version = nvml.sys_driver_version()?;
    let mut all = Vec::new();
    for index in 0..nvml.device_count()?.min(MOST) {
        let device = nvml.device_by_index(index)?;
        all.push(Gpu {
            index,
            name: device.name()?,
            memory_mb: figure(device.memory_info())?.map(|memory| memory.total / MIB),
            utilization_percent: figure(device.utilization_rates())?.map(|rates| rates.gpu),
            temperature_celsius: figure(device.temperature(TemperatureSensor::Gpu))?,
            driver_version: driver_version.clone(),
        });
    }
    Ok(all)
}

/// Why there are none, for people.
fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
            "this machine has no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded".into()
        }
        NvmlError::DriverNotLoaded => "NVIDIA's driver is installed and not loaded".into(),
        other => format!("NVIDIA's driver answers: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_driver_that_hangs_holds_no_caller_and_is_read_once() {
        let gpus = Gpus::default();
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let slow = move || {
            _ = hangs.recv();
            Ok(Vec::new())
        };
        let short = Duration::from_millis(1);
        assert!(gpus.read(short, slow).await.unwrap_err().contains("does not answer"));
        let second = || -> FoundGpus { panic!("a second reading was begun") };
        gpus.0.lock().await.last = None;
        assert!(gpus.read(short, second).await.unwrap_err().contains("does not answer"));
        gpus.0.lock().await.last = None;
        release.send(()).unwrap();
        assert_eq!(gpus.read(Duration::from_secs(60), second).await, Ok(Vec::new()));
    }
}
