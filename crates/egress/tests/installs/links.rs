//! The links of an index, fetched by the server itself through the dialer that guards it.

use crate::serve;
use atoll_egress::{
    Egress, EgressSettings, Reach,
    presets::{Preset, PresetRegistry, ToolLocation, learn},
};
use std::{collections::BTreeMap, fs, net::Ipv4Addr, sync::Arc};

fn python(registry: &PresetRegistry) -> (Vec<String>, Preset) {
    let preset = registry.list(None).into_iter().find(|preset| preset.name == "python").unwrap();
    (preset.entries.iter().map(|listed| listed.entry.to_string()).collect(), preset)
}

#[tokio::test]
async fn the_server_asks_an_index_by_its_guarded_dialer_only() {
    // Not the address that the machine speaks from: that one is never dialled.
    let at = Ipv4Addr::new(127, 0, 0, 2);
    let served = tempfile::tempdir().unwrap();
    fs::create_dir_all(served.path().join("simple/six")).unwrap();
    let page =
        "<html><a href='https://files.example.com/six.whl'>six</a><a href='http://127.0.0.1/x'>x</a></html>";
    fs::write(served.path().join("simple/six/index.html"), page).unwrap();
    let port = serve::files(served.path(), at).port();
    let root = tempfile::tempdir().unwrap();
    let set = ("PIP_INDEX_URL".to_owned(), format!("http://index.example.com:{port}/simple"));
    let place = ToolLocation::image_folder(root.path(), BTreeMap::from([set])).unwrap();
    let registry = PresetRegistry::new(learn(&place), BTreeMap::new(), Arc::default(), None);
    registry.note_use(&["python".to_owned()]);
    let egress = |reach| {
        let nameservers = vec![serve::names(at)];
        Egress::new(EgressSettings { reach, nameservers, ..EgressSettings::default() }).unwrap()
    };
    let index = format!("index.example.com:{port}");

    assert!(!registry.refresh(&egress(Reach::default()).dialer()).await.unwrap());
    let (entries, preset) = python(&registry);
    assert_eq!(entries, [index.as_str()]);
    assert!(preset.notes[0].contains("out of reach"), "{:?}", preset.notes);

    let open = Reach::new(Vec::new(), Vec::new());
    assert!(registry.refresh(&egress(open).dialer()).await.unwrap(), "{:?}", python(&registry).1.notes);
    let (entries, preset) = python(&registry);
    assert_eq!(entries, [index, "files.example.com:443".to_owned()]);
    assert!(preset.notes.is_empty());
}
