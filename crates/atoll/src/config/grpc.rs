//! `[grpc]`: sessions over gRPC and gRPC-Web. In variables, lists are separated by commas. The names that the reference
//! system gives its settings are read as well.

use super::{
    mcp::{is_host, list, value},
    variable, wrong,
};
use atoll_core::bounds::{CPU_MILLIS, DISK_MB, IDLE_SECONDS, MEMORY_MB};
use atoll_front_grpc::GrpcSettings;
use atoll_http::{Origin, Tls};
use atoll_types::{ImageName, Limits, Profile, Result};
use serde::Deserialize;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    listen: Option<String>,
    allowed_origins: Option<Vec<String>>,
    allowed_hosts: Option<Vec<String>>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    image: Option<String>,
    profile: Option<String>,
    runtime: Option<String>,
    session_timeout_seconds: Option<u32>,
    memory_mb: Option<u64>,
    cpu_cores: Option<f64>,
    disk_mb: Option<u64>,
    process_api: Option<bool>,
}

/// Where gRPC is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrpcListen {
    pub(crate) address: SocketAddr,
    /// Whether the operator named it. A default address that is taken is no reason not to start.
    pub(crate) named: bool,
}

/// The operator's settings for gRPC.
#[derive(Debug, Clone)]
pub(crate) struct GrpcConfig {
    /// None: it is off.
    pub(crate) listen: Option<GrpcListen>,
    pub(crate) allowed_origins: Vec<Origin>,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) sessions: GrpcSettings,
    /// Whether sessions serve the process API on their loopback.
    pub(crate) process_api: bool,
}

const PORT: u16 = 50051;
const MIB: u64 = 1 << 20;

/// The address: of the own variable, of the reference system's, of the file, or the default one.
fn listen(file: Option<String>) -> Result<Option<GrpcListen>> {
    let own = std::env::var("ATOLL_GRPC_LISTEN").ok();
    let usual = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let named = match (own, variable("GRPC_PORT"), file) {
        (Some(text), _, _) => text,
        (None, Some(port), _) => {
            let port = port.parse().map_err(|_| wrong("GRPC_PORT", "expected the number of a port"))?;
            usual(port).to_string()
        }
        (None, None, Some(text)) => text,
        (None, None, None) => return Ok(Some(GrpcListen { address: usual(PORT), named: false })),
    };
    if named.is_empty() {
        return Ok(None);
    }
    let address =
        named.parse().map_err(|_| wrong("grpc.listen", format!("{named:?} is no address and port")))?;
    Ok(Some(GrpcListen { address, named: true }))
}

fn tls(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<Tls>> {
    let certificate = variable("ATOLL_GRPC_TLS_CERTIFICATE").map(PathBuf::from).or(certificate);
    let key = variable("ATOLL_GRPC_TLS_KEY").map(PathBuf::from).or(key);
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        _ => return Err(wrong("grpc.tls_certificate", "TLS needs grpc.tls_certificate and grpc.tls_key")),
    };
    let read = |name: &str, path: &PathBuf| {
        fs::read(path).map_err(|e| wrong(name, format!("{}: {e}", path.display())))
    };
    let (chain, secret) = (read("grpc.tls_certificate", &certificate)?, read("grpc.tls_key", &key)?);
    let unfit =
        |e: atoll_types::Error| wrong(&format!("grpc.tls_{}", e.field.unwrap_or_default()), e.message);
    Tls::new(&chain, &secret).map(Some).map_err(unfit)
}

impl File {
    pub(super) fn settings(self) -> Result<GrpcConfig> {
        let origin =
            |text: &String| Origin::parse(text).map_err(|e| wrong("grpc.allowed_origins", e.message));
        let allowed_origins = list("ATOLL_GRPC_ALLOWED_ORIGINS", self.allowed_origins);
        let allowed_hosts = list("ATOLL_GRPC_ALLOWED_HOSTS", self.allowed_hosts);
        if let Some(bad) = allowed_hosts.iter().find(|host| !is_host(host)) {
            return Err(wrong(
                "grpc.allowed_hosts",
                format_args!("{bad:?} is no name, with or without a port"),
            ));
        }
        let usual = GrpcSettings::default();
        let own = |name: &str, other: &str| variable(name).or_else(|| variable(other));
        let runtime =
            own("ATOLL_GRPC_RUNTIME", "SANDBOX_RUNTIME").or(self.runtime).filter(|name| !name.is_empty());
        if let Some(bad) = runtime.iter().find(|name| name.parse::<ImageName>().is_err()) {
            return Err(wrong("grpc.runtime", format!("{bad:?} is no name of a runtime, such as runc")));
        }
        let profile = variable("ATOLL_GRPC_PROFILE").or(self.profile).unwrap_or(usual.profile);
        if Profile::builtin(&profile).is_none() {
            return Err(wrong("grpc.profile", format!("expected one of {}", Profile::BUILTIN.join(", "))));
        }
        let idle = match variable("SESSION_TIMEOUT") {
            Some(text) if variable("ATOLL_GRPC_SESSION_TIMEOUT_SECONDS").is_none() => {
                Some(text.parse().map_err(|_| wrong("SESSION_TIMEOUT", "expected a number of seconds"))?)
            }
            _ => value("ATOLL_GRPC_SESSION_TIMEOUT_SECONDS", self.session_timeout_seconds)?,
        };
        let idle_seconds = idle.unwrap_or(usual.idle_seconds);
        if !IDLE_SECONDS.contains(&idle_seconds) {
            let why = format!("must be between {} and {}", IDLE_SECONDS.start(), IDLE_SECONDS.end());
            return Err(wrong("grpc.session_timeout_seconds", why));
        }
        Ok(GrpcConfig {
            listen: listen(self.listen)?,
            allowed_origins: allowed_origins.iter().map(origin).collect::<Result<_>>()?,
            allowed_hosts,
            tls: tls(self.tls_certificate, self.tls_key)?,
            sessions: GrpcSettings {
                image: own("ATOLL_GRPC_IMAGE", "SANDBOX_IMAGE").or(self.image),
                profile,
                runtime,
                idle_seconds,
                limits: limits(usual.limits, self.memory_mb, self.cpu_cores, self.disk_mb)?,
            },
            process_api: value("ATOLL_GRPC_PROCESS_API", self.process_api)?.unwrap_or(false),
        })
    }
}

fn limits(usual: Limits, memory: Option<u64>, cores: Option<f64>, disk: Option<u64>) -> Result<Limits> {
    let memory = value("ATOLL_GRPC_MEMORY_MB", memory)?.unwrap_or(usual.memory_bytes / MIB);
    let disk = value("ATOLL_GRPC_DISK_MB", disk)?.unwrap_or(usual.disk_bytes / MIB);
    let cores = value("ATOLL_GRPC_CPU_CORES", cores)?.unwrap_or(f64::from(usual.cpu_millis) / 1000.0);
    let (least, most) = (f64::from(*CPU_MILLIS.start()) / 1000.0, f64::from(*CPU_MILLIS.end()) / 1000.0);
    if !MEMORY_MB.contains(&memory) {
        let why = format!("must be between {} and {}", MEMORY_MB.start(), MEMORY_MB.end());
        return Err(wrong("grpc.memory_mb", why));
    }
    if !DISK_MB.contains(&disk) {
        return Err(wrong(
            "grpc.disk_mb",
            format!("must be between {} and {}", DISK_MB.start(), DISK_MB.end()),
        ));
    }
    if !(least..=most).contains(&cores) {
        return Err(wrong("grpc.cpu_cores", format!("must be between {least} and {most}")));
    }
    let cpu_millis = (cores * 1000.0).round() as u32;
    Ok(Limits { memory_bytes: memory * MIB, disk_bytes: disk * MIB, cpu_millis, ..usual })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GrpcConfig> {
        toml::from_str::<File>(text).map_err(|e| wrong("grpc", e))?.settings()
    }

    #[test]
    fn the_default_is_this_machine_without_tls() {
        let config = read("").unwrap();
        let address = "127.0.0.1:50051".parse().unwrap();
        assert_eq!(config.listen, Some(GrpcListen { address, named: false }));
        assert!(config.tls.is_none() && config.allowed_origins.is_empty());
        assert_eq!(config.sessions, GrpcSettings::default());
        assert_eq!((config.sessions.limits.cpu_millis, config.sessions.limits.memory_bytes), (4000, 4 << 30));
        assert_eq!(read("listen = \"\"").unwrap().listen, None, "switched off");
        let named = read("listen = \"127.0.0.1:50051\"").unwrap().listen.unwrap();
        assert!(named.named, "and so a reason not to start where it is taken");
        assert!(!config.process_api && read("process_api = true").unwrap().process_api);
        let own = read("runtime = \"runc\"\nprofile = \"root\"\nmemory_mb = 256\ncpu_cores = 0.5")
            .unwrap()
            .sessions;
        assert_eq!((own.runtime.as_deref(), own.profile.as_str()), (Some("runc"), "root"));
        assert_eq!((own.limits.memory_bytes, own.limits.cpu_millis), (256 * MIB, 500));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("listen = \"everywhere\"", "grpc.listen"),
            ("allowed_origins = [\"*\"]", "grpc.allowed_origins"),
            ("allowed_hosts = [\"*\"]", "grpc.allowed_hosts"),
            ("tls_key = \"/no/such/file\"", "grpc.tls_certificate"),
            ("tls_key = \"/no/such/file\"\ntls_certificate = \"/no/such\"", "grpc.tls_certificate"),
            ("tls_key = \"/etc/passwd\"\ntls_certificate = \"/etc/passwd\"", "grpc.tls_certificate"),
            ("runtime = \"/bin/sh\"", "grpc.runtime"),
            ("profile = \"god\"", "grpc.profile"),
            ("session_timeout_seconds = 1", "grpc.session_timeout_seconds"),
            ("memory_mb = 1", "grpc.memory_mb"),
            ("cpu_cores = nan", "grpc.cpu_cores"),
            ("disk_mb = 0", "grpc.disk_mb"),
            ("lisen = 1", "lisen"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(named), "{text}: {error}");
        }
    }
}
