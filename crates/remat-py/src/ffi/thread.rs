//! The processor time of a thread, what a call costs by it, and the priority of a thread.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// How nice a thread is that may wait: it gets a tenth of a core that another thread wants too.
pub const NICE: libc::c_int = 10;
/// A twenty-fifth.
pub const NICER: libc::c_int = 15;

/// Lets other threads go first, from now on, where cores are short; no less than before.
pub fn give_way(nice: libc::c_int) {
    let nicer = niceness().max(nice);
    // SAFETY: no memory is passed. On Linux 0 means the calling thread; a refusal changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nicer) };
}

/// Has the thread run where no other would, and stop at once where another has to, from now on. There is no way back.
/// Where the system does not allow that, the thread gives way more than before.
pub fn take_what_is_spare() {
    #[cfg(target_os = "linux")]
    {
        let priority = libc::sched_param { sched_priority: 0 };
        // SAFETY: the pointer is to a `sched_param` of this frame, which is read. 0 means the calling thread; a refusal
        // changes nothing.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &priority) } == 0 {
            return;
        }
    }
    give_way(NICER);
}

/// How nice the calling thread is.
fn niceness() -> libc::c_int {
    // SAFETY: no memory is passed. On Linux 0 means the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Processor time of the calling thread so far.
pub fn processor_time() -> Duration {
    // Where there is no such clock the time stays 0.
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// The time of a clock; `None` where there is no such clock.
fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a `timespec` of this frame, all that the call writes to.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) } != 0;
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Measures the cost of a call on the CPU, without the time for which other programs keep it from the processor.
pub struct CallClock {
    since: Instant,
    thread: Option<Duration>,
    process: Option<Duration>,
}

impl CallClock {
    /// Measures from now on.
    pub fn start() -> CallClock {
        CallClock {
            process: read(libc::CLOCK_PROCESS_CPUTIME_ID),
            thread: read(libc::CLOCK_THREAD_CPUTIME_ID),
            since: Instant::now(),
        }
    }

    /// The cost of what the calling thread did since then, in nanoseconds.
    pub fn nanoseconds(&self) -> u64 {
        let wall = self.since.elapsed();
        let passed = |clock, before: Option<Duration>| Some(read(clock)?.saturating_sub(before?));
        let thread = passed(libc::CLOCK_THREAD_CPUTIME_ID, self.thread);
        let process = passed(libc::CLOCK_PROCESS_CPUTIME_ID, self.process);
        let cost = match (thread, process) {
            (Some(thread), Some(process)) => cost_of(wall, thread, process, cores()),
            _ => wall,
        };
        u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The cost of a call by the clock on the wall and by processor time, that of the calling thread and of all threads.
///
/// Where torch computes on several threads, the calling one takes part, and computes for as long as any other. Where an
/// op leaves its work to threads of its own, and the calling one waits, these are taken to fill the cores.
fn cost_of(wall: Duration, thread: Duration, process: Duration, cores: u32) -> Duration {
    thread.max(process / cores).min(wall)
}

/// Processors that this process may use.
fn cores() -> u32 {
    static CORES: OnceLock<u32> = OnceLock::new();
    *CORES.get_or_init(|| {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        u32::try_from(cores).unwrap_or(u32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_way_alone_and_its_time_passes_with_work() {
        let before = niceness();
        let nicer = std::thread::spawn(move || {
            give_way(NICE);
            let start = processor_time();
            while processor_time() == start {
                std::hint::spin_loop();
            }
            niceness()
        });
        assert_eq!(nicer.join().ok(), Some(NICE.max(before)));
        assert_eq!(niceness(), before);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_takes_what_is_spare_alone() {
        // SAFETY: no memory is passed. 0 means the calling thread.
        let class = || unsafe { libc::sched_getscheduler(0) };
        let before = class();
        let spare = std::thread::spawn(move || {
            take_what_is_spare();
            class()
        });
        assert_eq!(spare.join().ok(), Some(libc::SCHED_IDLE));
        assert_eq!(class(), before);
    }

    #[test]
    fn waiting_for_the_processor_costs_nothing() {
        let ms = Duration::from_millis;
        let quiet = [
            cost_of(ms(4), ms(4), ms(4), 2),
            cost_of(ms(4), ms(4), ms(8), 2),
        ];
        assert_eq!(quiet, [ms(4); 2], "on one thread, and on two");
        assert_eq!(
            cost_of(ms(4), ms(0), ms(8), 2),
            ms(4),
            "on threads of its own"
        );
        let busy = [
            cost_of(ms(30), ms(4), ms(4), 2),
            cost_of(ms(30), ms(4), ms(8), 2),
            cost_of(ms(30), ms(0), ms(8), 2),
        ];
        assert_eq!(busy, [ms(4); 3], "beside another program");
        assert_eq!(cost_of(ms(1), ms(1), ms(9), 2), ms(1), "beside own threads");
    }
}
