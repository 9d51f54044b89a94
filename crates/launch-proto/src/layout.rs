//! The paths of an instance. An instance is a data folder; what must not outlive the machine's uptime lies in a
//! run folder whose name is derived from it.

use std::path::{Path, PathBuf};

/// The folders of one instance.
#[derive(Debug, Clone)]
pub struct Layout {
    instance: String,
    data: PathBuf,
}

const ORIGIN: &str = "data-folder";

/// FNV-1a: short, stable, and no secret depends on it.
fn hash(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

impl Layout {
    /// The layout of a data folder, which must be absolute and canonical.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        Self { instance: format!("{:016x}", hash(data.as_os_str().as_bytes())), data: data.into() }
    }

    /// The name of the instance, as cgroups and run folders have it.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What every instance of the machine shares.
    #[must_use]
    pub fn machine() -> &'static Path {
        Path::new("/run/atoll")
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The run folder.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        Self::machine().join(&self.instance)
    }

    /// The file in a run folder that names the data folder, so that the data folder can be found from the run
    /// folder.
    #[must_use]
    pub fn origin(&self) -> PathBuf {
        self.run().join(ORIGIN)
    }

    /// Every instance that has something on this machine at the moment.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::below(Self::machine())
    }

    fn below(machine: &Path) -> Vec<Self> {
        use std::os::unix::ffi::OsStringExt;
        let folders = std::fs::read_dir(machine).into_iter().flatten().flatten();
        let instances = folders.filter_map(|folder| {
            let data = std::fs::read(folder.path().join(ORIGIN)).ok()?;
            let layout = Self::new(Path::new(&std::ffi::OsString::from_vec(data)));
            // The name says whether the file was written by a launcher for this folder.
            (folder.file_name() == layout.instance()).then_some(layout)
        });
        let mut all: Vec<Self> = instances.collect();
        all.sort_by(|a, b| a.data.cmp(&b.data));
        all
    }

    /// Where the launcher listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run().join("launch.sock")
    }

    /// Where the observer of file changes listens.
    #[must_use]
    pub fn observer(&self) -> PathBuf {
        self.run().join("observe.sock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_differ_and_socket_names_fit() {
        let (a, b) = (Layout::new(Path::new("/a")), Layout::new(Path::new("/b")));
        assert_ne!(a.socket(), b.socket());
        let deep = Layout::new(Path::new(&"/long".repeat(200)));
        assert!(deep.socket().as_os_str().len() < 108);
    }

    #[test]
    fn instances_are_found_by_what_their_run_folders_say() {
        let machine = std::env::temp_dir().join(format!("atoll-layout-{}", std::process::id()));
        let real = Layout::new(Path::new("/srv/b"));
        for (folder, says) in [(real.instance(), "/srv/b"), ("0123456789abcdef", "/srv/lie")] {
            std::fs::create_dir_all(machine.join(folder)).expect("a folder");
            std::fs::write(machine.join(folder).join(ORIGIN), says).expect("a file");
        }
        std::fs::create_dir_all(machine.join("empty")).expect("a folder");
        let found: Vec<PathBuf> = Layout::below(&machine).iter().map(|l| l.data().into()).collect();
        std::fs::remove_dir_all(&machine).expect("to clean up");
        assert_eq!(found, [PathBuf::from("/srv/b")]);
    }
}
