//! The generated code is that of the committed proto file, and the proto file still means what every
//! frozen release says it means. `ATOLL_BLESS=1` writes the generated code anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use std::{collections::BTreeMap, fs, path::Path};

fn compile(file: &str) -> FileDescriptorSet {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    protox::compile([root.join(file)], [root.join(file).parent().unwrap()]).unwrap()
}

#[test]
fn generated_code_is_current() {
    let out = std::env::temp_dir().join(format!("atoll-gen-{}", std::process::id()));
    fs::create_dir_all(&out).unwrap();
    tonic_prost_build::configure()
        .bytes("Output.data")
        .bytes("FileChunk.data")
        .bytes("WriteChunk.data")
        .bytes("StdinChunk.data")
        .out_dir(&out)
        .compile_fds(compile("proto/guest.proto"))
        .unwrap();
    let fresh = fs::read_to_string(out.join("atoll.guest.v1.rs")).unwrap();
    fs::remove_dir_all(&out).unwrap();
    // The client's and server's halves are features of ours, not of the generator.
    let fresh = fresh
        .replace("pub mod guest_client {", "#[cfg(feature = \"client\")]\npub mod guest_client {")
        .replace("pub mod guest_server {", "#[cfg(feature = \"server\")]\npub mod guest_server {");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gen/atoll.guest.v1.rs");
    if std::env::var_os("ATOLL_BLESS").is_some() {
        fs::write(&kept, &fresh).unwrap();
    }
    let kept = fs::read_to_string(&kept).unwrap();
    assert!(kept == fresh, "src/gen is stale: run ATOLL_BLESS=1 cargo test -p atoll-guest-proto");
}

/// Message path → field number → (name, type, label, type name).
type Fields = BTreeMap<String, BTreeMap<i32, (String, i32, i32, String)>>;

fn fields(prefix: &str, messages: &[DescriptorProto], into: &mut Fields) {
    for message in messages {
        let path = format!("{prefix}.{}", message.name());
        let entry = into.entry(path.clone()).or_default();
        for f in &message.field {
            let shape =
                (f.name().to_string(), f.r#type() as i32, f.label() as i32, f.type_name().to_string());
            entry.insert(f.number(), shape);
        }
        fields(&path, &message.nested_type, into);
    }
}

fn calls(file: &FileDescriptorProto) -> BTreeMap<String, (String, String, bool, bool)> {
    let methods = file.service.iter().flat_map(|s| s.method.iter().map(move |m| (s.name(), m)));
    methods
        .map(|(service, m)| {
            let shape = (
                m.input_type().to_string(),
                m.output_type().to_string(),
                m.client_streaming(),
                m.server_streaming(),
            );
            (format!("{service}/{}", m.name()), shape)
        })
        .collect()
}

/// What a frozen release promised that the present file does not keep.
fn broken(frozen: &FileDescriptorProto, present: &FileDescriptorProto) -> Vec<String> {
    let (mut old, mut new) = (Fields::new(), Fields::new());
    fields("", &frozen.message_type, &mut old);
    fields("", &present.message_type, &mut new);
    let mut broken = Vec::new();
    for (message, numbers) in old {
        for (number, shape) in numbers {
            if new.get(&message).and_then(|m| m.get(&number)) != Some(&shape) {
                broken.push(format!("{message} field {number} ({})", shape.0));
            }
        }
    }
    let present_calls = calls(present);
    for (name, shape) in calls(frozen) {
        if present_calls.get(&name) != Some(&shape) {
            broken.push(format!("call {name}"));
        }
    }
    broken
}

#[test]
fn every_frozen_release_is_still_understood() {
    let present = compile("proto/guest.proto");
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("frozen");
    let mut seen = 0;
    for entry in fs::read_dir(&frozen).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let old = compile(&format!("frozen/{name}"));
        assert_eq!(broken(&old.file[0], &present.file[0]), Vec::<String>::new(), "against {name}");
        seen += 1;
    }
    assert!(seen >= 1, "at least the present protocol is frozen");
}

#[test]
fn a_breaking_change_is_noticed() {
    let present = compile("proto/guest.proto");
    let mut changed = present.clone();
    let file = &mut changed.file[0];
    let exec = file.message_type.iter_mut().find(|m| m.name() == "ExecRequest").unwrap();
    exec.field.iter_mut().find(|f| f.name() == "user").unwrap().number = Some(60);
    file.service[0].method.retain(|m| m.name() != "Move");
    assert_eq!(
        broken(&present.file[0], &changed.file[0]),
        vec![".ExecRequest field 6 (user)".to_string(), "call Guest/Move".to_string()]
    );
}
