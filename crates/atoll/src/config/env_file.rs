//! `.env` of the folder in which `atoll serve` is started: variables beneath those of its environment. It is read where it
//! belongs to the user that starts the server, or to root, and no other user may write it. Only the names that the reference
//! systems give their settings count: a folder may be a repository of another person's, whose file must not decide what the server
//! reaches, whom it lets in or what is loaded into it. No other command reads it.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::OnceLock,
};

const NAME: &str = ".env";
/// More is no list of variables.
const LARGEST: u64 = 1 << 20;
/// In the environment of a server that root started: root has passed on what the file has.
pub(crate) const PASSED: &str = "ATOLL_ENV_FILE_PASSED";

/// The names that count in it. `IMPORT_ALLOWED_DIRS`, `CONTAINER_NETWORK_ENABLED` and `CONTAINER_EXECUTE_AS_ROOT` do not: they decide
/// what sandboxes reach and may. Nor do `PROXY_HOST`, `PROXY_PORT` and `SIGNING_KEY`: together they open a listener to a key that the
/// file's author knows; nor `ENCRYPTION_KEY`, without which what was stored is lost.
const NAMES: &[&str] = &[
    "API_BASE_URL",
    "CHAT_MODEL",
    "CHAT_MODEL_API_KEY",
    "CHAT_MODEL_BASE_URL",
    "CHAT_MODEL_PROVIDER",
    "CHAT_MODEL_SUPPORTS_VISION",
    "CONTAINER_CPU_QUOTA",
    "CONTAINER_EXECUTION_TIMEOUT_SECONDS",
    "CONTAINER_MAX_SESSIONS",
    "CONTAINER_MAX_SESSIONS_PER_THREAD",
    "CONTAINER_MEMORY_LIMIT",
    "CONTAINER_ORPHAN_MIN_AGE_SECONDS",
    "CONTAINER_PIDS_LIMIT",
    "CONTAINER_TMPFS_SIZE",
    "GRPC_PORT",
    "MAX_ITERATIONS",
    "MAX_RESULT_CHARS",
    "MAX_STDERR_CHARS",
    "MAX_STDOUT_CHARS",
    "MAX_TRACEBACK_CHARS",
    "SANDBOX_IMAGE",
    "SANDBOX_RUNTIME",
    "SESSION_GC_INTERVAL_SECONDS",
    "SESSION_IDLE_TTL_SECONDS",
    "SESSION_MAX_ACTIVE_THREADS",
    "SESSION_MAX_LIFETIME_SECONDS",
    "SESSION_TIMEOUT",
    "STORAGE_DIR",
    "STORAGE_PATH",
];

/// The names that count in the environment alone.
const OF_THE_ENVIRONMENT: &[&str] = &[
    "CONTAINER_EXECUTE_AS_ROOT",
    "CONTAINER_NETWORK_ENABLED",
    "ENCRYPTION_KEY",
    "IMPORT_ALLOWED_DIRS",
    "POSTGRES_DB",
    "POSTGRES_HOST",
    "POSTGRES_PASSWORD",
    "POSTGRES_PASSWORD_FILE",
    "POSTGRES_PORT",
    "POSTGRES_USER",
    "PROXY_HOST",
    "PROXY_PORT",
    "SIGNING_KEY",
];

/// The names of where a model's key is sent. They count beside a key of the same file: one of the operator's does not go where
/// the file says.
const OF_A_KEY: &[&str] = &["CHAT_MODEL_BASE_URL", "CHAT_MODEL_PROVIDER"];
/// The name of that key, and others that take precedence over it.
const KEY: &str = "CHAT_MODEL_API_KEY";
const STRONGER_KEYS: &[&str] = &["ATOLL_AGENT_API_KEY", "ATOLL_AGENT_API_KEY_FILE", KEY];

/// Names that are told of at most, of a file that may be another person's.
const MOST_NAMES: usize = 8;
const LONGEST_NAME: usize = 64;

static READ: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Reads the file, for a server that is started in this folder.
pub(crate) fn load() {
    READ.get_or_init(|| match std::env::var_os(PASSED) {
        Some(_) => BTreeMap::new(),
        None => {
            let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            let (counts, said) = chosen(read(Path::new(NAME)), environment);
            said.iter().for_each(|line| eprintln!("atoll: {line}"));
            counts
        }
    });
}

/// The variables that count of those of the file, and what is said of the others.
fn chosen(
    mut file: BTreeMap<String, String>,
    environment: impl Fn(&str) -> Option<String>,
) -> (BTreeMap<String, String>, Vec<String>) {
    file.retain(|_, value| !value.is_empty());
    let mut said = Vec::new();
    let refuse = |file: &mut BTreeMap<String, String>, all: &dyn Fn(&str) -> bool, why: &str| {
        let names: Vec<String> = file.keys().filter(|name| all(name)).cloned().collect();
        file.retain(|name, _| !all(name));
        let shown: Vec<&str> = names.iter().take(MOST_NAMES).map(|name| cut(name)).collect();
        let more = if names.len() > MOST_NAMES { ", …" } else { "" };
        (!names.is_empty()).then(|| format!("{NAME}: {}{more} {why}", shown.join(", ")))
    };
    let of_the_environment = |name: &str| OF_THE_ENVIRONMENT.contains(&name);
    said.extend(refuse(&mut file, &of_the_environment, "counts in the environment alone"));
    if !file.contains_key(KEY) || STRONGER_KEYS.iter().any(|name| environment(name).is_some()) {
        let why = "counts only beside the CHAT_MODEL_API_KEY of the same file";
        said.extend(refuse(&mut file, &|name: &str| OF_A_KEY.contains(&name), why));
    }
    let why = "is not read: a file has only names that docs/configuration.md lists";
    said.extend(refuse(&mut file, &|name: &str| !NAMES.contains(&name), why));
    (file, said)
}

fn cut(name: &str) -> &str {
    name.get(..LONGEST_NAME).unwrap_or(name)
}

/// The variables of the file; none before [`load`].
pub(crate) fn variable(name: &str) -> Option<String> {
    READ.get()?.get(name).cloned()
}

/// All of them.
pub(crate) fn variables() -> impl Iterator<Item = (&'static String, &'static String)> + Clone {
    READ.get().into_iter().flatten()
}

fn read(path: &Path) -> BTreeMap<String, String> {
    // A FIFO of this name must not hold up the start.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let Ok(file) = opened else { return BTreeMap::new() };
    let own = [0, rustix::process::geteuid().as_raw()];
    match file.metadata() {
        Ok(found) if found.is_file() && own.contains(&found.uid()) && found.mode() & 0o022 == 0 => {}
        _ => {
            eprintln!(
                "atoll: {NAME} is not read: it must belong to you or to root, and others may not write it"
            );
            return BTreeMap::new();
        }
    }
    let mut text = String::new();
    match file.take(LARGEST).read_to_string(&mut text) {
        Ok(_) => parse(&text),
        Err(error) => {
            eprintln!("atoll: {NAME} is not read: {error}");
            BTreeMap::new()
        }
    }
}

/// Lines `NAME=VALUE`; a value may be quoted, and what is neither that nor a comment is passed over.
fn parse(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let line = line.trim();
        let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
        let bare = || value.split(" #").next().unwrap_or_default().trim_end();
        let value = quoted('"').or_else(|| quoted('\'')).unwrap_or_else(bare);
        (plain && !value.contains('\0')).then(|| (name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn lines_are_names_and_values() {
        let all =
            parse("# no\nA=1\n export B = two words # said\nC=\"x # y\"\nD='z'\nE=\nno line\n-F=1\nA=3\n");
        let told: Vec<(&str, &str)> =
            all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(told, [("A", "3"), ("B", "two words"), ("C", "x # y"), ("D", "z"), ("E", "")]);
    }

    #[test]
    fn a_file_that_others_write_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        fs::write(&path, "GRPC_PORT=1").unwrap();
        for (mode, reads) in [(0o600, true), (0o644, true), (0o664, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let names: Vec<_> = read(&path).into_keys().collect();
            assert_eq!(names, ["GRPC_PORT"][..usize::from(reads)], "{mode:o}");
        }
        assert!(read(&folder.path().join("none")).is_empty());
    }

    /// What counts of a file, and what is said, with these names in the environment.
    fn of(text: &str, environment: &[&str]) -> (Vec<String>, String) {
        let set = |name: &str| environment.contains(&name).then(|| "set".to_owned());
        let (counts, said) = chosen(parse(text), set);
        (counts.into_keys().collect(), said.join("\n"))
    }

    #[test]
    fn only_names_of_other_systems_count_and_the_rest_is_told() {
        let (counts, said) =
            of("GRPC_PORT=1\nATOLL_NO_AUTH=1\nLD_PRELOAD=x\nSIGNING_KEY=k\nPROXY_HOST=\n", &[]);
        assert_eq!(counts, ["GRPC_PORT"]);
        assert!(said.contains("ATOLL_NO_AUTH, LD_PRELOAD is not read"), "{said}");
        assert!(said.contains("SIGNING_KEY counts in the environment alone"), "{said}");
        assert!(!said.contains("PROXY_HOST"), "what is empty is not set: {said}");
        let many: String = (0..100).map(|number| format!("NAME_{number:0>100}=1\n")).collect();
        let (_, said) = of(&many, &[]);
        assert!(said.len() < 1000 && said.contains('…'), "{said}");
        assert_eq!(of("GRPC_PORT=1\nMAX_ITERATIONS=3\n", &["SIGNING_KEY"]).1, "");
    }

    #[test]
    fn an_operators_key_does_not_go_where_a_file_says() {
        let file = "CHAT_MODEL=m\nCHAT_MODEL_BASE_URL=https://model.example\nCHAT_MODEL_PROVIDER=openai\n";
        let (counts, said) = of(file, &[]);
        assert_eq!(counts, ["CHAT_MODEL"]);
        assert!(said.contains("CHAT_MODEL_BASE_URL, CHAT_MODEL_PROVIDER counts only"), "{said}");
        let own = format!("{file}CHAT_MODEL_API_KEY=k\n");
        assert_eq!(of(&own, &[]).0.len(), 4);
        for stronger in STRONGER_KEYS {
            let counts = of(&own, &[stronger]).0;
            assert!(!counts.iter().any(|name| OF_A_KEY.contains(&name.as_str())), "{stronger}: {counts:?}");
        }
    }
}
