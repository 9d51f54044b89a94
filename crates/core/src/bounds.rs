//! What requests may hold. The checks of the core are made of these, and so is the API's description.

use atoll_types::{
    Error, Result,
    text::{CONTROL, NUL, NUL_AND_EQUALS, TextRule},
};
use std::ops::RangeInclusive;

pub use crate::{
    ceiling::LEAST_TIMEOUT,
    events::LARGEST_PAGE as EVENTS_PER_PAGE,
    kernels::packages::MOST as MOST_PACKAGES,
    sandboxes::{LARGEST_PAGE as SANDBOXES_PER_PAGE, MOST_AT_ONCE},
    skills::{
        LARGEST_PACKAGE, LONGEST_DESCRIPTION, LONGEST_SKILL_MD, MOST_INSTALLED_AT_ONCE, MOST_SKILL_BYTES,
        MOST_SKILL_FILES,
    },
};
pub use atoll_egress::policy::MOST_ENTRIES as MOST_EGRESS_ENTRIES;
pub use atoll_guest_tools::{
    LARGEST_FILE, LONGEST_PATH, LONGEST_PATTERN, MOST_CONTEXT, MOST_FOUND, MOST_MATCHES, path_pattern,
    relative_pattern,
};
pub use atoll_kernels::LONGEST_CODE;
pub use atoll_types::{
    IMAGE_NAME_PATTERN, LONGEST_IMAGE_NAME, LONGEST_TAG, TAG_PATTERN,
    attachment::{LONGEST_PLACE, MOST_RULES, MOST_VOLUMES, PLACE_PATTERN},
    audit::{EGRESS_PER_PAGE, OPERATIONS_PER_PAGE},
    limits::{CPU_MILLIS, DISK_MB, MEMORY_MB, PROCESSES},
    packages::{
        LONGEST_NAME as PACKAGE_NAME_LENGTH, LONGEST_VERSION as PACKAGE_VERSION_LENGTH,
        PLAIN as PLAIN_PACKAGE, VERSION as PACKAGE_VERSION, scoped as scoped_package,
        with_extras as package_with_extras,
    },
};

/// The shortest and the longest that a sandbox may be idle.
pub const IDLE_SECONDS: RangeInclusive<u32> = 10..=30 * 24 * 3600;
/// The shortest and the longest lifetime that a request may name.
pub const LIFETIME_SECONDS: RangeInclusive<u32> = 1..=365 * 24 * 3600;
/// How long a token may be valid.
pub const TOKEN_SECONDS: RangeInclusive<u32> = 1..=7 * 24 * 3600;

/// An image, or an alias of one.
pub const IMAGE: TextRule = TextRule::new(1, 255, CONTROL);
/// The name of an image for people.
pub const IMAGE_DISPLAY_NAME: TextRule = TextRule::new(1, 100, CONTROL).visible();
/// What an image is for.
pub const IMAGE_DESCRIPTION: TextRule = TextRule::new(0, 1000, CONTROL);
/// Most tags of an image.
pub const MOST_TAGS: usize = 50;
/// A session key.
pub const SESSION_KEY: TextRule = TextRule::new(1, 255, CONTROL);
/// The id of a tenant.
pub const TENANT_ID: TextRule = TextRule::new(1, 255, CONTROL);
/// Most labels of a sandbox.
pub const MOST_LABELS: usize = 64;
/// The name of a label.
pub const LABEL_NAME: TextRule = TextRule::new(1, 100, CONTROL);
/// The value of a label.
pub const LABEL_VALUE: TextRule = TextRule::new(0, 500, CONTROL);

/// Most variables of a request.
pub const MOST_VARIABLES: usize = 500;
/// The name of a variable. Names and values together are bounded in bytes.
pub const VARIABLE_NAME: TextRule = TextRule::new(1, usize::MAX, NUL_AND_EQUALS);
/// The value of a variable.
pub const VARIABLE_VALUE: TextRule = TextRule::new(0, usize::MAX, NUL);

/// A line for the shell. Its length is bounded in bytes.
pub const COMMAND: TextRule = TextRule::new(1, usize::MAX, NUL).visible();
/// An argument of a program.
pub const ARGUMENT: TextRule = TextRule::new(0, usize::MAX, NUL);
/// A working directory.
pub const DIRECTORY: TextRule = TextRule::new(0, LONGEST_PATH, NUL);
/// The code of a cell.
pub const CODE: TextRule = TextRule::new(1, LONGEST_CODE, NUL);
/// The label of a snapshot.
pub const SNAPSHOT_LABEL: TextRule = TextRule::new(1, 200, CONTROL).visible();
/// The name of a checkpoint.
pub const CHECKPOINT_NAME: TextRule = TextRule::new(0, 100, CONTROL);

/// The name of a key, and of an owner.
pub const KEY_NAME: TextRule = TextRule::new(1, 100, CONTROL).visible();

/// Refuses a working directory that no kernel takes.
pub(crate) fn check_directory(directory: Option<&str>) -> Result<()> {
    match directory {
        Some(path) if path.len() > LONGEST_PATH || !DIRECTORY.fits(path) => {
            let message = format!("working_directory may have {LONGEST_PATH} bytes, none of them NUL");
            Err(Error::invalid("working_directory", message))
        }
        _ => Ok(()),
    }
}
