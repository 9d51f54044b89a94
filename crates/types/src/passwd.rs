//! Users as passwd(5) writes them. Reading the file is the caller's.

/// A user and its first group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// Its id.
    pub uid: u32,
    /// The id of its group.
    pub gid: u32,
}

/// The user of this name or number.
#[must_use]
pub fn find_user(passwd: &str, wanted: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let user = User { uid: uid.parse().ok()?, gid: gid.parse().ok()? };
        (name == wanted || uid == wanted).then_some(user)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_number() {
        let passwd = "broken\nroot:x:0:0::/root:/bin/sh\natoll:x:990:991::/:/sbin/nologin\n";
        let atoll = Some(User { uid: 990, gid: 991 });
        assert_eq!([find_user(passwd, "atoll"), find_user(passwd, "990")], [atoll, atoll]);
        assert_eq!([find_user(passwd, "nosuch"), find_user("", "root")], [None, None]);
    }
}
