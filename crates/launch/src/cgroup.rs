//! Cgroups, by libcgroups. Callers need not know which cgroup version the machine has.
//!
//! A frozen container is killed first and thawed then, so none of its processes runs again; on v1 a frozen
//! process does not see SIGKILL until it is thawed.

use crate::{
    context::{Context, Folders, make_folder},
    freezer::Freezer,
};
use atoll_types::{ContainerId, Error, ErrorCode, Limits, Result};
use libcgroups::{
    common::{
        AnyCgroupManager, CgroupConfig, CgroupManager, CgroupSetup, ControllerOpt, DEFAULT_CGROUP_ROOT,
        create_cgroup_manager, get_cgroup_setup,
    },
    v1,
};
use oci_spec::runtime::LinuxResources;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

/// Processes that Atoll itself needs in a container: PID 1, its threads, and the shims of commands.
const OWN_PROCESSES: u32 = 16;
/// The most that buffers of sockets may hold, where they are limited apart.
const MOST_SOCKET_BYTES: u64 = 64 << 20;
/// Where v1 limits them. Kernels can be built without it.
const SOCKET_LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";
const CPU_PERIOD: u64 = 100_000;

/// A controller that the limits need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
    Cpuset,
}

impl Controller {
    const ALL: [Self; 4] = [Self::Memory, Self::Pids, Self::Cpu, Self::Cpuset];

    /// The kernel's name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
        }
    }
}

fn setup() -> Result<CgroupSetup> {
    get_cgroup_setup().map_err(|e| Error::new(ErrorCode::Unsupported, format!("no usable cgroups: {e}")))
}

/// Which cgroup version the machine has.
pub(crate) fn version() -> &'static str {
    match get_cgroup_setup() {
        Ok(CgroupSetup::Hybrid) => "hybrid",
        Ok(CgroupSetup::Legacy) => "v1",
        Ok(CgroupSetup::Unified) => "v2",
        Err(_) => "none",
    }
}

/// Where each hierarchy is mounted that a container may have a cgroup in: runtimes use named ones too.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(DEFAULT_CGROUP_ROOT);
    match get_cgroup_setup() {
        Ok(CgroupSetup::Unified) => vec![root],
        Ok(_) => fs::read_dir(root).into_iter().flatten().flatten().map(|e| e.path()).collect(),
        Err(_) => Vec::new(),
    }
}

/// Controllers that the limits need and the machine lacks.
pub(crate) fn missing() -> Vec<Controller> {
    let available = match get_cgroup_setup() {
        Ok(CgroupSetup::Unified) => {
            let path = Path::new(DEFAULT_CGROUP_ROOT).join("cgroup.controllers");
            fs::read_to_string(path).unwrap_or_default()
        }
        Ok(_) => {
            let kinds = [v1::ControllerType::Memory, v1::ControllerType::Pids, v1::ControllerType::Cpu];
            let kinds = kinds.iter().chain([&v1::ControllerType::CpuSet]);
            let there = kinds.filter(|k| v1::util::get_subsystem_mount_point(k).is_ok());
            there.map(|k| format!("{k} ")).collect()
        }
        Err(_) => String::new(),
    };
    let available: Vec<&str> = available.split_whitespace().collect();
    Controller::ALL.into_iter().filter(|needed| !available.contains(&needed.as_str())).collect()
}

/// The processors that a container with these limits may use: as many as its share needs, spread over
/// the machine by slot.
fn processors(limits: &Limits, slot: u32) -> Vec<usize> {
    let all = allowed_processors();
    let count = limits.visible_cores(all.len());
    let mut chosen: Vec<usize> = (0..count).map(|i| all[(slot as usize + i) % all.len()]).collect();
    chosen.sort_unstable();
    chosen
}

fn allowed_processors() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let all: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    if all.is_empty() { vec![0] } else { all }
}

/// The limits as the OCI specification writes them, without what the operator allowed to be missing.
pub(crate) fn resources(limits: &Limits, slot: u32, lacking: &[Controller]) -> Value {
    let Limits { memory_bytes, swap_bytes, cpu_millis, processes, open_files: _, disk_bytes: _ } = *limits;
    let lacks = |controller| lacking.contains(&controller);
    let mut all = json!({});
    if !lacks(Controller::Memory) {
        all["memory"] = json!({ "limit": memory_bytes, "swap": memory_bytes.saturating_add(swap_bytes) });
    }
    if !lacks(Controller::Pids) {
        all["pids"] = json!({ "limit": processes.saturating_add(OWN_PROCESSES) });
    }
    let mut cpu = json!({});
    if !lacks(Controller::Cpu) {
        cpu["period"] = json!(CPU_PERIOD);
        cpu["quota"] = json!((u64::from(cpu_millis) * CPU_PERIOD / 1000).max(1000));
    }
    if !lacks(Controller::Cpuset) {
        let list: Vec<String> = processors(limits, slot).iter().map(ToString::to_string).collect();
        cpu["cpus"] = json!(list.join(","));
    }
    if cpu != json!({}) {
        all["cpu"] = cpu;
    }
    all
}

fn manager(context: &Folders, container: ContainerId) -> Result<AnyCgroupManager> {
    let config = CgroupConfig {
        cgroup_path: context.cgroup(container),
        systemd_cgroup: false,
        container_name: container.to_string(),
    };
    create_cgroup_manager(config).map_err(|e| Error::internal(format!("cannot reach the cgroup: {e}")))
}

/// Changes the limits of a living container.
pub(crate) fn apply(context: &Context, container: ContainerId, limits: &Limits, slot: u32) -> Result<()> {
    let wanted = resources(limits, slot, &context.options.permit_missing);
    let resources: LinuxResources =
        serde_json::from_value(wanted).map_err(|e| Error::internal(format!("limits: {e}")))?;
    let options = ControllerOpt {
        resources: &resources,
        disable_oom_killer: false,
        oom_score_adj: None,
        freezer_state: None,
    };
    let refused = |e: &dyn std::fmt::Display| {
        Error::new(ErrorCode::Conflict, format!("the kernel refused the new limits: {e}")).at("limits")
    };
    manager(context, container)?.apply(&options).map_err(|e| refused(&e))?;
    // The container's sockets may hold more than the new limit already.
    limit_sockets(context, container, limits).map_err(|e| refused(&e))
}

/// What the buffers of a container's sockets may hold where they are limited apart: a quarter of its memory.
fn socket_bytes(limits: &Limits) -> u64 {
    (limits.memory_bytes / 4).min(MOST_SOCKET_BYTES)
}

/// Limits the buffers of a container's sockets. With v2 they are memory like all else; v1 counts them in a
/// file of their own, and only from when it has a limit. Where a kernel has no such file, [`notes`] says so.
pub(crate) fn limit_sockets(context: &Context, container: ContainerId, limits: &Limits) -> Result<()> {
    if matches!(setup()?, CgroupSetup::Unified)
        || context.options.permit_missing.contains(&Controller::Memory)
    {
        return Ok(());
    }
    let fault = |e: String| Error::internal(format!("cannot limit the memory of sockets: {e}"));
    let mount = v1::util::get_subsystem_mount_point(&v1::ControllerType::Memory);
    let cgroup = context.cgroup(container);
    let folder = mount.map_err(|e| fault(e.to_string()))?.join(cgroup.strip_prefix("/").unwrap_or(&cgroup));
    write_if_there(&folder.join(SOCKET_LIMIT), &socket_bytes(limits).to_string())
        .map_err(|e| fault(e.to_string()))
}

/// Writes to a file of the kernel's that not every kernel has. None is made where the folder is a plain one.
fn write_if_there(file: &Path, text: &str) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && file.parent().is_some_and(Path::exists) => Ok(()),
        opened => opened?.write_all(text.as_bytes()),
    }
}

/// What the operator should know of this machine's cgroups.
pub(crate) fn notes() -> Vec<String> {
    let v1 = matches!(get_cgroup_setup(), Ok(CgroupSetup::Hybrid | CgroupSetup::Legacy));
    let memory = v1.then(|| v1::util::get_subsystem_mount_point(&v1::ControllerType::Memory).ok()).flatten();
    memory.into_iter().filter_map(|root| uncounted_sockets(&root)).collect()
}

fn uncounted_sockets(memory: &Path) -> Option<String> {
    (!memory.join(SOCKET_LIMIT).exists()).then(|| {
        format!(
            "this kernel has no {SOCKET_LIMIT}: buffers of sockets are outside of a sandbox's memory limit, and bounded by its \
             open files alone; start the machine with cgroup v2"
        )
    })
}

/// The folder and name of the file that counts `oom_kill`, where the machine counts them.
fn oom_counter(setup: CgroupSetup, cgroup: &Path) -> Option<(PathBuf, &'static str)> {
    let relative = cgroup.strip_prefix("/").unwrap_or(cgroup);
    match setup {
        CgroupSetup::Unified => Some((Path::new(DEFAULT_CGROUP_ROOT).join(relative), "memory.events")),
        CgroupSetup::Hybrid | CgroupSetup::Legacy => {
            let mount = v1::util::get_subsystem_mount_point(&v1::ControllerType::Memory).ok()?;
            Some((mount.join(relative), "memory.oom_control"))
        }
    }
}

/// The file that counts `oom_kill`, opened before the container starts; its cgroup is made for that.
pub(crate) fn oom_file(context: &Context, container: ContainerId) -> Result<Option<fs::File>> {
    let Some((folder, name)) = oom_counter(setup()?, &context.cgroup(container)) else { return Ok(None) };
    fs::create_dir_all(&folder)
        .map_err(|e| Error::internal(format!("cannot make the memory cgroup: {e}")))?;
    match fs::File::open(folder.join(name)) {
        Ok(file) => Ok(Some(file)),
        Err(_) if context.options.permit_missing.contains(&Controller::Memory) => Ok(None),
        Err(e) => Err(Error::internal(format!("cannot open the memory cgroup: {e}"))),
    }
}

/// How many processes of a container the kernel killed for memory.
pub(crate) fn oom_kills(context: &Folders, container: ContainerId) -> u64 {
    let counter = get_cgroup_setup().ok().and_then(|s| oom_counter(s, &context.cgroup(container)));
    let text =
        counter.and_then(|(folder, name)| fs::read_to_string(folder.join(name)).ok()).unwrap_or_default();
    text.lines().find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

/// Makes the instance's own cgroup. With v2, controllers must be passed down every level above a
/// container's cgroup before its files exist; with v1, processors and memory nodes.
pub(crate) fn prepare(context: &Folders) -> io::Result<()> {
    match get_cgroup_setup() {
        Ok(CgroupSetup::Unified) => delegate(Path::new(DEFAULT_CGROUP_ROOT), &context.cgroups()),
        Ok(CgroupSetup::Hybrid | CgroupSetup::Legacy) => {
            match v1::util::get_subsystem_mount_point(&v1::ControllerType::CpuSet) {
                Ok(mount) => hand_down(&mount, &context.cgroups()),
                Err(_) => Ok(()),
            }
        }
        Err(_) => Ok(()),
    }
}

/// Copies the processors and memory nodes of a v1 hierarchy's root to every level below.
fn hand_down(root: &Path, cgroup: &Path) -> io::Result<()> {
    let mut folder = root.to_path_buf();
    for part in cgroup.iter().filter(|p| *p != "/") {
        let above = folder.clone();
        folder.push(part);
        make_folder(&folder, 0o755)?;
        for name in ["cpuset.cpus", "cpuset.mems"] {
            if fs::read_to_string(folder.join(name))?.trim().is_empty() {
                fs::write(folder.join(name), fs::read_to_string(above.join(name))?)?;
            }
        }
    }
    Ok(())
}

fn delegate(root: &Path, cgroup: &Path) -> io::Result<()> {
    let available = fs::read_to_string(root.join("cgroup.controllers"))?;
    let wanted: Vec<&str> = available
        .split_whitespace()
        .filter(|name| Controller::ALL.iter().any(|needed| needed.as_str() == *name))
        .collect();
    let mut folder = root.to_path_buf();
    let mut parts = cgroup.iter().filter(|p| *p != "/");
    loop {
        for controller in &wanted {
            fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
        let Some(part) = parts.next() else { return Ok(()) };
        folder.push(part);
        make_folder(&folder, 0o755)?;
    }
}

/// Kills what is left in a container's cgroup and removes it from every hierarchy.
pub(crate) fn remove(context: &Folders, container: ContainerId) -> Result<()> {
    let mut result = Ok(());
    let freezer = Freezer::find();
    // Killed processes leave their cgroup a moment later.
    for _ in 0..500 {
        kill(context, container, freezer.as_ref());
        result = try_remove(context, container);
        if result.is_ok() {
            return result;
        }
        sleep(Duration::from_millis(5));
    }
    result
}

/// Kills a frozen container's processes; does nothing where the container is not frozen.
pub(crate) fn end_frozen(context: &Folders, container: ContainerId) {
    let freezer = Freezer::find().filter(|freezer| freezer.is_frozen(&context.cgroup(container)));
    if freezer.is_some() {
        kill(context, container, freezer.as_ref());
    }
}

/// Kills the processes in a container's cgroup. On v1 a frozen process does not see SIGKILL before it is thawed,
/// so the cgroup is thawed after the kill, and none of its processes runs again.
fn kill(context: &Folders, container: ContainerId, freezer: Option<&Freezer>) {
    for pid in processes(context, container) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let cgroup = context.cgroup(container);
    if let Some(freezer) = freezer.filter(|freezer| freezer.is_frozen(&cgroup))
        && let Err(error) = freezer.thaw(&cgroup)
    {
        tracing::warn!(%container, %error, "cannot thaw the killed container, so its processes stay");
    }
}

fn folders(context: &Folders, container: ContainerId) -> Vec<PathBuf> {
    let cgroup = context.cgroup(container);
    let relative = cgroup.strip_prefix("/").unwrap_or(&cgroup);
    hierarchies().into_iter().map(|mount| mount.join(relative)).filter(|folder| folder.exists()).collect()
}

fn processes(context: &Folders, container: ContainerId) -> Vec<Pid> {
    let lists = folders(context, container).into_iter();
    let lists = lists.filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok());
    let mut all: Vec<i32> =
        lists.flat_map(|l| l.lines().filter_map(|p| p.parse().ok()).collect::<Vec<_>>()).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().filter_map(Pid::from_raw).collect()
}

/// The processes of a container, as the machine numbers them.
pub(crate) fn process_ids(context: &Folders, container: ContainerId) -> Vec<i32> {
    processes(context, container).into_iter().map(|pid| pid.as_raw_nonzero().get()).collect()
}

fn try_remove(context: &Folders, container: ContainerId) -> Result<()> {
    for folder in folders(context, container) {
        match fs::remove_dir(&folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::internal(format!("cannot remove the cgroup: {e}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Containers that have a cgroup below this instance's.
pub(crate) fn containers(context: &Folders) -> Vec<ContainerId> {
    let folder = context.cgroups();
    let relative = folder.strip_prefix("/").unwrap_or(&folder);
    let entries = hierarchies().into_iter().filter_map(|m| fs::read_dir(m.join(relative)).ok()).flatten();
    let mut found: Vec<ContainerId> =
        entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Removes the instance's own cgroup, and the one above it when no other instance has one. A cgroup that a killed
/// helper of a runtime made after its container was freed is removed with it.
pub(crate) fn remove_instance(context: &Folders) {
    for left in containers(context) {
        let _ = remove(context, left);
    }
    let folder = context.cgroups();
    for mount in hierarchies() {
        let path = mount.join(folder.strip_prefix("/").unwrap_or(&folder));
        let _ = fs::remove_dir(&path);
        let _ = path.parent().map(fs::remove_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_resources() {
        let limits = Limits { cpu_millis: 500, ..Limits::default() };
        let all = resources(&limits, 3, &[]);
        assert_eq!(all["memory"], json!({ "limit": 536_870_912u64, "swap": 536_870_912u64 }));
        assert_eq!(all["pids"]["limit"], 528);
        assert_eq!(all["cpu"]["quota"], 50_000);
        let cpus = all["cpu"]["cpus"].as_str().unwrap();
        assert!(cpus.parse::<usize>().is_ok(), "half a core sees one processor: {cpus}");
        serde_json::from_value::<LinuxResources>(all).unwrap();
    }

    #[test]
    fn what_may_be_missing_is_left_out() {
        let all = resources(&Limits::default(), 0, &Controller::ALL);
        assert_eq!(all, json!({}));
    }

    #[test]
    fn a_kernel_that_does_not_count_buffers_of_sockets_starts_sandboxes_and_says_so() {
        let memory = tempfile::tempdir().unwrap();
        let file = memory.path().join(SOCKET_LIMIT);
        write_if_there(&file, "1").unwrap();
        assert!(!file.exists());
        assert!(uncounted_sockets(memory.path()).is_some_and(|note| note.contains("cgroup v2")));
        fs::write(&file, "").unwrap();
        write_if_there(&file, "4096").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "4096");
        assert_eq!(uncounted_sockets(memory.path()), None);
        // A container without a cgroup is an error.
        assert!(write_if_there(&memory.path().join("none").join(SOCKET_LIMIT), "1").is_err());
    }

    /// A v2 hierarchy as files: the kernel's own answers were recorded on a v2 machine.
    #[test]
    fn v2_controllers_are_passed_down_every_level() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory hugetlb pids rdma misc\n")
            .unwrap();
        delegate(root.path(), Path::new("/atoll/0123")).unwrap();
        for level in ["", "atoll", "atoll/0123"] {
            let written = fs::read_to_string(root.path().join(level).join("cgroup.subtree_control")).unwrap();
            // A plain file keeps the last write only; the kernel adds them up.
            let is_needed = Controller::ALL.iter().any(|one| one.as_str() == written.trim_start_matches('+'));
            assert!(is_needed, "{level}: {written}");
        }
        delegate(root.path(), Path::new("/atoll/0123")).unwrap();
    }

    #[test]
    fn v1_processors_are_handed_down_once() {
        let root = tempfile::tempdir().unwrap();
        let level = root.path().join("atoll");
        fs::create_dir(&level).unwrap();
        for (folder, cpus) in [(root.path(), "0-3\n"), (&level, "\n")] {
            fs::write(folder.join("cpuset.cpus"), cpus).unwrap();
            fs::write(folder.join("cpuset.mems"), cpus.replace("0-3", "0")).unwrap();
        }
        hand_down(root.path(), Path::new("/atoll")).unwrap();
        assert_eq!(fs::read_to_string(level.join("cpuset.cpus")).unwrap(), "0-3\n");
        fs::write(level.join("cpuset.cpus"), "2\n").unwrap();
        hand_down(root.path(), Path::new("/atoll")).unwrap();
        assert_eq!(
            fs::read_to_string(level.join("cpuset.cpus")).unwrap(),
            "2\n",
            "an operator's choice stays"
        );
    }
}
