//! The `host` image: the machine's programs, and none of its secrets.

use super::fixture::{Instance, says, shell};

#[tokio::test]
async fn the_machines_programs_work() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    assert_eq!(says(&c, "python3 -c 'print(6*7)'").await, "42");
    assert_eq!(
        says(&c, "perl -e 'print 6*7'; echo hello | sed s/h/j/ | awk '{print toupper($0)}'").await,
        "42JELLO"
    );
    assert_eq!(
        says(&c, "whoami; echo $HOME; pwd; echo $LANG").await,
        "user\n/home/user\n/workspace\nC.UTF-8"
    );
    assert_eq!(says(&c, "python3 -c 'import ssl, sqlite3, ctypes; print(len(ssl.create_default_context().get_ca_certs()) > 10)'").await, "True");
    assert_eq!(
        says(&c, "getent passwd 1000 65532 0 | cut -d: -f1,3").await,
        "user:1000\nsandbox:65532\nroot:0"
    );
    assert_eq!(
        says(&c, "date +%Z; ls -L /etc/localtime >/dev/null 2>&1; echo fine").await.lines().last(),
        Some("fine")
    );
}

#[tokio::test]
async fn no_secret_of_the_hosts_etc() {
    let instance = Instance::start().await;
    let c = instance.container("root").await;
    let forbidden = [
        "shadow",
        "gshadow",
        "sudoers",
        "sudoers.d",
        "ssh",
        "ssl/private",
        "machine-id",
        "environment",
        "fstab",
        "crontab",
        "docker",
        "apt/auth.conf",
        "apt/auth.conf.d",
        "netrc",
        "krb5.keytab",
    ];
    for name in forbidden {
        let seen =
            shell(&c, &format!("test ! -e /etc/{name} || test ! -s /etc/{name} -a ! -d /etc/{name}")).await;
        assert_eq!(seen.report.exit_code, Some(0), "/etc/{name} is there");
    }
    assert_eq!(
        says(&c, "grep -rlE 'BEGIN (RSA |EC |OPENSSH |)PRIVATE KEY' /etc 2>/dev/null; true").await,
        ""
    );
    // Nobody whom the machine knows, beyond those that every sandbox has.
    assert_eq!(
        says(&c, "cut -d: -f1 /etc/passwd | sort | tr '\\n' ' '").await.trim(),
        "nobody root sandbox user"
    );
}

#[tokio::test]
async fn root_inside_manages_users() {
    let instance = Instance::start().await;
    let c = instance.container("root").await;
    says(&c, "adduser --comment 'of a test' --disabled-password ann && useradd -m bob").await;
    says(&c, "chfn -f 'of another' bob && echo bob:a-password | chpasswd").await;
    assert_eq!(says(&c, "su ann -c 'id -un; id -gn'; su - bob -c pwd").await, "ann\nann\n/home/bob");
    assert_eq!(says(&c, "getent passwd ann bob | cut -d: -f5").await, "of a test,,,\nof another,,,");
    assert_ne!(shell(&c, "su ann -c 'su bob -c true' </dev/null").await.report.exit_code, Some(0));
    says(&c, "userdel -r ann && ! getent passwd ann").await;
}
