//! Prints what storage costs on this machine. Run as root: `cargo run --release --example storage_figures`.

use atoll_storage::{DriverChoice, HostImage, Storage, StorageConfig, Tree};
use atoll_types::{Result, VolumeId};
use std::time::{Duration, Instant};

const TREES: usize = 200;

fn timed<T>(what: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = act()?;
    println!("{what:40} {:9.3} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(result)
}

fn spread(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!("{what:40} {:9.3} ms p50 {:9.3} ms p95", at(50), at(95));
}

fn each(trees: &[Tree], mut act: impl FnMut(Tree) -> Result<()>) -> Result<Vec<Duration>> {
    let one = |tree: &Tree| {
        let start = Instant::now();
        act(*tree).map(|()| start.elapsed())
    };
    trees.iter().map(one).collect()
}

fn trees(storage: &Storage) -> Result<()> {
    let trees: Vec<Tree> = (0..TREES).map(|_| Tree::Volume(VolumeId::random())).collect();
    spread("create with a limit", each(&trees, |tree| storage.create(tree, 8 << 20).map(drop))?);
    spread("create what is there", each(&trees, |tree| storage.create(tree, 8 << 20).map(drop))?);
    spread("change the limit", each(&trees, |tree| storage.set_limit(tree, 9 << 20))?);
    spread("usage", each(&trees, |tree| storage.usage(tree).map(drop))?);
    for tree in &trees {
        let _ = std::fs::write(storage.path(*tree).join("data"), vec![1; 1 << 20]);
    }
    timed("report", || storage.report())?;
    spread("remove with 1 MiB inside", each(&trees, |tree| storage.remove(tree))?);
    Ok(())
}

fn walk(config: StorageConfig) -> Result<()> {
    let storage = Storage::open(&StorageConfig { driver: DriverChoice::Dir, ..config })?;
    let tree = Tree::Volume(VolumeId::random());
    let path = storage.create(tree, 1 << 30)?;
    for n in 0..20_000 {
        let _ = std::fs::write(path.join(n.to_string()), "x");
    }
    timed("dir: usage of 20,000 files", || storage.usage(tree))?;
    timed("dir: remove 20,000 files", || storage.remove(tree))
}

fn main() -> Result<()> {
    let base = std::env::temp_dir().join(format!("atoll-figures-{}", std::process::id()));
    let config = StorageConfig::new(base.join("storage"), base.join("pool"));
    let storage = timed("open, with mkfs", || Storage::open(&config))?;
    println!("{:?}", storage.report()?);
    trees(&storage)?;
    timed("grow from 4 GiB for a tree of 10 GiB", || {
        storage.create(Tree::Volume(VolumeId::random()), 10 << 30)
    })?;
    timed("close", || storage.close())?;
    let storage = timed("open again", || Storage::open(&config))?;
    timed("open what is mounted", || Storage::open(&config)).map(drop)?;
    storage.close()?;
    walk(StorageConfig::new(base.join("plain"), base.join("unused")))?;
    timed("host image, built", || HostImage::default().ensure(&base.join("images")))?;
    timed("host image, found", || HostImage::default().ensure(&base.join("images")))?;
    let _ = std::process::Command::new("du").args(["-sh", "--inodes"]).arg(base.join("images")).status();
    let _ = std::process::Command::new("du").arg("-sh").arg(base.join("images")).status();
    let _ = std::fs::remove_dir_all(base);
    Ok(())
}
