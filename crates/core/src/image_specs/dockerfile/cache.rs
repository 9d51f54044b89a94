//! The keys of steps: two builds share what a step made where the base, all steps up to it, who runs them and the files that these copy
//! are the same.

use super::{Step, StepKind};
use atoll_types::{Error, Result, audit::Sha256};
use sha2::{Digest, Sha256 as Hasher};

/// What identifies the files after a step.
pub type StepKey = Sha256;

/// Changes where the same steps would make other files.
const VERSION: &str = "atoll-steps-3";

/// A field of a key, with its length in front, so that no two lists of fields are one.
fn add(hasher: &mut Hasher, field: &[u8]) {
    hasher.update((field.len() as u64).to_be_bytes());
    hasher.update(field);
}

/// The key before all steps, on a base with this digest; `as_root` says that commands are root's, whatever user the base names.
pub fn start_key(base: &str, as_root: bool) -> StepKey {
    let mut hasher = Hasher::new();
    add(&mut hasher, VERSION.as_bytes());
    add(&mut hasher, &[u8::from(as_root)]);
    add(&mut hasher, base.as_bytes());
    Sha256(hasher.finalize().into())
}

/// The key after each step, on a base with this digest. `digest` tells that of the files at a path of the folder that is
/// built in.
pub fn step_keys(
    base: &str,
    as_root: bool,
    steps: &[Step],
    mut digest: impl FnMut(&str) -> Result<Sha256>,
) -> Result<Vec<StepKey>> {
    let mut parent = start_key(base, as_root);
    let mut keys = Vec::with_capacity(steps.len());
    for step in steps {
        let mut hasher = Hasher::new();
        add(&mut hasher, &parent.0);
        let kind = serde_json::to_vec(&step.kind).map_err(|e| Error::internal(e.to_string()))?;
        add(&mut hasher, &kind);
        if let StepKind::Copy { sources, .. } = &step.kind {
            for source in sources {
                add(&mut hasher, &digest(source)?.0);
            }
        }
        parent = Sha256(hasher.finalize().into());
        keys.push(parent);
    }
    Ok(keys)
}
