//! Many runs, on several threads.

use crate::drive::Unsound;
use crate::{Base, Outcome, Program, Setting};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// One run of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The step to replay.
    pub program: &'a Program,
    /// Its run without a limit.
    pub base: &'a Base,
    /// The setting of the run.
    pub setting: Setting,
}

/// Runs the jobs on `threads` threads and shows each outcome, in the order of the jobs, as soon as it and all before it
/// exist. The outcomes do not depend on the number of threads, except for their wall time. `show` can end the sweep
/// early.
///
/// ```
/// use remat_sim::{sweep, Budget, Job, Program, Setting};
/// use remat_trace::Event;
/// use std::ops::ControlFlow;
///
/// let program: Program = [Event::Constant { tensor: 0, bytes: 64, device: 0 }].iter().collect();
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
    show: impl FnMut(usize, Result<Outcome, Unsound>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let run = |index: usize| {
        jobs[index]
            .program
            .run(jobs[index].base, &jobs[index].setting)
    };
    in_order(jobs.len(), threads, run, show)
}

/// Does `count` pieces of work on `threads` threads and shows the results as [`sweep`] does.
pub fn in_order<T: Send, B>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
    mut show: impl FnMut(usize, T) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            let (next, work, sender) = (&next, &work, sender.clone());
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || sender.send((index, work(index))).is_err() {
                        break;
                    }
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
                    // Other threads finish the piece they work on; its result has no receiver.
                    next.store(count, Ordering::Relaxed);
                    return ControlFlow::Break(reason);
                }
                due += 1;
            }
        }
        ControlFlow::Continue(())
    })
}
