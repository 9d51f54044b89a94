//! What of the machine's /etc may be copied. A name may hold one `*`. Left out on purpose: accounts and
//! their secrets, keys, host names and network settings, and every file that people put tokens into
//! (profile, environment, pip.conf, npmrc, gitconfig, *.site, apt, maven).

/// Paths below /etc; a directory stands for everything in it.
pub(super) const ETC: &[&str] = &[
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "ca-certificates.conf",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "crypto-policies/back-ends",
    "alternatives",
    "locale.gen",
    "locale.alias",
    "locale.conf",
    "default/locale",
    "localtime",
    "timezone",
    "os-release",
    "debian_version",
    "redhat-release",
    "alpine-release",
    "lsb-release",
    "terminfo",
    "inputrc",
    "mime.types",
    "magic",
    "magic.mime",
    "protocols",
    "services",
    "rpc",
    "fonts",
    "matplotlibrc",
    "R/Renviron",
    "R/Makeconf",
    "R/ldpaths",
    "R/javaconf",
    "R/repositories",
    "python3",
    "python3.*",
    "ImageMagick-*",
    "java-*-openjdk",
    "perl",
    "texmf",
    "groff",
];

/// Names that are never copied, wherever they are.
const NEVER: &[&str] =
    &["private", "shadow*", "gshadow*", "sudoers*", "ssh*", "*.key", "*.p12", "*.pfx", "*.jks", "*.site"];

/// Whether a name is refused wherever it is.
pub(super) fn never(name: &str) -> bool {
    NEVER.iter().any(|pattern| matches(pattern, name))
}

/// Whether a name fits a pattern with at most one `*`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        assert!(matches("python3.*", "python3.11"));
        assert!(matches("java-*-openjdk", "java-17-openjdk"));
        assert!(!matches("java-*-openjdk", "java-openjdk"));
        assert!(!matches("magic", "magic.mime"));
        assert!(never("shadow-") && never("server.key") && never("private") && !never("certs"));
    }
}
