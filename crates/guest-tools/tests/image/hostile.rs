//! Hostile layers and archives: refused by their name, and nothing outside of the folder is touched.

use crate::support::*;
use atoll_guest_tools::{
    ImageLimits, UnpackImage,
    image::{LayerOptions, apply_layer, unpack_image},
};
use atoll_oci::Digest;
use proptest::prelude::*;
use std::{fs, os::unix::fs::MetadataExt, path::Path};
use tar::{EntryType, Header};

/// A folder for an image, with files around it that no layer may touch.
struct Canary(tempfile::TempDir);

impl Canary {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("x/image")).unwrap();
        for name in ["secret", "x/secret"] {
            fs::write(top.path().join(name), "secret").unwrap();
        }
        Self(top)
    }

    fn image(&self) -> std::path::PathBuf {
        self.0.path().join("x/image")
    }

    /// What is outside, with the number of names of each file.
    fn outside(&self) -> Vec<(String, Vec<u8>, u32, u64)> {
        let all = tree(self.0.path()).into_iter().filter(|(name, _)| !name.starts_with("x/image"));
        all.map(|(name, node)| {
            let links = fs::symlink_metadata(self.0.path().join(&name)).unwrap().nlink();
            (name.clone(), node.body, node.mode, if name == "." || name == "x" { 0 } else { links })
        })
        .collect()
    }
}

#[test]
fn every_hostile_entry_is_refused_by_its_name_and_nothing_is_outside() {
    let up = entry(EntryType::GNULongName, "x", "", b"../../escape\0");
    let pax = entry(EntryType::XHeader, "x", "", b"21 path=../../escape\n");
    let vast = {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let map = entry(EntryType::XHeader, "x", "", b"22 GNU.sparse.size=10\n26 GNU.sparse.map=9,1,0,1\n");
    let deep = "d/".repeat(45);
    let through: Vec<Entry> =
        (0..4).map(|n| symlink(&format!("l{n}"), &format!("l{}/{deep}", n + 1))).collect();
    let cases: Vec<(&str, &str, Vec<Entry>)> = vec![
        ("up", "leads out", vec![file("../escape", "x")]),
        ("up in the middle", "leads out", vec![file("a/../../escape", "x")]),
        ("up from the root", "leads out", vec![file("/../escape", "x")]),
        ("up by a long name", "leads out", vec![up, file("f", "x")]),
        ("up by an extension", "leads out", vec![pax, file("f", "x")]),
        ("a folder above", "leads out", vec![folder("..")]),
        ("a hard link to outside", "hard link to no file", vec![hard_link("h", "../secret")]),
        (
            "a hard link through a link",
            "hard link to no file",
            vec![symlink("l", "../.."), hard_link("h", "l/secret")],
        ),
        ("a hard link to a folder", "hard link to no file", vec![folder("d/"), hard_link("h", "d")]),
        ("a hard link to nothing", "hard link to no file", vec![hard_link("h", "never")]),
        ("a device", "dvc is a device", vec![entry(EntryType::Char, "dvc", "", b"")]),
        ("a block device", "is a device", vec![entry(EntryType::Block, "a/d", "", b"")]),
        ("a kind of its own", "unknown kind", vec![entry(EntryType::new(b'Z'), "d", "", b"")]),
        ("the root as a file", "root of the layer", vec![file(".", "x")]),
        ("below a file", "which is no folder", vec![file("f", "x"), file("f/g", "x")]),
        ("a loop", "too many symbolic links", vec![symlink("a", "b"), symlink("b", "a"), file("a/f", "x")]),
        ("a deep path through links", "too deep", [through, vec![file("l0/f", "x")]].concat()),
        ("a whiteout of ..", "hides no entry", vec![file("a/.wh...", "")]),
        ("a whiteout of .", "hides no entry", vec![file("a/.wh..", "")]),
        ("a whiteout of nothing", "hides no entry", vec![file("a/.wh.", "")]),
        ("below a whiteout", "below a whiteout", vec![file(".wh.x/f", "x")]),
        ("a stranger's id", "belongs to user 65536", vec![file("f", "x").ids(65536, 0)]),
        ("a link to nowhere", "leads nowhere", vec![symlink("l", "")]),
        ("a sparse map out of order", "map of a sparse file", vec![map, file("f", "xy")]),
    ];
    for (case, why, entries) in cases {
        let canary = Canary::new();
        let before = canary.outside();
        let error = applied(&canary.image(), layer(&entries).as_slice()).unwrap_err();
        assert!(error.message.contains(why), "{case}: {error}");
        assert_eq!(canary.outside(), before, "{case}");
    }
    let canary = Canary::new();
    for bytes in [vast, vec![b'x'; 2048], layer(&[file("f", "0123456789")])[..517].to_vec()] {
        assert!(applied(&canary.image(), bytes.as_slice()).is_err());
    }
}

#[test]
fn absolute_names_and_escaping_links_stay_in_the_image() {
    let canary = Canary::new();
    let before = canary.outside();
    let entries = [
        file("/etc", "x"),
        symlink("l", "../../.."),
        file("l/escape", "x"),
        symlink("abs", "/"),
        file("abs/second", "x"),
        folder("l/x/"),
        file("abs/.wh.never", ""),
    ];
    applied(&canary.image(), layer(&entries).as_slice()).unwrap();
    assert_eq!(canary.outside(), before);
    for name in ["etc", "escape", "second", "x"] {
        assert!(canary.image().join(name).symlink_metadata().is_ok(), "{name}");
    }
}

#[test]
fn bombs_end_at_their_limits() {
    let limits = ImageLimits::default();
    let fails = |bytes: &[u8], limits: ImageLimits| {
        let top = tempfile::tempdir().unwrap();
        let error =
            apply_layer(&opened(top.path()), bytes, &LayerOptions { limits, ..LayerOptions::default() });
        let error = error.unwrap_err();
        assert_eq!(error.code.as_str(), "too_large", "{error}");
        error.message
    };
    let mut zeros = entry(EntryType::Regular, "zeros", "", b"");
    zeros.body = vec![0; 32 << 20];
    let plain = layer(&[zeros]);
    let small = ImageLimits { bytes: 1 << 20, ..limits };
    for form in [plain.clone(), gzip(&plain), zstd(&plain)] {
        assert!(fails(&form, small).contains("more than 1048576 bytes"));
    }
    assert!(fails(&gzip(&plain), ImageLimits { ratio: 50, ..limits }).contains("50 times larger"));
    let many: Vec<Entry> = (0..20).map(|n| file(&format!("f{n}"), "")).collect();
    assert!(fails(&layer(&many), ImageLimits { entries: 10, ..limits }).contains("more than 10 entries"));
    let hole =
        entry(EntryType::XHeader, "x", "", b"33 GNU.sparse.size=1099511627776\n22 GNU.sparse.map=0,1\n");
    assert!(fails(&layer(&[hole, file("f", "x")]), small).contains("more than 1048576 bytes"));
    // What follows the end of an archive counts too.
    let tail = [layer(&[]), vec![0; 4 << 20]].concat();
    assert!(fails(&gzip(&tail), small).contains("more than 1048576 bytes"));
}

/// An OCI layout as an archive, of which a test can change any part.
fn layout(
    layer_bytes: &[u8],
    change: impl FnOnce(&mut serde_json::Value, &mut serde_json::Value),
) -> Vec<u8> {
    let here = atoll_oci::Platform::this();
    let mut config = serde_json::json!({"architecture": here.architecture, "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(layer_bytes)]}});
    let mut manifest = serde_json::json!({"schemaVersion": 2, "layers": [{
        "mediaType": atoll_oci::media::LAYER, "digest": Digest::of(layer_bytes), "size": layer_bytes.len()}]});
    change(&mut config, &mut manifest);
    let config = config.to_string();
    if manifest["config"].is_null() {
        manifest["config"] = serde_json::json!({"mediaType": atoll_oci::media::CONFIG, "digest": Digest::of(config.as_bytes()),
            "size": config.len()});
    }
    let manifest = manifest.to_string();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [{"mediaType": atoll_oci::media::MANIFEST,
        "digest": Digest::of(manifest.as_bytes()), "size": manifest.len()}]});
    let blob = |bytes: &[u8]| {
        let name = format!("blobs/sha256/{}", Digest::of(bytes).hex());
        entry(EntryType::Regular, &name, "", bytes)
    };
    layer(&[
        file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#),
        file("index.json", &index.to_string()),
        blob(config.as_bytes()),
        blob(manifest.as_bytes()),
        blob(layer_bytes),
    ])
}

fn unpacked(archive: &[u8], folder: &Path) -> Result<atoll_guest_tools::UnpackedImage, atoll_types::Error> {
    let around = tempfile::tempdir().unwrap();
    let path = around.path().join("archive");
    fs::write(&path, archive).unwrap();
    let request = UnpackImage {
        archive: path.to_str().unwrap().into(),
        target: folder.to_str().unwrap().into(),
        reference: None,
        limits: ImageLimits { layers: 3, ..ImageLimits::default() },
    };
    unpack_image(fs::File::open(&path).unwrap(), &opened(folder), &request)
}

#[test]
fn every_digest_and_count_of_an_archive_is_checked() {
    let bytes = layer(&[file("f", "x")]);
    let other = Digest::of(b"other");
    let top = tempfile::tempdir().unwrap();
    unpacked(&layout(&bytes, |_, _| {}), top.path()).unwrap();
    assert!(unpacked(&layout(&bytes, |_, _| {}), top.path()).unwrap_err().message.contains("must be empty"));
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "uncompressed, has the digest",
            layout(&bytes, |config, _| config["rootfs"]["diff_ids"][0] = other.to_string().into()),
        ),
        (
            "has no file",
            layout(&bytes, |_, manifest| manifest["layers"][0]["digest"] = other.to_string().into()),
        ),
        (
            "its configuration says 2",
            layout(&bytes, |config, _| {
                let ids = config["rootfs"]["diff_ids"].as_array_mut().unwrap();
                ids.push(ids[0].clone());
            }),
        ),
        (
            "4 layers, and 3 are allowed",
            layout(&bytes, |config, manifest| {
                for list in [config.pointer_mut("/rootfs/diff_ids"), manifest.pointer_mut("/layers")] {
                    let list = list.unwrap().as_array_mut().unwrap();
                    *list = vec![list[0].clone(); 4];
                }
            }),
        ),
        ("and this machine is", layout(&bytes, |config, _| config["architecture"] = "s390x".into())),
        (
            "is not supported",
            layout(&bytes, |_, manifest| manifest["layers"][0]["mediaType"] = "x/foreign".into()),
        ),
        ("absolute", layout(&bytes, |config, _| config["config"] = serde_json::json!({"WorkingDir": "x"}))),
        ("is an index as well", layout(&bytes, |_, manifest| manifest["manifests"] = serde_json::json!([]))),
    ];
    for (why, archive) in cases {
        let canary = Canary::new();
        let error = unpacked(&archive, &canary.image()).unwrap_err();
        assert!(error.message.contains(why), "{why}: {error}");
    }
    // One bit of each blob, in turn: no archive with it is taken.
    let whole = layout(&bytes, |_, _| {});
    for name in ["blobs/sha256/"; 1] {
        let places: Vec<usize> = whole
            .windows(name.len())
            .enumerate()
            .filter(|(_, w)| *w == name.as_bytes())
            .map(|(at, _)| at)
            .collect();
        assert_eq!(places.len(), 3);
        for at in places {
            let mut changed = whole.clone();
            changed[at + 512 + 5] ^= 1;
            let canary = Canary::new();
            assert!(unpacked(&changed, &canary.image()).is_err());
        }
    }
}

fn any_entry() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just("a"),
        Just("b"),
        Just("l"),
        Just(".."),
        Just("."),
        Just(""),
        Just("secret"),
        Just(".wh.a"),
        Just(".wh..wh..opq"),
        Just(".wh..."),
        Just("dev"),
        Just("x"),
        Just("image"),
    ];
    let path = prop::collection::vec(part, 1..6).prop_map(|parts| parts.join("/"));
    let kind = prop::sample::select(b"000112222255536LKxgSZ7".to_vec());
    (kind, path.clone(), path, prop::collection::vec(any::<u8>(), 0..700), any::<bool>()).prop_map(
        |(kind, name, target, body, climbs)| {
            let climbing = if climbs { format!("../../{target}") } else { target.clone() };
            let body = match kind {
                b'L' | b'K' => climbing.clone().into_bytes(),
                b'x' => format!("{} path={climbing}\n", climbing.len() + 9).into_bytes(),
                b'0' | b'g' | b'S' => body,
                _ => Vec::new(),
            };
            entry(EntryType::new(kind), &name, if climbs { &climbing } else { &target }, &body)
                .mode(0o6777)
                .bytes()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_layer_writes_outside(
        layers in prop::collection::vec(prop::collection::vec(any_entry(), 0..12), 1..3),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        compressed in 0..3,
    ) {
        let canary = Canary::new();
        let before = canary.outside();
        for entries in layers {
            let mut bytes = [entries.concat(), vec![0; 1024]].concat();
            for (at, byte) in &noise {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let bytes = match compressed { 0 => bytes, 1 => gzip(&bytes), _ => zstd(&bytes) };
            let _ = applied(&canary.image(), bytes.as_slice());
            prop_assert_eq!(canary.outside(), before.clone());
        }
    }

    #[test]
    fn no_archive_writes_outside_or_panics(
        entries in prop::collection::vec(any_entry(), 0..6),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let canary = Canary::new();
        let before = canary.outside();
        let mut bytes = layout(&[entries.concat(), vec![0; 1024]].concat(), |_, _| {});
        for (at, byte) in &noise {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        let _ = unpacked(&bytes, &canary.image());
        prop_assert_eq!(canary.outside(), before);
    }
}
