//! Reads how often the kernel has killed for memory in this sandbox. The file is the cgroup's, of
//! either version: both have a line `oom_kill N`.

use std::{os::fd::OwnedFd, sync::Arc};

#[derive(Clone)]
pub(crate) struct OomCounter(Option<Arc<OwnedFd>>);

impl OomCounter {
    pub(crate) fn new(fd: Option<OwnedFd>) -> Self {
        Self(fd.map(Arc::new))
    }

    /// The count now; 0 where the kernel does not count.
    pub(crate) fn read(&self) -> u64 {
        let Some(fd) = &self.0 else { return 0 };
        let mut buffer = [0; 1024];
        match rustix::io::pread(fd, &mut buffer, 0) {
            Ok(length) => parse(&buffer[..length]).unwrap_or(0),
            Err(_) => 0,
        }
    }
}

fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn both_cgroup_versions_are_read() {
        assert_eq!(parse(b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
        assert_eq!(parse(b"low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n"), Some(1));
        assert_eq!(parse(b"under_oom 0\n"), None);
    }
}
