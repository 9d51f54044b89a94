//! The threads that do file work. The first is started with PID 1 and never ends, so that files can be reached in
//! a sandbox that has no room for another thread. More are started when there is work, where there is room for
//! them, and end soon after.
//!
//! The other resources that could be used up are reserved too: descriptors (`reserve`), and the cgroup allows 16
//! processes more than the user's rlimit.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// How long an added thread waits for work, so that an idle sandbox has only the first.
const KEEP: Duration = Duration::from_secs(2);
const MOST: usize = 4;
const STACK: usize = 256 * 1024;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(crate) struct Workers(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    waiting: usize,
}

impl Workers {
    /// Starts the first thread.
    pub(crate) fn start() -> io::Result<Self> {
        let queue = Mutex::new(Queue { threads: 1, ..Queue::default() });
        let workers = Self(Arc::new(Shared { queue, work: Condvar::new() }));
        workers.spawn(None)?;
        Ok(workers)
    }

    fn spawn(&self, keep: Option<Duration>) -> io::Result<()> {
        let shared = self.0.clone();
        let builder = thread::Builder::new().name("atoll-files".into()).stack_size(STACK);
        builder.spawn(move || shared.work(keep)).map(drop)
    }

    /// Queues a job.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.queue();
        queue.jobs.push_back(Box::new(job));
        let more = queue.waiting < queue.jobs.len() && queue.threads < MOST;
        queue.threads += usize::from(more);
        drop(queue);
        self.0.work.notify_one();
        // Without room for another thread the job waits for one that runs.
        if more && self.spawn(Some(KEEP)).is_err() {
            self.0.queue().threads -= 1;
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, keep: Option<Duration>) {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.queue();
                continue;
            }
            queue.waiting += 1;
            let idle = keep.unwrap_or(Duration::MAX);
            let (back, waited) = self.work.wait_timeout(queue, idle).unwrap_or_else(PoisonError::into_inner);
            queue = back;
            queue.waiting -= 1;
            if waited.timed_out() && keep.is_some() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}
