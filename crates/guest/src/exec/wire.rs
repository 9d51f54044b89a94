//! The messages between a shim and PID 1: packets of fixed size that need no allocation, because the shim may not
//! allocate. Only these two hold the socket.

use atoll_types::StartStage;

/// The stage that a byte of a packet names: its place among all of them.
pub(crate) fn stage_of(byte: u8) -> Option<StartStage> {
    StartStage::ALL.get(usize::from(byte)).copied()
}

/// A step of the start that did not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) stage: StartStage,
    pub(crate) errno: i32,
}

/// What processes have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    /// The most that one of them had.
    pub(crate) max_rss_kb: u64,
}

impl Usage {
    /// Both together: times add up, the larger peak stays.
    pub(crate) fn add(&mut self, other: Usage) {
        self.user_us = self.user_us.saturating_add(other.user_us);
        self.system_us = self.system_us.saturating_add(other.system_us);
        self.max_rss_kb = self.max_rss_kb.max(other.max_rss_kb);
    }

    /// The later of two readings of the same processes: nothing that was used is given back.
    pub(crate) fn or_more(self, other: Usage) -> Usage {
        Usage {
            user_us: self.user_us.max(other.user_us),
            system_us: self.system_us.max(other.system_us),
            max_rss_kb: self.max_rss_kb.max(other.max_rss_kb),
        }
    }
}

/// How the main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ending {
    /// As `wait4` gives it.
    pub(crate) status: i32,
    /// Of everything that has ended so far.
    pub(crate) usage: Usage,
    /// No descendant is left, so the shim ends too.
    pub(crate) alone: bool,
}

/// From the shim to PID 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The program runs, under this process id.
    Started(i32),
    /// It never ran; the shim ends.
    Failed(Failed),
    /// The main process ended.
    Ended(Ending),
    /// No descendant of a command that ended earlier is left; this is what all of them used. The shim ends.
    Gone(Usage),
}

pub(crate) const REPORT_BYTES: usize = 32;

impl Report {
    pub(crate) fn encode(self) -> [u8; REPORT_BYTES] {
        let (kind, detail, number, usage) = match self {
            Report::Started(pid) => (1, 0, pid, Usage::default()),
            Report::Failed(Failed { stage, errno }) => (2, stage as u8, errno, Usage::default()),
            Report::Ended(ending) => (3, u8::from(ending.alone), ending.status, ending.usage),
            Report::Gone(usage) => (4, 0, 0, usage),
        };
        let mut bytes = [0; REPORT_BYTES];
        bytes[0] = kind;
        bytes[1] = detail;
        bytes[4..8].copy_from_slice(&number.to_ne_bytes());
        bytes[8..16].copy_from_slice(&usage.user_us.to_ne_bytes());
        bytes[16..24].copy_from_slice(&usage.system_us.to_ne_bytes());
        bytes[24..32].copy_from_slice(&usage.max_rss_kb.to_ne_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPORT_BYTES] = bytes.try_into().ok()?;
        let number = i32::from_ne_bytes(bytes[4..8].try_into().ok()?);
        let long = |at: usize| Some(u64::from_ne_bytes(bytes[at..at + 8].try_into().ok()?));
        let usage = Usage { user_us: long(8)?, system_us: long(16)?, max_rss_kb: long(24)? };
        Some(match bytes[0] {
            1 => Report::Started(number),
            2 => Report::Failed(Failed { stage: stage_of(bytes[1])?, errno: number }),
            3 => Report::Ended(Ending { status: number, usage, alone: bytes[1] != 0 }),
            4 => Report::Gone(usage),
            _ => return None,
        })
    }
}

/// From PID 1 to the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Kill everything below, until nothing is left.
    Kill,
    /// Send a signal to the command's process group.
    Signal(u8),
}

impl Order {
    pub(crate) fn encode(self) -> [u8; 2] {
        match self {
            Order::Kill => [1, 0],
            Order::Signal(number) => [2, number],
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [1, 0] => Some(Order::Kill),
            [2, number] => Some(Order::Signal(*number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_the_trip() {
        let usage = Usage { user_us: 7, system_us: u64::MAX, max_rss_kb: 3 };
        let ending = Ending { status: 256, usage, alone: true };
        let failed = |stage| Report::Failed(Failed { stage, errno: 13 });
        let reports = [Report::Started(42), Report::Ended(ending), Report::Gone(usage)];
        for report in reports.into_iter().chain(StartStage::ALL.iter().copied().map(failed)) {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        for order in [Order::Kill, Order::Signal(15)] {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        assert_eq!(Report::decode(&[0; REPORT_BYTES]), None);
        assert_eq!(Report::decode(b""), None);
        assert_eq!(Order::decode(b"x"), None);
    }
}
