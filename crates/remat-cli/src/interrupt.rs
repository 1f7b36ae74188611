//! Ctrl-C in the middle of long work: the terminal's progress line is cleared, and the process ends as the signal
//! says.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::thread::{self, JoinHandle};

/// To the start of the line, and clear it.
const CLEAR: &[u8] = b"\r\x1b[2K";

/// As long as it lives, SIGINT and SIGTERM end the process at once, also inside a Python interpreter, which would only
/// take note of them. Signals that the process was started to ignore (`nohup`, `&` in a script) stay ignored.
pub(crate) struct Watch {
    waiting: Option<(Handle, JoinHandle<()>)>,
}

impl Watch {
    /// Starts watching; where that cannot be done, signals do what they did.
    pub(crate) fn start() -> Watch {
        let ignored = ignored();
        let wanted = [SIGINT, SIGTERM];
        let wanted = wanted
            .iter()
            .filter(|&&signal| ignored >> (signal - 1) & 1 == 0);
        let waiting = Signals::new(wanted).and_then(|mut signals| {
            let handle = signals.handle();
            let wait = move || signals.forever().for_each(end);
            let thread = thread::Builder::new().spawn(wait)?;
            Ok((handle, thread))
        });
        Watch {
            waiting: waiting.ok(),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.waiting.take() {
            handle.close();
            let _ = thread.join();
        }
    }
}

fn end(signal: i32) {
    // Held until the end, so that no progress is drawn again.
    let mut lock = io::stderr().lock();
    if lock.is_terminal() {
        let _ = lock.write_all(CLEAR);
    }
    let _ = emulate_default_handler(signal);
}

/// The signals that the process ignores, the first in the lowest bit.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
