//! The way out of sandboxes whose image is not the machine's.

use super::world::World;
use crate::{
    engine::fixture::eventually,
    server::{
        fixture::Server,
        image_builds::{begin_of, done},
        image_exports::{import, script},
        kernels,
    },
};
use serde_json::json;

/// curl with what it links to, and no shell at all. Its certificates are those of the image.
#[test]
fn the_certificates_of_an_image_are_trusted_in_it() {
    let world = World::new();
    let server = Server::start_with(&world.arguments());
    let top = tempfile::tempdir().unwrap();
    std::fs::write(top.path().join("ca.pem"), &world.certificate).unwrap();
    let copy = "for file in $(ldd /usr/bin/curl | grep -o '/[^ ]*') /usr/bin/curl; do mkdir -p root$(dirname $file); cp -L $file root$file; done; \
                mkdir -p root/etc/ssl/certs; cp ca.pem root/etc/ssl/certs/ca-certificates.crt; tar -C root -cf root.tar .";
    script(top.path(), copy);
    import(&server, "curl:1", &top.path().join("root.tar"));
    let body = json!({ "image": "curl:1", "egress": world.allow(&["a.test", "secure.test"]) });
    let sandbox = server.create(&body.to_string());
    let curl = |url: &str| {
        let arguments = json!({ "arguments": ["curl", "-s", "-m", "20", "-w", "%{http_code}", url] });
        server.ask("POST", &format!("{sandbox}/exec"), &arguments.to_string()).json()
    };
    assert_eq!(
        curl(&world.page("a.test", "/"))["stdout"],
        format!("page of a.test:{}\n200", world.web.port())
    );
    assert_eq!(curl(&format!("https://secure.test:{}/", world.tls.port()))["stdout"], "secure\n200");
    let refused = curl(&world.page("b.test", "/"));
    assert!(refused["stdout"].as_str().unwrap().ends_with("403"), "{refused}");
}

/// The machine's Python alone, with a user that has no name, a directory and an entry point.
#[test]
fn a_kernel_of_an_image_has_its_user_its_directory_and_the_way_out() {
    let world = World::new();
    let server = Server::start_with(&world.arguments());
    let top = tempfile::tempdir().unwrap();
    let lines = "python=$(readlink -f /usr/bin/python3); lib=/usr/lib/${python##*/}; \
                 for file in $python $(ldd $python | grep -o '/[^ ]*') $(ldd $lib/lib-dynload/*.so | sed -n 's/.*=> \\([^ ]*\\).*/\\1/p'); \
                 do mkdir -p root$(dirname $file); cp -L $file root$file; done; ln -s $python root/usr/bin/python3; \
                 tar -cf - --exclude=__pycache__ --exclude=test --exclude=dist-packages --exclude='config-*' --exclude=idlelib --exclude=ensurepip --exclude=lib2to3 --exclude=pydoc_data $lib 2> /dev/null \
                 | tar -C root -xf -; tar -C root -cf root.tar .";
    script(top.path(), lines);
    import(&server, "snake:1", &top.path().join("root.tar"));
    let file = "FROM snake:1\nWORKDIR /srv\nUSER 4242:4343\nENTRYPOINT [\"/nosuch\"]\n";
    done(&server, &begin_of(&server, &json!({ "name": "app", "disk_mb": 64, "dockerfile": file })));
    let sandbox = server.create(&json!({ "image": "app", "egress": world.allow(&["a.test"]) }).to_string());
    let code = format!(
        "import os, urllib.request\n(os.getuid(), os.getgid(), os.getcwd(), urllib.request.urlopen('{}').read())",
        world.page("a.test", "/")
    );
    let expected = format!("(4242, 4343, '/srv', b'page of a.test:{}\\n')", world.web.port());
    assert_eq!(kernels::value(&kernels::python(&server, &sandbox, &code)), expected);
    let kernel = kernels::start(&server, &sandbox, &json!({}));
    assert_eq!(kernels::value(&kernels::execute(&server, &kernel, &code)), expected);
    let elsewhere = kernels::start(&server, &sandbox, &json!({ "working_directory": "/tmp" }));
    assert_eq!(kernels::value(&kernels::execute(&server, &elsewhere, "import os; os.getcwd()")), "'/tmp'");
}

/// The steps of a build reach what the request allows, and nothing else.
#[test]
fn a_build_reaches_what_its_policy_names() {
    let world = World::new();
    let server = Server::start_with(&world.arguments());
    let top = tempfile::tempdir().unwrap();
    let lines = "mkdir -p root/bin; cp /usr/bin/busybox root/bin/busybox; for name in sh wget; do ln -s busybox root/bin/$name; done; \
                 tar -C root -cf root.tar .";
    script(top.path(), lines);
    import(&server, "getter:1", &top.path().join("root.tar"));
    let root = "/api/v1/sandbox-images";
    let build = |policy: serde_json::Value| {
        let file = format!("FROM getter:1\nRUN wget -q -O - {}\n", world.page("a.test", "/"));
        let body = json!({ "name": "app", "replace": true, "no_cache": true, "disk_mb": 64, "memory_mb": 128,
            "egress": policy, "dockerfile": file });
        let begun = server.ask("POST", root, &body.to_string());
        assert_eq!(begun.status, 202, "{begun:?}");
        let path = format!("{root}/builds/{}", begun.json()["build_id"].as_str().unwrap());
        eventually("the end of the build", || server.ask("GET", &path, "").json()["status"] != "running");
        let said = String::from_utf8_lossy(&server.ask("GET", &format!("{path}/log"), "").body).into_owned();
        (
            server.ask("GET", &path, "").json()["status"].as_str().unwrap().to_owned(),
            said.contains("page of a.test"),
        )
    };
    assert_eq!(build(world.allow(&["a.test"])), ("done".to_owned(), true));
    assert_eq!(build(world.allow(&["b.test"])), ("failed".to_owned(), false));
    assert_eq!(build(json!({ "mode": "none" })), ("failed".to_owned(), false));
}

/// A preset is that of the image's own package managers, and of no other image.
#[test]
fn the_presets_of_an_image_are_those_of_its_package_managers() {
    let world = World::new();
    let mut server = Server::start_with(&world.arguments());
    let top = tempfile::tempdir().unwrap();
    // A link within the image, one that leads out of it, and settings that name no host.
    let lines = format!(
        "mkdir -p root/bin root/etc/apt root/srv; cp /usr/bin/busybox root/bin/busybox; for name in sh wget; do ln -s busybox root/bin/$name; done; \
         ln -s /srv/pip.conf root/etc/pip.conf; printf '[global]\\nindex-url = http://index.test:{port}/simple\\n' > root/srv/pip.conf; \
         printf 'registry=http://127.0.0.1:{port}/\\n' > root/etc/npmrc; ln -s ../../../../etc/hostname root/etc/apt/sources.list; \
         tar -C root -cf root.tar .",
        port = world.web.port()
    );
    script(top.path(), &lines);
    import(&server, "snake:1", &top.path().join("root.tar"));
    let listed = |server: &Server, image: &str| {
        let all = server.ask("GET", &format!("/api/v1/egress/presets?image={image}"), "").json();
        let named = |name: &str| {
            let of = all.as_array().unwrap().iter().find(|preset| preset["name"] == name).cloned();
            of.unwrap_or_else(|| panic!("{all}")).to_string()
        };
        (named("python"), named("node"))
    };
    let check = |server: &Server| {
        let (python, node) = listed(server, "snake:1");
        assert!(python.contains("index.test") && python.contains("pip configuration"), "{python}");
        // An image must not open an address of the machine.
        assert!(!node.contains(r#""127.0.0.1"#) && node.contains("out of reach"), "{node}");
        assert!(!listed(server, "host").0.contains("index.test"));
    };
    check(&server);
    let policy = json!({ "mode": "allowlist", "presets": ["python"], "allow": [world.web.to_string()] });
    let fetched = |server: &Server, image: &str| {
        let sandbox = server.create(&json!({ "image": image, "egress": policy }).to_string());
        let page = world.page("index.test", "/simple/");
        let said = server.exec(&sandbox, &format!("wget -q -O - {page}"));
        assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
        said["stdout"].as_str().unwrap().contains("page of index.test")
    };
    assert!(fetched(&server, "snake:1") && !fetched(&server, "host"));
    // It is kept with the image, and goes with it.
    server.kill();
    server.restart();
    check(&server);
    assert!(fetched(&server, "snake:1"));
    assert_eq!(server.ask("DELETE", "/api/v1/sandbox-images/snake:1", "").status, 204);
    assert!(!listed(&server, "snake:1").0.contains("index.test"));
}
