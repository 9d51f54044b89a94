//! What a sandbox needs of the machine while it has a container.

use atoll_types::Limits;

/// Processes of Atoll's own that a container may have beside the user's.
const OWN_PROCESSES: u64 = 16;

/// The resources that a sandbox needs, or that the machine has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) cpu_millis: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
}

/// A resource that can be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Memory,
    Cpu,
    Processes,
}

impl Resource {
    pub(crate) const ALL: [Resource; 3] = [Self::Memory, Self::Cpu, Self::Processes];

    /// The field of a request that names it.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Memory => "memory_mb",
            Self::Cpu => "cpu_cores",
            Self::Processes => "processes",
        }
    }
}

impl Need {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            cpu_millis: limits.cpu_millis.into(),
            memory_bytes: limits.memory_bytes,
            processes: u64::from(limits.processes) + OWN_PROCESSES,
        }
    }

    pub(crate) fn get(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Memory => self.memory_bytes,
            Resource::Cpu => self.cpu_millis,
            Resource::Processes => self.processes,
        }
    }

    /// The figure as errors show it: megabytes, cores, processes.
    pub(crate) fn figure(&self, resource: Resource) -> serde_json::Value {
        match resource {
            Resource::Memory => (self.memory_bytes >> 20).into(),
            Resource::Cpu => (self.cpu_millis as f64 / 1000.0).into(),
            Resource::Processes => self.processes.into(),
        }
    }

    /// The first resource of which this needs more than there is.
    pub(crate) fn beyond(&self, there: &Self) -> Option<Resource> {
        Resource::ALL.into_iter().find(|resource| self.get(*resource) > there.get(*resource))
    }

    fn each(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu_millis: of(self.cpu_millis, other.cpu_millis),
            memory_bytes: of(self.memory_bytes, other.memory_bytes),
            processes: of(self.processes, other.processes),
        }
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    pub(crate) fn least(&self, other: &Self) -> Self {
        self.each(other, u64::min)
    }
}
