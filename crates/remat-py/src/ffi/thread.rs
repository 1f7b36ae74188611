//! The processor time of a thread, and its priority.

use std::time::Duration;

/// How much a thread that may wait is nicer than others: it gets a tenth of a core that another thread wants too.
const NICE: libc::c_int = 10;

/// Lets other threads go first, from now on, where cores are short.
pub fn give_way() {
    let nicer = niceness().max(NICE);
    // SAFETY: no memory is passed. On Linux 0 means the calling thread; a refusal changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nicer) };
}

/// How nice the calling thread is.
fn niceness() -> libc::c_int {
    // SAFETY: no memory is passed. On Linux 0 means the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Processor time of the calling thread so far.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a `timespec` of this frame, all that the call writes to. Where there is no such clock
    // the time stays 0.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_way_alone_and_its_time_passes_with_work() {
        let before = niceness();
        let nicer = std::thread::spawn(move || {
            give_way();
            let start = processor_time();
            while processor_time() == start {
                std::hint::spin_loop();
            }
            niceness()
        });
        assert_eq!(nicer.join().ok(), Some(NICE.max(before)));
        assert_eq!(niceness(), before);
    }
}
