//! Many runs, on several threads.

use crate::{Base, Outcome, Program, Setting, Unsound};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// One run of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// What is replayed.
    pub program: &'a Program,
    /// Its run without a limit.
    pub base: &'a Base,
    /// How.
    pub setting: Setting,
}

/// Runs the jobs on so many threads and shows each outcome, in the order of the jobs, as soon as it and all before it are
/// there. What is shown does not depend on the number of threads (the wall time apart). Ends early when `show` says so.
///
/// ```
/// use remat_sim::{sweep, Budget, Job, Program, Setting};
/// use remat_trace::Event;
/// use std::ops::ControlFlow;
///
/// let program: Program = [Event::Constant { tensor: 0, bytes: 64, pool: 0 }].iter().collect();
/// let base = program.base()?;
/// let jobs = [0.5, 1.0].map(|ratio| Job {
///     program: &program,
///     base: &base,
///     setting: Setting {
///         policy: Default::default(),
///         dealloc: Default::default(),
///         budget: Budget::Ratio(ratio),
///         thrash_limit: 1.0,
///         seed: 0,
///         ..Setting::default()
///     },
/// });
/// let mut shown = Vec::new();
/// let ended = sweep(&jobs, 2, |index, outcome| {
///     shown.push((index, outcome.map(|outcome| outcome.status.to_string())));
///     ControlFlow::<()>::Continue(())
/// });
/// assert_eq!(shown, [(0, Ok("oom".into())), (1, Ok("ok".into()))]);
/// assert!(ended.is_continue());
/// # Ok::<(), remat_sim::Unsound>(())
/// ```
pub fn sweep<B>(
    jobs: &[Job<'_>],
    threads: usize,
    mut show: impl FnMut(usize, Result<Outcome, Unsound>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else { break };
                let outcome = job.program.run(job.base, &job.setting);
                if sender.send((index, outcome)).is_err() {
                    break;
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut due = 0;
        for (index, outcome) in receiver {
            early.insert(index, outcome);
            while let Some(outcome) = early.remove(&due) {
                if let ControlFlow::Break(reason) = show(due, outcome) {
                    // Whoever still runs finishes that run and finds nobody to tell.
                    next.store(jobs.len(), Ordering::Relaxed);
                    return ControlFlow::Break(reason);
                }
                due += 1;
            }
        }
        ControlFlow::Continue(())
    })
}
