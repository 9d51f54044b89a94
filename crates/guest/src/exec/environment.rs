//! The environment of a command: sensible defaults, over them the sandbox's variables, over them the
//! request's. Nothing of this process's own environment is in it.

use super::{program::c_string, users::User};
use atoll_types::{Error, Result};
use std::{collections::BTreeMap, ffi::CString};

pub(crate) type Variables = BTreeMap<String, String>;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where pip, npm and cargo install programs for the user; none of a home that no list of folders can hold.
fn own_folders(user: &User) -> Option<[String; 2]> {
    let home = user.home.trim_end_matches('/');
    let fits = home.starts_with('/') && !home.contains(':');
    fits.then(|| [format!("{home}/.local/bin"), format!("{home}/.cargo/bin")])
}

/// The list of an image, and behind it where programs are installed for the user: what the image has comes first.
fn extended(path: &str, user: &User) -> String {
    let missing = own_folders(user).into_iter().flatten().filter(|own| path.split(':').all(|one| one != own));
    [path.to_owned()].into_iter().filter(|path| !path.is_empty()).chain(missing).collect::<Vec<_>>().join(":")
}

/// Where programs are looked for: first where pip, npm and cargo install them for the user.
fn path(user: &User) -> String {
    match own_folders(user) {
        Some([local, cargo]) => format!("{local}:{cargo}:{PATH}"),
        None => PATH.to_owned(),
    }
}

/// Refuses names and values that no environment can hold.
pub(crate) fn validate<'a>(variables: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<()> {
    for (name, value) in variables {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = "a name must not be empty and must not contain '=' or a NUL byte";
            return Err(Error::invalid("environment", message));
        }
        if value.contains('\0') {
            let message = format!("the value of {name} must not contain a NUL byte");
            return Err(Error::invalid("environment", message));
        }
    }
    Ok(())
}

/// All variables of a command. On a terminal, programs may draw and may start a shell.
pub(crate) fn assemble<'a>(
    user: &User,
    terminal_shell: Option<&'a str>,
    sandbox: &'a Variables,
    request: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Variables {
    let (path, npm) = (path(user), format!("{}/.local", user.home));
    let defaults = [
        ("PATH", path.as_str()),
        ("HOME", &user.home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
        ("LANG", "C.UTF-8"),
        // The sandbox is the user's own: pip and uv may install beside the packages of the image's distribution.
        // PIP_USER is not needed, since pip turns to the home where it may not write, and would break a venv.
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("UV_BREAK_SYSTEM_PACKAGES", "1"),
        ("TERM", if terminal_shell.is_some() { "xterm-256color" } else { "dumb" }),
    ];
    let defaults = defaults.into_iter().chain(terminal_shell.map(|shell| ("SHELL", shell)));
    // `npm install -g` goes where the user may write; root keeps npm's own place.
    let defaults = defaults.chain((user.uid != 0).then_some(("NPM_CONFIG_PREFIX", npm.as_str())));
    let mut all: Variables = defaults.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    all.extend(sandbox.iter().map(|(k, v)| (k.clone(), v.clone())));
    if let Some(path) = sandbox.get("PATH") {
        all.insert("PATH".to_owned(), extended(path, user));
    }
    all.extend(request.into_iter().map(|(k, v)| (k.clone(), v.clone())));
    all
}

/// `NAME=value` strings.
pub(crate) fn strings(variables: &Variables) -> Result<Vec<CString>> {
    variables.iter().map(|(name, value)| c_string("environment", format!("{name}={value}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_wins_over_the_sandbox_over_the_defaults() {
        let user = User { uid: 1, gid: 1, groups: vec![], name: "u".into(), home: "/h".into() };
        let pair = |k: &str, v: &str| Variables::from([(k.into(), v.into())]);
        let mut sandbox = pair("LANG", "de");
        sandbox.extend(pair("A", "1"));
        let all = assemble(&user, None, &sandbox, &pair("A", "2"));
        assert_eq!((all["LANG"].as_str(), all["A"].as_str(), all["HOME"].as_str()), ("de", "2", "/h"));
        assert_eq!((all["TERM"].as_str(), all.get("SHELL")), ("dumb", None));
        let all = assemble(&user, Some("/bin/sh"), &sandbox, &pair("A", "2"));
        assert_eq!((all["TERM"].as_str(), all["SHELL"].as_str()), ("xterm-256color", "/bin/sh"));
        let all = assemble(&user, Some("/bin/sh"), &sandbox, &pair("TERM", "vt100"));
        assert_eq!(all["TERM"], "vt100");
    }

    #[test]
    fn what_is_installed_for_the_user_is_found_first() {
        let user =
            |uid, home: &str| User { uid, gid: 1, groups: vec![], name: "u".into(), home: home.into() };
        let none = Variables::new();
        let own = assemble(&user(1000, "/home/u"), None, &none, &none);
        assert!(own["PATH"].starts_with("/home/u/.local/bin:/home/u/.cargo/bin:/usr/local/sbin:"));
        assert_eq!(own["NPM_CONFIG_PREFIX"], "/home/u/.local");
        assert!(!assemble(&user(0, "/root"), None, &none, &none).contains_key("NPM_CONFIG_PREFIX"));
        for odd in ["/", "", "relative", "/a:b"] {
            assert_eq!(assemble(&user(1000, odd), None, &none, &none)["PATH"], PATH, "{odd}");
        }
    }

    #[test]
    fn what_is_installed_for_the_user_is_found_behind_what_an_image_has() {
        let user = User { uid: 1000, gid: 1, groups: vec![], name: "u".into(), home: "/home/u".into() };
        let path = |text: &str| Variables::from([("PATH".to_owned(), text.to_owned())]);
        let all =
            |image: &str, request: &Variables| assemble(&user, None, &path(image), request)["PATH"].clone();
        let none = Variables::new();
        assert_eq!(all("/opt/bin:/bin", &none), "/opt/bin:/bin:/home/u/.local/bin:/home/u/.cargo/bin");
        assert_eq!(all("/home/u/.cargo/bin:/bin", &none), "/home/u/.cargo/bin:/bin:/home/u/.local/bin");
        assert_eq!(all("/bin", &path("/only")), "/only", "a request says all of it");
    }

    #[test]
    fn names_that_no_environment_can_hold_are_refused() {
        for (name, value) in [("", "x"), ("a=b", "x"), ("a\0", "x"), ("a", "\0")] {
            let error = validate(&Variables::from([(name.into(), value.into())])).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("environment"));
        }
    }
}
