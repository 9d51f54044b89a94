//! Presets as a whole: machine and image together, refreshing, and the tools of the machine that the tests run
//! on.

use super::{trial::Trial, *};
use crate::{Entry, Reach};
use async_trait::async_trait;
use atoll_types::{Error, ErrorCode, Result};
use proptest::prelude::*;
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};
use url::Url;

const PIP: &str = "usr/lib/python3/dist-packages/pip/_internal/models/index.py";
const SOURCE: &str = "\nPyPI = PackageIndex(\"https://index.example.com/\", file_storage_domain=\"\")\n";

/// An index whose answers a test sets.
#[derive(Default)]
struct Index(Mutex<Vec<(String, String)>>, Mutex<Vec<String>>);

impl Index {
    fn set(&self, url: &str, body: &str) {
        *self.0.lock().unwrap() = vec![(url.to_owned(), body.to_owned())];
    }
}

#[async_trait]
impl Fetch for Index {
    async fn get(&self, url: &Url, _: usize) -> Result<IndexResponse> {
        self.1.lock().unwrap().push(url.to_string());
        let answers = self.0.lock().unwrap();
        let found = answers.iter().find(|(known, _)| known == url.as_str());
        let (_, body) = found.ok_or_else(|| Error::new(ErrorCode::Unavailable, "no\nanswer"))?;
        Ok(IndexResponse { status: 200, location: None, body: body.clone().into_bytes() })
    }
}

fn registry(trial: &Trial, file: Option<&Path>) -> PresetRegistry {
    let machine = learn(&trial.machine(&[]));
    let registry = PresetRegistry::new(machine, BTreeMap::new(), Arc::default(), file.map(Path::to_owned));
    registry.note_use(&["python".to_owned(), "debian".to_owned()]);
    registry
}

fn preset(registry: &PresetRegistry, image: Option<&str>, name: &str) -> Preset {
    registry.list(image).into_iter().find(|preset| preset.name == name).unwrap()
}

fn shown(preset: &Preset) -> Vec<String> {
    preset.entries.iter().map(|listed| format!("{} ({})", listed.entry, listed.origin)).collect()
}

#[tokio::test]
async fn links_are_asked_for_kept_over_a_failure_and_over_a_start() {
    let trial = Trial::new(&[(PIP, SOURCE)]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("links.json");
    let first = registry(&trial, Some(&file));
    let alone = "index.example.com:443 (built into pip)";
    assert_eq!(shown(&preset(&first, None, "python")), [alone]);
    let index = Index::default();
    assert!(!first.refresh(&index).await.unwrap(), "the index does not answer yet");
    let python = preset(&first, None, "python");
    assert_eq!(shown(&python), [alone]);
    assert_eq!(python.notes, ["the links of index.example.com could not be fetched: noanswer"]);
    let changes = first.changes();
    let page = "<html><a href='https://files.example.com/six.whl'>";
    index.set("https://index.example.com/simple/six/", page);
    assert!(first.refresh(&index).await.unwrap());
    assert!(changes.has_changed().unwrap());
    let both = [alone, "files.example.com:443 (links of the index)"];
    assert_eq!(shown(&preset(&first, None, "python")), both);
    assert!(preset(&first, None, "python").notes.is_empty());
    index.set("nothing", "");
    assert!(!first.refresh(&index).await.unwrap());
    assert_eq!(shown(&preset(&first, None, "python")), both, "a failure keeps what is known");
    assert_eq!(shown(&preset(&registry(&trial, Some(&file)), None, "python")), both, "and so does a start");
    let presets = first.presets(None);
    assert_eq!(presets.0["python"].len(), 2);
    assert!(presets.0["github"].len() > 5);
    fs::write(&file, "nonsense").unwrap();
    assert_eq!(shown(&preset(&registry(&trial, Some(&file)), None, "python")), [alone]);
}

#[tokio::test(start_paused = true)]
async fn an_index_is_asked_when_its_preset_is_first_used_and_remembered_after() {
    let trial = Trial::new(&[(PIP, SOURCE)]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("links.json");
    let index = Index::default();
    index.set("https://index.example.com/simple/six/", "<html><a href='https://files.example.com/six.whl'>");
    let asked = || index.1.lock().unwrap().len();
    let machine = || learn(&trial.machine(&[]));
    let run = async |registry: &PresetRegistry, seconds: u64| {
        let fresh = registry.keep_fresh(&index, |error| panic!("{error}"));
        tokio::time::timeout(std::time::Duration::from_secs(seconds), fresh).await.unwrap_err();
    };
    let first = PresetRegistry::new(machine(), BTreeMap::new(), Arc::default(), Some(file.clone()));
    run(&first, 3 * 3600).await;
    assert_eq!(asked(), 0, "no policy names the preset");
    first.note_use(&["github".to_owned(), "python".to_owned()]);
    run(&first, 60).await;
    assert_eq!(asked(), 1);
    let second = PresetRegistry::new(machine(), BTreeMap::new(), Arc::default(), Some(file));
    second.note_use(&["python".to_owned()]);
    run(&second, 60).await;
    assert_eq!(asked(), 1, "a start remembers the answer");
    run(&second, 3700).await;
    assert_eq!(asked(), 2, "what is in use is asked for again after an hour");
}

#[tokio::test]
async fn an_image_speaks_for_itself_only_and_sends_nobody_to_addresses() {
    let machine = Trial::new(&[(PIP, SOURCE), ("etc/apt/sources.list", "deb http://deb.example.com/ x\n")]);
    let registry = registry(&machine, None);
    let image = Trial::new(&[
        (
            "etc/pip.conf",
            "[global]\nindex-url = https://other.example.com/simple\nextra-index-url = http://10.0.0.1/simple http://printer/simple http://192.0.2.1/\n",
        ),
        ("etc/apt/sources.list", "deb http://apt.example.com/ x\n"),
    ]);
    registry.learned("guest", learn(&image.image()));
    let python = preset(&registry, Some("guest"), "python");
    assert_eq!(shown(&python), ["other.example.com:443 (pip configuration)"]);
    assert_eq!(python.notes.len(), 3, "{:?}", python.notes);
    assert_eq!(
        shown(&preset(&registry, Some("guest"), "debian")),
        ["apt.example.com:80 (apt configuration)"]
    );
    for image in [None, Some("another")] {
        assert_eq!(shown(&preset(&registry, image, "python")), ["index.example.com:443 (built into pip)"]);
        assert_eq!(shown(&preset(&registry, image, "debian")), ["deb.example.com:80 (apt configuration)"]);
    }
    let index = Index::default();
    registry.refresh(&index).await.unwrap();
    let asked = index.1.lock().unwrap().clone();
    assert_eq!(asked, ["https://index.example.com/simple/six/", "https://other.example.com/simple/six/"]);
    registry.forget("guest");
    assert_eq!(
        shown(&preset(&registry, Some("guest"), "python")),
        ["index.example.com:443 (built into pip)"]
    );
}

#[tokio::test]
async fn a_mirror_of_the_machine_stands_in_for_what_is_built_in_everywhere() {
    let conf = "[global]\nindex-url = https://me:pw@mirror.example.com/simple\n";
    let machine = Trial::new(&[(PIP, SOURCE), ("etc/pip.conf", conf)]);
    let registry = registry(&machine, None);
    registry.learned("guest", learn(&Trial::new(&[(PIP, SOURCE)]).image()));
    for image in [None, Some("guest")] {
        let python = preset(&registry, image, "python");
        assert_eq!(shown(&python), ["mirror.example.com:443 (pip configuration)"]);
        assert!(python.notes[0].contains("credentials"), "{:?}", python.notes);
        assert!(!format!("{python:?}").contains("pw"));
    }
    let index = Index::default();
    registry.refresh(&index).await.unwrap();
    assert_eq!(index.1.lock().unwrap().len(), 0, "what needs credentials is not asked");
}

#[tokio::test]
async fn the_operator_has_the_last_word() {
    let trial = Trial::new(&[(PIP, SOURCE)]);
    let entries = |texts: &[&str]| texts.iter().map(|t| t.parse::<Entry>().unwrap()).collect::<Vec<_>>();
    let operator =
        [("python", entries(&["10.0.0.1:443", "own.example"])), ("ours", entries(&["*.corp.example"]))];
    let operator = operator.into_iter().map(|(name, entries)| (name.to_owned(), entries)).collect();
    let registry =
        PresetRegistry::new(learn(&trial.machine(&[])), operator, Arc::new(Reach::default()), None);
    let by = "(operator's configuration)";
    assert_eq!(
        shown(&preset(&registry, None, "python")),
        [format!("10.0.0.1:443 {by}"), format!("own.example {by}")]
    );
    assert_eq!(shown(&preset(&registry, None, "ours")), [format!("*.corp.example {by}")]);
    let r = preset(&registry, None, "r");
    assert!(r.entries.is_empty() && !r.notes.is_empty());
    let index = Index::default();
    registry.note_use(&["python".to_owned()]);
    assert!(registry.refresh(&index).await.unwrap());
    assert_eq!(index.1.lock().unwrap().len(), 0);
    let json = serde_json::to_value(preset(&registry, None, "ours")).unwrap();
    assert_eq!(
        json["entries"][0],
        serde_json::json!({"entry": "*.corp.example", "origin": "operator's configuration"})
    );
}

#[test]
fn findings_can_be_written_down() {
    let found = learn(&Trial::new(&[(PIP, SOURCE)]).machine(&[]));
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Findings>(&text).unwrap(), found);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_file_of_an_image_makes_learning_fail(text in "(\\PC|[ \n\t'\"=:#\\[\\](){},]|https://|registry|PyPI = |default:|repos|CRAN|deb |URIs:|index-url){0,60}") {
        let files = [
            PIP, "etc/pip.conf", "etc/npmrc", "etc/uv/uv.toml", "root/.cargo/config.toml", "usr/bin/cargo",
            "usr/lib/node_modules/npm/lib/config/defaults.js", "etc/apt/sources.list",
            "etc/apt/sources.list.d/x.sources", "etc/R/Rprofile.site", "usr/lib/R/etc/repositories",
            "usr/lib/R/doc/CRAN_mirrors.csv",
        ];
        let trial = Trial::new(&files.map(|file| (file, text.as_str())));
        let registry = PresetRegistry::new(learn(&trial.machine(&[])), BTreeMap::new(), Arc::default(), None);
        registry.learned("guest", learn(&trial.image()));
        // Every learned entry is for one host and port.
        for preset in registry.list(Some("guest")) {
            for Listed { entry, .. } in preset.entries {
                prop_assert_eq!(entry.to_string().parse::<Entry>().unwrap(), entry.clone());
                prop_assert!(entry.port.is_some());
            }
        }
    }
}

/// What a program prints, where it is installed.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn of_the_machine() -> (Findings, PresetRegistry) {
    let found = learn(&ToolLocation::machine().unwrap());
    let registry = PresetRegistry::new(found.clone(), BTreeMap::new(), Arc::default(), None);
    (found, registry)
}

#[test]
fn the_tools_of_this_machine_say_the_same() {
    let (found, registry) = of_the_machine();
    let main = |ecosystem| {
        let indexes = found.found.get(&ecosystem).map(|f| f.indexes.as_slice()).unwrap_or_default();
        indexes.iter().find(|index| index.role == Role::Main).map(|index| index.url.clone())
    };
    let url = |text: &str| Url::parse(text).unwrap();
    if let Some(registry) = said("npm", &["config", "get", "registry"]) {
        assert_eq!(main(Ecosystem::Node), Some(url(&registry)));
    }
    let script = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)";
    if let Some(built_in) = said("python3", &["-c", script]) {
        let set = said("python3", &["-m", "pip", "config", "get", "global.index-url"]);
        let expected = url(&set.unwrap_or(built_in));
        assert_eq!(
            main(Ecosystem::Python).unwrap().as_str().trim_end_matches('/'),
            expected.as_str().trim_end_matches('/')
        );
    }
    if let Some(cran) =
        said("Rscript", &["-e", "cat(getOption('repos')['CRAN'])"]).filter(|c| c.contains("//"))
    {
        assert_eq!(main(Ecosystem::R), Some(url(&cran)));
    }
    if said("cargo", &["--version"]).is_some() {
        assert!(main(Ecosystem::Rust).is_some(), "{found:?}");
    }
    if let Some(targets) = said("apt-get", &["indextargets", "--format", "$(REPO_URI)"]) {
        let hosts = |texts: &mut dyn Iterator<Item = Url>| -> BTreeSet<String> {
            texts.filter_map(|u| u.host_str().map(str::to_owned)).collect()
        };
        let apt = hosts(&mut targets.lines().filter_map(|l| Url::parse(l).ok()));
        let indexes = found.found.get(&Ecosystem::Debian).map(|f| f.indexes.clone()).unwrap_or_default();
        assert_eq!(hosts(&mut indexes.into_iter().map(|i| i.url)), apt);
    }
    for (name, program) in [("python", "pip"), ("node", "npm"), ("rust", "cargo"), ("debian", "apt-get")] {
        if said(program, &["--version"]).is_some() {
            assert!(!preset(&registry, None, name).entries.is_empty(), "{name}: {found:?}");
        }
    }
}

#[test]
fn the_profile_for_r_sets_its_repository() {
    let profile = "options(repos = c(CRAN = 'https://cran.example.com/x'))\n";
    let trial = Trial::new(&[("etc/R/Rprofile.site", profile)]);
    let settings = mirrors(&learn(&trial.machine(&[])));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile");
    fs::write(&file, &settings.files[0].text).unwrap();
    let (name, _) = settings.files[0].variable.unwrap();
    let output = Command::new("Rscript").args(["-e", "cat(getOption('repos'))"]).env(name, &file).output();
    if let Ok(output) = output {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "https://cran.example.com/x", "{output:?}");
    }
}

/// Every text file below a folder.
fn texts(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().map(std::result::Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            texts(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push((path.display().to_string(), text));
        }
    }
}

#[test]
fn no_host_that_is_learned_is_written_in_our_sources() {
    let (_, registry) = of_the_machine();
    let mut sources = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    texts(crates, &mut sources);
    assert!(sources.len() > 100, "the sources are where they were");
    let constants = registry.presets(None).0.remove("github").unwrap();
    for preset in registry.list(None) {
        for listed in preset.entries.iter().filter(|l| !constants.contains(&l.entry)) {
            let host = listed.entry.to_string();
            let host = host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host);
            let found = sources.iter().find(|(_, text)| text.contains(host));
            assert_eq!(found.map(|(path, _)| path), None, "a host of {} is written there", preset.name);
        }
    }
}
