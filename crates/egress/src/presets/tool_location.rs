//! Where tools are searched for: a root folder, and the variables and homes that its tools would see.

use super::tree::{ImageFiles, Tree};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

/// Where tools are searched for.
#[derive(Debug)]
pub struct ToolLocation {
    pub(super) tree: Tree,
    variables: BTreeMap<String, String>,
    homes: Vec<String>,
    machine: bool,
}

/// Where programs are when no variable says so.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl ToolLocation {
    /// The machine: its files, and the variables and home of the user who started the server.
    pub fn machine() -> io::Result<Self> {
        Ok(Self::new(Tree::open(Path::new("/"))?, std::env::vars().collect(), true))
    }

    /// An image: its files, and the variables that its containers start with.
    #[must_use]
    pub fn image(files: Box<dyn ImageFiles>, variables: BTreeMap<String, String>) -> Self {
        Self::new(Tree::Image(files), variables, false)
    }

    /// The same where it is unpacked into a folder that is trusted.
    pub fn image_folder(root: &Path, variables: BTreeMap<String, String>) -> io::Result<Self> {
        Ok(Self::new(Tree::open(root)?, variables, false))
    }

    /// A root folder with the variables given, as the machine would be.
    #[cfg(test)]
    pub(super) fn as_machine(root: &Path, variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Self::new(Tree::open(root).unwrap(), variables, true)
    }

    fn new(tree: Tree, variables: BTreeMap<String, String>, machine: bool) -> Self {
        let homes = match variables.get("HOME").filter(|h| h.starts_with('/')) {
            Some(home) => vec![home.trim_end_matches('/').to_owned()],
            None => vec!["/root".to_owned()],
        };
        Self { tree, variables, homes, machine }
    }

    /// Whether it is the machine.
    #[must_use]
    pub fn is_machine(&self) -> bool {
        self.machine
    }

    /// A variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// All of them.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A path below each home.
    pub(super) fn home(&self, path: &str) -> impl Iterator<Item = String> {
        self.homes.iter().map(move |home| format!("{home}/{path}"))
    }

    /// Below the user's folder of settings.
    pub(super) fn config(&self, path: &str) -> Vec<String> {
        match self.variable("XDG_CONFIG_HOME") {
            Some(folder) => vec![format!("{folder}/{path}")],
            None => self.home(&format!(".config/{path}")).collect(),
        }
    }

    /// The folders in which programs are, in the order in which they are looked for.
    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        self.variable("PATH").unwrap_or(USUAL_PATH).split(':').filter(|p| p.starts_with('/')).take(64)
    }

    /// The folders below which tools were installed (`/usr` for `/usr/bin`), in the same order and the usual
    /// ones after them.
    pub(super) fn prefixes(&self) -> Vec<String> {
        let named = self.variable("VIRTUAL_ENV").map(str::to_owned);
        let path = self.programs().map(|p| p.rsplit_once('/').map_or("", |(prefix, _)| prefix).to_owned());
        let usual = ["/usr/local", "/usr"].map(str::to_owned);
        let mut seen = BTreeSet::new();
        named.into_iter().chain(path).chain(usual).filter(|p| seen.insert(p.clone())).collect()
    }
}
