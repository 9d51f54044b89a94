//! Volumes beside a sandbox's own and paths with a rule, tried from inside by every way that we know.

use super::fixture::{Instance, python, says, shell, spec};
use atoll_provider::{Container, ContainerSpec, Provider, WriteOptions};
use atoll_types::{ErrorCode, Isolation, PathRules, Profile, Result, VolumeId, VolumeMount};
use bytes::Bytes;
use futures_util::stream;
use std::{fs, sync::Arc};

const MIB: u64 = 1 << 20;

/// What a launcher is started with for volumes on btrfs, and for plain folders.
const DRIVERS: [&[&str]; 2] = [&[], &["--storage", "dir"]];

fn rules(read_only: &[&str], read_write: &[&str], blocked: &[&str]) -> PathRules {
    let of = |paths: &[&str]| paths.iter().map(ToString::to_string).collect();
    PathRules { read_only: of(read_only), read_write: of(read_write), blocked: of(blocked) }
}

fn ruled(profile: &str, volume: VolumeId, paths: PathRules) -> ContainerSpec {
    let profile = Profile { paths, ..Profile::builtin(profile).unwrap() };
    ContainerSpec { profile, volume: Some(volume), ..spec("default") }
}

fn mounted(profile: &str, volumes: &[(VolumeId, &str, bool)]) -> ContainerSpec {
    let mount = |(number, (volume, path, read_only)): (usize, &(VolumeId, &str, bool))| VolumeMount {
        name: format!("v{number}").parse().unwrap(),
        volume: *volume,
        path: (*path).into(),
        read_only: *read_only,
        whole: false,
    };
    let volumes = volumes.iter().enumerate().map(mount).collect();
    ContainerSpec { profile: Profile { volumes, ..Profile::builtin(profile).unwrap() }, ..spec("default") }
}

async fn write(c: &Arc<dyn Container>, path: &str, text: &'static str) -> Result<()> {
    let body = stream::iter([Ok(Bytes::from_static(text.as_bytes()))]);
    c.guest().write_file(path, WriteOptions::default(), body).await.map(drop)
}

async fn put(instance: &Instance, volume: VolumeId, mib: u64) {
    instance.provider.attachments().unwrap().put_volume(volume, mib * MIB).await.unwrap();
}

async fn remove(instance: &Instance, volume: VolumeId) {
    instance.provider.volumes().unwrap().remove_volume(volume).await.unwrap();
}

/// Every way to change something in a folder `$d` that holds a file `f` and a folder `s`; each must fail.
const WRITES: &[&str] = &[
    "touch $d/new",
    "echo x > $d/f",
    "echo x >> $d/f",
    "touch -d 2001-01-01 $d/f",
    "truncate -s 0 $d/f",
    "chmod 777 $d/f",
    "chmod 777 $d",
    "chown 1234 $d/f",
    "mkdir $d/new",
    "rmdir $d/s",
    "rm -f $d/f",
    "rm -rf $d",
    "mv $d/f /tmp/taken",
    "mv $d/f $d/g",
    "mv $d /tmp/taken",
    "mv /tmp/mine $d/new",
    "ln /tmp/mine $d/new",
    "ln $d/f /tmp/link",
    "ln -s x $d/new",
    "mkfifo $d/new",
    "cp /tmp/mine $d/f",
    "cp /tmp/mine $d/new",
    "dd if=/dev/zero of=$d/f count=1 conv=notrunc",
    "python3 -c 'import os; os.open(\"'$d'/f\", os.O_WRONLY)'",
    "exec 3< $d/f && echo x > /proc/self/fd/3",
    "exec 3< $d && touch /proc/self/fd/3/new",
    "cd $d && touch ./new",
    "touch /proc/self/root$d/new",
    "touch /proc/1/root$d/new",
    "fallocate -l 10 $d/f",
    "python3 -c 'import os; os.setxattr(\"'$d'/f\", \"user.a\", b\"b\")'",
    "python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(155, 0) or 1)'",
    "mount -o remount,rw $d",
    "mount -o remount,bind,rw $d",
    "umount $d",
    "umount -l $d",
    "mount --bind /tmp $d",
    "unshare -Urm mount -o remount,bind,rw $d",
    "unshare -Urm umount $d",
    "unshare -Urm sh -c \"mount --bind / /mnt && touch /mnt$d/new\"",
];

async fn cannot_write(c: &Arc<dyn Container>, folder: &str, who: &str) {
    says(c, "echo mine > /tmp/mine").await;
    for line in WRITES {
        let line = format!("d={folder}; {line}");
        let finished = shell(c, &line).await;
        assert_ne!(finished.report.exit_code, Some(0), "{who}: {line} succeeded");
    }
    let seen = says(c, &format!("cd {folder}; cat f; ls; stat -c %a f")).await;
    assert_eq!(seen, "kept\nf\ns\n644", "{who}");
}

#[tokio::test]
async fn nothing_inside_writes_to_a_read_only_path() {
    for extra in DRIVERS {
        read_only_paths_hold(extra).await;
    }
}

async fn read_only_paths_hold(extra: &[&str]) {
    let instance = Instance::start_with(extra).await;
    for profile in ["default", "root", "build"] {
        let volume = VolumeId::random();
        let paths = rules(&["/workspace/a/in", "/data"], &["/workspace/a/in/out"], &[]);
        let c = instance.provider.create(ruled(profile, volume, paths.clone())).await.unwrap();
        for folder in ["/workspace/a/in", "/data"] {
            // Its owner may write; that is how anything gets there.
            write(&c, &format!("{folder}/f"), "kept\n").await.unwrap();
            c.guest().make_dir(&format!("{folder}/s"), false).await.unwrap();
        }
        c.guest().remove("/workspace/a/in/out", true).await.unwrap_err();
        cannot_write(&c, "/data", profile).await;
        // The folders on the way there stay where they are.
        for line in [
            "mv /workspace/a /workspace/b",
            "rm -rf /workspace/a; test ! -e /workspace/a/in/f",
            "mv /data /d",
        ] {
            assert_ne!(shell(&c, line).await.report.exit_code, Some(0), "{profile}: {line}");
        }
        assert_eq!(
            says(&c, "cat /workspace/a/in/f; echo x > /workspace/a/in/out/x; ls /workspace/a/in").await,
            "kept\nf\nout\ns"
        );
        // A link leads nowhere else, and what its owner does by name is done there.
        says(&c, "ln -s /workspace/a/in /workspace/link; ! touch /workspace/link/x").await;
        c.guest().rename("/workspace/a/in/f", "/workspace/a/in/g", false).await.unwrap();
        c.guest().remove("/workspace/a/in/s", true).await.unwrap();
        assert_eq!(says(&c, "ls /workspace/a/in").await, "g\nout");
        instance.provider.destroy(c.id()).await.unwrap();
        // And it is so again after a restart, with what was kept.
        let c = instance.provider.create(ruled(profile, volume, paths)).await.unwrap();
        cannot_write(&c, "/data", profile).await;
        assert_eq!(
            says(&c, "cat /workspace/a/in/g /workspace/a/in/out/x; ! touch /workspace/a/in/x").await,
            "kept\nx"
        );
        write(&c, "/data/f", "changed").await.unwrap();
        assert_eq!(says(&c, "cat /data/f").await, "changed");
        instance.provider.destroy(c.id()).await.unwrap();
        remove(&instance, volume).await;
    }
}

/// Every way to reach or uncover `$d`; each must fail.
const REACHES: &[&str] = &[
    "cat $d",
    "ls $d/",
    "ls $d/x",
    "cd $d",
    "touch $d/x",
    "echo x > $d",
    "stat $d/x",
    "cat /proc/self/root$d",
    "ls /proc/1/root$d/",
    "chmod 777 $d",
    "chown 0 $d",
    "rm -rf $d",
    "mv $d /tmp/x",
    "cp -r $d /tmp/copy",
    "ln $d /tmp/link",
    "mount --bind $d /mnt",
    "mount -o remount,rw $d",
    "umount $d",
    "umount -l $d",
    "unshare -Urm umount $d",
    "unshare -Urm umount -l $d",
    "unshare -Urm sh -c \"mount --bind / /mnt && cat /mnt$d/x\"",
    "unshare -Ur cat $d/x",
    "chroot / cat $d/x",
    "python3 -c 'import os; os.open(\"'$d'\", os.O_RDONLY)'",
    "python3 -c 'import os; os.listdir(\"'$d'\")'",
];

#[tokio::test]
async fn nothing_inside_reaches_a_blocked_path() {
    for extra in DRIVERS {
        blocked_paths_hold(extra).await;
    }
}

async fn blocked_paths_hold(extra: &[&str]) {
    let instance = Instance::start_with(extra).await;
    for profile in ["default", "tools", "root", "build"] {
        let volume = VolumeId::random();
        let own = if profile == "tools" { "/opt/missing/too" } else { "/workspace/a/secret" };
        let paths = rules(
            &[],
            &[],
            &["/etc/passwd", "/opt", own].map(|p| if p == "/opt" && profile == "tools" { "/srv" } else { p }),
        );
        let make = || ContainerSpec {
            volume: (profile != "tools").then_some(volume),
            ..ruled(profile, volume, paths.clone())
        };
        for _ in 0..2 {
            let c = instance.provider.create(make()).await.unwrap();
            for path in &paths.blocked {
                for line in REACHES {
                    let finished = shell(&c, &format!("d={path}; {line}")).await;
                    assert_ne!(finished.report.exit_code, Some(0), "{profile}: {path}: {line} succeeded");
                }
                assert!(c.guest().list_dir(path).await.is_err(), "{path}");
                assert!(write(&c, &format!("{path}/x"), "x").await.is_err(), "{path}");
            }
            if profile != "tools" {
                assert_ne!(shell(&c, "mv /workspace/a /workspace/b").await.report.exit_code, Some(0));
            }
            // The rest of the folder is as it was.
            assert_ne!(says(&c, "cat /etc/hostname /etc/group | wc -l").await, "0");
            instance.provider.destroy(c.id()).await.unwrap();
        }
        if profile != "tools" {
            remove(&instance, volume).await;
        }
    }
}

#[tokio::test]
async fn the_example_of_the_reference_api_holds() {
    let instance = Instance::start().await;
    let volume = VolumeId::random();
    let paths = rules(&["/workspace/data"], &["/workspace/output"], &["/etc", "/root"]);
    let c = instance.provider.create(ruled("default", volume, paths)).await.unwrap();
    assert_eq!(
        says(&c, "! touch data/x; echo 1 > output/x; cat output/x; ! ls /etc; ! ls /root; ! cat /etc/passwd")
            .await,
        "1"
    );
    // What commands need works without /etc.
    assert_eq!(python(&c, "print(sum(range(5)))").await, "10");
    write(&c, "data/in.csv", "1,2").await.unwrap();
    assert_eq!(says(&c, "cat data/in.csv").await, "1,2");
    // Files move freely within what may be written.
    assert_eq!(says(&c, "echo y > y; mv y output/y; cat output/y").await, "y");
    instance.provider.destroy(c.id()).await.unwrap();
    remove(&instance, volume).await;
}

#[tokio::test]
async fn a_volume_is_read_only_or_not_for_each_sandbox() {
    let instance = Instance::start().await;
    let volume = VolumeId::random();
    put(&instance, volume, 64).await;
    let writer = instance.provider.create(mounted("default", &[(volume, "/mnt/data", false)])).await.unwrap();
    says(&writer, "cd /mnt/data; echo kept > f; mkdir s").await;
    for profile in ["default", "tools", "root", "build"] {
        let reader =
            instance.provider.create(mounted(profile, &[(volume, "/mnt/data", true)])).await.unwrap();
        cannot_write(&reader, "/mnt/data", profile).await;
        says(&writer, "echo live > /mnt/data/live").await;
        assert_eq!(says(&reader, "cat /mnt/data/live").await, "live");
        says(&writer, "rm /mnt/data/live").await;
        instance.provider.destroy(reader.id()).await.unwrap();
    }
    // Users of other profiles write to it too, and none becomes a user of the machine.
    let tools = instance.provider.create(mounted("tools", &[(volume, "/srv/x/y", false)])).await.unwrap();
    assert_eq!(says(&tools, "echo t > /srv/x/y/t; stat -c %u /srv/x/y/t").await, "65532");
    assert_eq!(says(&writer, "cat /mnt/data/t; stat -c %u /mnt/data/f /mnt/data/t").await, "t\n1000\n65532");
    for c in [writer, tools] {
        instance.provider.destroy(c.id()).await.unwrap();
    }
    remove(&instance, volume).await;
}

#[tokio::test]
async fn a_volume_has_a_limit_of_its_own() {
    let instance = Instance::start().await;
    let volume = VolumeId::random();
    put(&instance, volume, 32).await;
    let c = instance.provider.create(mounted("default", &[(volume, "/mnt/data", false)])).await.unwrap();
    let fill = "head -c 50M /dev/urandom > /mnt/data/f; e=$?; sync -f /mnt/data; exit $e";
    assert_ne!(shell(&c, fill).await.report.exit_code, Some(0));
    // The sandbox's own disk is another.
    says(&c, "head -c 50M /dev/urandom > /workspace/f; sync -f /workspace").await;
    says(&c, "rm /mnt/data/f; sync -f /mnt/data").await;
    put(&instance, volume, 128).await;
    says(&c, fill).await;
    let attachments = instance.provider.attachments().unwrap();
    assert_eq!(attachments.put_volume(volume, 40 * MIB).await.unwrap_err().code, ErrorCode::Conflict);
    assert!(attachments.volume_usage(volume).await.unwrap().is_some_and(|used| used >= 50 * MIB));
    instance.provider.destroy(c.id()).await.unwrap();
    remove(&instance, volume).await;
}

#[tokio::test]
async fn places_are_made_even_where_the_root_is_read_only() {
    let instance = Instance::start_with(&["--storage", "dir"]).await;
    let (volume, own) = (VolumeId::random(), VolumeId::random());
    put(&instance, volume, 32).await;
    let make = |isolation: Isolation| {
        let mounted = mounted("default", &[(volume, "/usr/local/share/new/data", false)]);
        let paths = rules(&["/kept/ro"], &["/kept/rw", "/workspace/deep/er"], &[]);
        let profile = Profile { paths, isolation, ..mounted.profile };
        ContainerSpec { profile, volume: Some(own), ..mounted }
    };
    for isolation in [Isolation::Builtin, Isolation::Runtime("runc".into())] {
        let c = instance.provider.create(make(isolation)).await.unwrap();
        says(&c, "echo v > /usr/local/share/new/data/v; echo w > /kept/rw/w; touch /workspace/deep/er/x; ! touch /kept/x").await;
        assert_eq!(
            says(&c, "stat -c '%u %a' /kept/rw /workspace/deep/er; ls /usr/bin/env").await,
            "1000 755\n1000 755\n/usr/bin/env"
        );
        says(&c, "! touch /kept/ro/x && ! touch /usr/local/share/new/x").await;
        write(&c, "/kept/ro/y", "y").await.unwrap();
        instance.provider.destroy(c.id()).await.unwrap();
    }
    // A runtime with its own kernel covers no path; it mounts the same folders, with the same ids.
    let runsc = Isolation::Runtime("runsc".into());
    let refused = instance.provider.create(make(runsc.clone())).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Unsupported);
    let data = "/usr/local/share/new/data";
    let mut plain = mounted("default", &[(volume, data, false), (volume, "/mnt/seen", true)]);
    plain.profile.paths = rules(&[], &["/kept/rw", "/workspace/deep/er"], &[]);
    plain.profile.isolation = runsc;
    let c = instance.provider.create(ContainerSpec { volume: Some(own), ..plain }).await.unwrap();
    // gVisor of 2022 knows too little of statx for `stat`.
    let own_both = "cat /mnt/seen/v /kept/rw/w; test -O /mnt/seen/v && test -O /kept/rw/w";
    assert_eq!(says(&c, own_both).await, "v\nw");
    says(&c, "! touch /mnt/seen/x && ! touch /kept/x && touch /workspace/deep/er/y && echo g > /kept/rw/g")
        .await;
    says(&c, "echo g > /usr/local/share/new/data/g && cat /mnt/seen/g").await;
    instance.provider.destroy(c.id()).await.unwrap();
    let c = instance.provider.create(make(Isolation::Builtin)).await.unwrap();
    assert_eq!(says(&c, "cat /usr/local/share/new/data/v /kept/rw/w /kept/ro/y").await, "v\nw\ny");
    let ids = "cd /usr/local/share/new/data; stat -c '%u %g' g /kept/rw/g; rm g && echo x >> /kept/rw/g";
    assert_eq!(says(&c, ids).await, "1000 1000\n1000 1000");
    instance.provider.destroy(c.id()).await.unwrap();
    // Plain folders are not counted, and no request of a sandbox's owner walks them.
    assert_eq!(instance.provider.attachments().unwrap().volume_usage(volume).await, Ok(None));
    // A folder of the image cannot be made writable.
    let image = ruled("default", own, rules(&[], &["/usr/lib"], &[]));
    let refused = instance.provider.create(image).await.err().unwrap();
    assert_eq!((refused.code, refused.field.as_deref()), (ErrorCode::InvalidArgument, Some("filesystem")));
    for volume in [volume, own] {
        remove(&instance, volume).await;
    }
}

#[tokio::test]
async fn a_link_that_was_left_leads_no_mount_astray() {
    for extra in DRIVERS {
        links_lead_nowhere(extra).await;
    }
}

async fn links_lead_nowhere(extra: &[&str]) {
    let instance = Instance::start_with(extra).await;
    let bait = tempfile::Builder::new().prefix("atoll-bait-").tempdir_in("/var/tmp").unwrap();
    let (volume, own) = (VolumeId::random(), VolumeId::random());
    put(&instance, volume, 32).await;
    let plain = ContainerSpec { volume: Some(own), ..spec("root") };
    let c = instance.provider.create(plain).await.unwrap();
    let plant = format!(
        "ln -s {0} /workspace/data; ln -s / /workspace/up; rm -rf /srv /mnt; ln -s {0} /srv; ln -s /usr /mnt; touch /workspace/file",
        bait.path().display()
    );
    says(&c, &plant).await;
    instance.provider.destroy(c.id()).await.unwrap();
    for path in [
        "/workspace/data",
        "/workspace/data/x",
        "/workspace/up/usr/x",
        "/srv",
        "/srv/x",
        "/mnt/x",
        "/workspace/file/x",
    ] {
        let attached = mounted("root", &[(volume, path, false)]);
        for spec in [
            ContainerSpec { volume: Some(own), ..attached },
            ruled("root", own, rules(&[path], &[], &[])),
            ruled("root", own, rules(&[], &[path], &[])),
            ruled("root", own, rules(&[], &[], &[path])),
        ] {
            let refused =
                instance.provider.create(spec).await.err().unwrap_or_else(|| panic!("{path} was followed"));
            assert_eq!(refused.code, ErrorCode::Conflict, "{path}: {refused}");
        }
    }
    assert_eq!(fs::read_dir(bait.path()).unwrap().count(), 0);
    for volume in [volume, own] {
        remove(&instance, volume).await;
    }
}

#[tokio::test]
async fn rules_lie_in_each_other_and_in_volumes() {
    let instance = Instance::start().await;
    let (volume, own) = (VolumeId::random(), VolumeId::random());
    put(&instance, volume, 32).await;
    let mounted = mounted("default", &[(volume, "/workspace/in/data", false)]);
    let paths = rules(
        &["/workspace", "/workspace/in/data/fixed"],
        &["/workspace/out"],
        &["/workspace/out/secret", "/workspace/in/data/hidden"],
    );
    let spec = ContainerSpec { profile: Profile { paths, ..mounted.profile }, volume: Some(own), ..mounted };
    let c = instance.provider.create(spec).await.unwrap();
    for (line, allowed) in [
        ("touch /workspace/x", false),
        ("touch /workspace/in/x", false),
        ("touch /workspace/in/data/x", true),
        ("touch /workspace/in/data/fixed/x", false),
        ("ls /workspace/in/data/hidden", false),
        ("touch /workspace/out/x", true),
        ("ls /workspace/out/secret", false),
        ("touch /tmp/x ~/x", true),
    ] {
        assert_eq!(shell(&c, line).await.report.exit_code == Some(0), allowed, "{line}");
    }
    for (path, allowed) in [
        ("/workspace/a", true),
        ("/workspace/in/a", true),
        ("/workspace/in/data/a", true),
        ("/workspace/in/data/fixed/a", true),
        ("/workspace/in/data/hidden/a", false),
        ("/workspace/out/a", true),
        ("/workspace/out/secret/a", false),
    ] {
        assert_eq!(write(&c, path, "a").await.is_ok(), allowed, "{path}");
        assert_eq!(shell(&c, &format!("cat {path}")).await.report.exit_code == Some(0), allowed, "{path}");
    }
    instance.provider.destroy(c.id()).await.unwrap();
    for volume in [volume, own] {
        remove(&instance, volume).await;
    }
}

/// Moves a folder on the way to something away, and puts one of its own there.
async fn cannot_move(c: &Arc<dyn Container>, folders: &[&str], who: &str) {
    for folder in folders {
        let line = format!("mv -T {folder} {folder}-moved && mkdir -p {folder}");
        assert_ne!(shell(c, &line).await.report.exit_code, Some(0), "{who}: {line}");
        says(c, &format!("test ! -e {folder}-moved")).await;
    }
}

#[tokio::test]
async fn no_folder_on_the_way_to_a_mount_is_moved() {
    for extra in DRIVERS {
        folders_on_the_way_stay(extra).await;
    }
}

async fn folders_on_the_way_stay(extra: &[&str]) {
    let instance = Instance::start_with(extra).await;
    let (volume, fixed) = (VolumeId::random(), VolumeId::random());
    put(&instance, volume, 32).await;
    put(&instance, fixed, 32).await;
    for profile in ["default", "root"] {
        let own = VolumeId::random();
        // A rule that allows writing pins the folder too, and so do volumes, with a rule inside and without.
        let mounted =
            mounted(profile, &[(volume, "/workspace/v/vol", false), (fixed, "/workspace/f/f/vol", true)]);
        let paths =
            rules(&["/workspace/a/b", "/workspace/v/vol/x/y"], &["/workspace/a", "/workspace/out"], &[]);
        let profile_of = Profile { paths, ..mounted.profile };
        let spec = ContainerSpec { profile: profile_of, volume: Some(own), ..mounted };
        let c = instance.provider.create(spec).await.unwrap();
        let folders =
            ["/workspace/a", "/workspace/v/vol/x", "/workspace/v", "/workspace/f/f", "/workspace/f"];
        cannot_move(&c, &folders, profile).await;
        says(&c, "! touch /workspace/a/b/x && ! touch /workspace/v/vol/x/y/x && touch /workspace/a/x").await;
        // What protects nothing stays one file system with the folder around it.
        python(&c, "import os; open('y', 'w').close(); os.rename('y', 'out/y')").await;
        instance.provider.destroy(c.id()).await.unwrap();
        remove(&instance, own).await;
    }
    let mounted = mounted("root", &[(volume, "/data/v", false), (fixed, "/srv/w/v", true)]);
    let paths = rules(&["/data/v/x"], &[], &[]);
    let spec = ContainerSpec { profile: Profile { paths, ..mounted.profile }, ..mounted };
    let c = instance.provider.create(spec).await.unwrap();
    cannot_move(&c, &["/data", "/srv/w", "/srv"], "a writable root").await;
    instance.provider.destroy(c.id()).await.unwrap();
    for volume in [volume, fixed] {
        remove(&instance, volume).await;
    }
}

#[tokio::test]
async fn a_rule_holds_for_the_folders_of_the_sandbox_below_it() {
    let instance = Instance::start().await;
    let own = VolumeId::random();
    let paths = rules(&["/home"], &["/home/user/out"], &[]);
    let c = instance.provider.create(ruled("default", own, paths)).await.unwrap();
    says(&c, "! touch /home/x && ! touch ~/x && ! mkdir ~/d && ! chmod 777 ~ && touch ~/out/x /workspace/x")
        .await;
    // Its owner still writes.
    write(&c, "/home/user/f", "f").await.unwrap();
    write(&c, "/home/user/out/f", "f").await.unwrap();
    assert_eq!(says(&c, "cat ~/f ~/out/f").await, "ff");
    instance.provider.destroy(c.id()).await.unwrap();
    for blocked in ["/home", "/home/user"] {
        let refused = instance.provider.create(ruled("default", own, rules(&[], &[], &[blocked]))).await;
        let refused = refused.err().unwrap();
        assert_eq!(
            (refused.code, refused.field.as_deref()),
            (ErrorCode::InvalidArgument, Some("filesystem"))
        );
    }
    remove(&instance, own).await;
}

#[tokio::test]
async fn file_requests_reach_nothing_blocked_by_way_of_a_folder_around_it() {
    let instance = Instance::start().await;
    let own = VolumeId::random();
    let c = instance.provider.create(ruled("default", own, PathRules::default())).await.unwrap();
    says(&c, "mkdir -p data/sub/secret data/sub/file; echo s > data/sub/secret/f; echo s > data/sub/file/f")
        .await;
    instance.provider.destroy(c.id()).await.unwrap();
    let blocked = ["/workspace/data/sub/secret", "/workspace/data/sub/file/f"];
    let c = instance.provider.create(ruled("default", own, rules(&["/workspace/data"], &[], &blocked))).await;
    let c = c.unwrap();
    write(&c, "data/sub/other", "x").await.unwrap();
    c.guest().remove("/workspace/data/sub", true).await.unwrap_err();
    // Where a move is possible, what is blocked stays so at its new place.
    let _ = c.guest().rename("/workspace/data/sub", "/workspace/data/moved", false).await;
    for folder in ["sub", "moved"] {
        for file in ["secret/f", "file/f"] {
            let path = format!("/workspace/data/{folder}/{file}");
            assert!(c.guest().read_file(&path, 0, 0).await.is_err(), "{path}");
            assert!(write(&c, &path, "x").await.is_err(), "{path}");
        }
    }
    instance.provider.destroy(c.id()).await.unwrap();
    let c = instance.provider.create(ruled("default", own, PathRules::default())).await.unwrap();
    assert_eq!(says(&c, "cat data/*/secret/f data/*/file/f").await, "s\ns");
    instance.provider.destroy(c.id()).await.unwrap();
    remove(&instance, own).await;
}
