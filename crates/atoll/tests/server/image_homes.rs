//! Sandboxes of images that lack what a machine has, or say what a machine does not: users, directories, entry points.

use super::{
    fixture::Server,
    image_exports::{import, script},
    image_imports::ROOT,
    socket::Socket,
};
use serde_json::{Value, json};

/// A static busybox and nothing else: no bash, no Python, no C library, no /etc.
const BUSYBOX: &str = "mkdir -p root/bin; cp /usr/bin/busybox root/bin/busybox;
    for name in sh cat id pwd ls env wget stat; do ln -s busybox root/bin/$name; done; tar -C root -cf root.tar .";

/// An image in an OCI layout with what umoci is to set, as `NAME:1`.
fn configured(server: &Server, name: &str, config: &[&str]) -> Value {
    let top = tempfile::tempdir().unwrap();
    let options = config.iter().map(|option| format!(" --config.{option}")).collect::<String>();
    script(
        top.path(),
        &format!(
            "{BUSYBOX}; umoci init --layout layout; umoci new --image layout:1; umoci raw add-layer --image layout:1 root.tar; \
             umoci config --image layout:1{options}; tar -C layout -cf oci.tar ."
        ),
    );
    import(server, &format!("{name}:1"), &top.path().join("oci.tar"))
}

fn of_busybox(server: &Server) {
    let top = tempfile::tempdir().unwrap();
    script(top.path(), BUSYBOX);
    import(server, "bare:1", &top.path().join("root.tar"));
}

#[test]
fn what_is_installed_for_the_user_is_found_in_an_image_with_a_path_of_its_own() {
    let server = Server::start();
    configured(&server, "pathed", &["env PATH=/opt/bin:/bin"]);
    let sandbox = server.create(r#"{"image":"pathed:1"}"#);
    let home = server.says(&sandbox, "echo $HOME");
    let path = format!("/opt/bin:/bin:{home}/.local/bin:{home}/.cargo/bin");
    assert_eq!(server.says(&sandbox, "echo $PATH"), path);
}

/// A program and its arguments, without a shell.
fn runs(server: &Server, sandbox: &str, arguments: &[&str]) -> Value {
    let body = json!({ "arguments": arguments }).to_string();
    let answer = server.ask("POST", &format!("{sandbox}/exec"), &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn an_image_of_busybox_alone_is_at_home() {
    let server = Server::start();
    of_busybox(&server);
    let sandbox = server.create(r#"{"image":"bare:1","env_vars":{"OWN":"1"}}"#);
    assert_eq!(server.says(&sandbox, "id -un; pwd; echo $OWN; echo $0"), "user\n/workspace\n1\n/bin/sh");
    assert_eq!(runs(&server, &sandbox, &["cat", "/etc/hostname"])["exit_code"], 0);
    let missing = runs(&server, &sandbox, &["python3"]);
    assert_eq!(missing["exit_code"], 127, "{missing}");
    assert!(missing["stderr"].as_str().unwrap().contains("python3: no such program"), "{missing}");
    // Files, searches and archives need nothing of the image.
    assert_eq!(server.ask("PUT", &format!("{sandbox}/files/in/a.txt"), "a needle\n").status, 204);
    assert_eq!(server.ask("GET", &format!("{sandbox}/files/in/a.txt"), "").body, b"a needle\n");
    let found = server.ask("POST", &format!("{sandbox}/fs/find"), r#"{"pattern":"*.txt"}"#).json();
    assert_eq!(found["entries"][0]["path"], "in/a.txt", "{found}");
    let found = server.ask("POST", &format!("{sandbox}/fs/grep"), r#"{"pattern":"needle"}"#).json();
    assert_eq!(found["matches"][0]["line"], 1, "{found}");
    assert_eq!(server.ask("GET", &format!("{sandbox}/fs/tar?path=in"), "").status, 200);
    // A terminal has the shell that there is.
    let mut terminal = Socket::open(&server, &sandbox, "?rows=31&cols=101");
    terminal.types("echo on-$((1+1)) $SHELL; exit 3\n");
    terminal.until("on-2 /bin/sh");
    assert_eq!(terminal.end().1["exit_code"], 3);
    // What it lacks is said, for each language.
    for (language, name) in [("python", "Python"), ("node", "Node.js"), ("r", "R"), ("bash", "bash")] {
        let body = json!({ "language": language, "code": "1" }).to_string();
        for path in ["kernels", "run"] {
            let body = if path == "run" { body.clone() } else { json!({ "language": language }).to_string() };
            let answer = server.ask("POST", &format!("{sandbox}/{path}"), &body);
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let said = text.contains(&format!("{name} is not in this image"));
            assert!(
                (400..502).contains(&answer.status) && said,
                "{path} {language}: {} {text}",
                answer.status
            );
        }
    }
    let installed = server.ask("POST", &format!("{sandbox}/dependencies"), r#"{"packages":{"six":""}}"#);
    let text = String::from_utf8_lossy(&installed.body).into_owned();
    assert!(text.contains("is not in this image"), "{} {text}", installed.status);
    // It goes on after a stop.
    assert_eq!(server.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
    assert_eq!(server.ask("POST", &format!("{sandbox}/resume"), "").status, 200);
    assert_eq!(server.says(&sandbox, "cat in/a.txt"), "a needle");
}

/// A program that finds the C library of musl at its start, and asks it for the user and for a host.
const MUSL_PROGRAM: &str = r#"
struct passwd { char *name; };
extern int printf(const char *, ...);
extern char *getenv(const char *);
extern unsigned getuid(void);
extern struct passwd *getpwuid(unsigned);
extern void *gethostbyname(const char *);
extern int __libc_start_main(int (*)(void), int, char **, void (*)(void), void (*)(void), void (*)(void));
int main(void) {
    struct passwd *own = getpwuid(getuid());
    printf("%s %s %s\n", own ? own->name : "nobody", getenv("HOME"), gethostbyname("localhost") ? "found" : "lost");
    return 0;
}
void start_c(long *p) { __libc_start_main(main, *p, (char **)(p + 1), 0, 0, 0); }
#ifdef __aarch64__
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x30, #0\n mov x0, sp\n b start_c\n");
#else
__asm__(".globl _start\n_start:\n xor %rbp,%rbp\n mov %rsp,%rdi\n and $-16,%rsp\n call start_c\n hlt\n");
#endif
"#;

#[test]
fn programs_that_need_the_c_library_of_musl_run_in_its_image() {
    let server = Server::start();
    let top = tempfile::tempdir().unwrap();
    std::fs::write(top.path().join("program.c"), MUSL_PROGRAM).unwrap();
    // Debian's package of the loader, which is the library too.
    let made = "machine=$(uname -m); apt-get -q -o APT::Sandbox::User=root download musl; dpkg-deb -x musl_*.deb root;
        cc -O1 -fno-stack-protector -fno-builtin -nostdlib -nostartfiles -no-pie -o root/bin/program program.c \
          -Wl,--dynamic-linker=/lib/ld-musl-$machine.so.1 -Lroot/lib/$machine-linux-musl -l:libc.so;
        test ! -e root/lib/$machine-linux-gnu; tar -C root -cf root.tar .";
    script(top.path(), &format!("{BUSYBOX}; {made}"));
    import(&server, "musl:1", &top.path().join("root.tar"));
    let sandbox = server.create(r#"{"image":"musl:1","disk_mb":64}"#);
    let ran = runs(&server, &sandbox, &["program"]);
    assert_eq!(ran["stdout"], "user /home/user found\n", "{ran}");
    assert_eq!(server.says(&sandbox, "program | cat"), "user /home/user found");
}

#[test]
fn an_image_without_a_shell_says_so_and_runs_programs() {
    let server = Server::start();
    let top = tempfile::tempdir().unwrap();
    script(top.path(), "mkdir -p root/bin; cp /usr/bin/busybox root/bin/cat; tar -C root -cf root.tar .");
    import(&server, "shell-less:1", &top.path().join("root.tar"));
    let sandbox = server.create(r#"{"image":"shell-less:1"}"#);
    let line = server.exec(&sandbox, "echo x");
    assert!(line["stderr"].as_str().unwrap().contains("there is no shell in this image"), "{line}");
    assert_eq!(server.ask("PUT", &format!("{sandbox}/files/f"), "f").status, 204);
    assert_eq!(runs(&server, &sandbox, &["cat", "/workspace/f"])["stdout"], "f");
}

#[test]
fn the_user_the_directory_and_the_entry_point_are_the_images() {
    let server = Server::start();
    // A number that has no name, with and without a group, and a name that is not there.
    for (name, user, ids, shown) in [
        ("numbered", "4242:4343", "4242\n4343", "4242:4343"),
        ("single", "4242", "4242\n4242", "4242"),
        ("nobodys", "absent", "1000\n1000", "absent"),
        ("roots", "0:0", "1000\n1000", "0:0"),
    ] {
        let user = format!("user {user}");
        // A directory that the image lacks is made, as other engines make it.
        let config = [&*user, "workingdir /srv/app/deep", "entrypoint /bin/env", "cmd nothing"];
        let made = configured(&server, name, &config);
        assert_eq!((&made["user"], &made["entrypoint"]), (&json!(shown), &json!(["/bin/env"])), "{made}");
        let sandbox = server.create(&json!({ "image": format!("{name}:1") }).to_string());
        assert_eq!(server.says(&sandbox, "id -u; id -g; pwd"), format!("{ids}\n/srv/app/deep"), "{name}");
        assert_eq!(server.says(&sandbox, "cd; touch x && ls; stat -c %u x"), {
            format!("x\n{}", ids.lines().next().unwrap())
        });
        // The files API is the user's, in the workspace whatever the directory is.
        assert_eq!(server.ask("PUT", &format!("{sandbox}/files/f"), "f").status, 204, "{name}");
        assert_eq!(server.says(&sandbox, "cat /workspace/f; id -un"), "fuser", "{name}");
        let mut terminal = Socket::open(&server, &sandbox, "?command=id%20-u%3B%20pwd");
        terminal.until("/srv/app/deep");
        assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
    }
}

#[test]
fn an_images_own_bash_is_the_shell() {
    let server = Server::start();
    let top = tempfile::tempdir().unwrap();
    // bash and what it links to, and nothing of busybox.
    let copy = "for file in $(ldd /bin/bash | grep -o '/[^ ]*') /bin/bash; do mkdir -p root$(dirname $file); cp -L $file root$file; done";
    script(top.path(), &format!("{copy}; tar -C root -cf root.tar ."));
    import(&server, "bash:1", &top.path().join("root.tar"));
    let sandbox = server.create(r#"{"image":"bash:1"}"#);
    assert_eq!(server.says(&sandbox, "[[ $BASH_VERSION ]] && echo $0 $UID"), "/bin/bash 1000");
    let kernel =
        server.ask("POST", &format!("{sandbox}/run"), r#"{"language":"bash","code":"echo $((6*7))"}"#);
    assert!(String::from_utf8_lossy(&kernel.body).contains("42"), "{kernel:?}");
    let listed = server.ask("GET", &format!("{ROOT}/bash:1"), "").json();
    assert_eq!(listed["used_by"].as_array().unwrap().len(), 1);
}
