//! Ctrl-C in the middle of long work: the terminal's progress line is cleared, and the process ends as the signal
//! says; or, where a command asks for it, the work is told to come to its end.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};

/// To the start of the line, and clear it.
const CLEAR: &[u8] = b"\r\x1b[2K";

/// As long as it lives, SIGINT, SIGTERM and SIGHUP end the process at once, also inside a Python interpreter, which
/// would only take note of them. Signals that the process was started to ignore (`nohup`, `&` in a script) stay
/// ignored.
pub(crate) struct Watch {
    answer: Arc<AtomicU8>,
    temporary: Option<PathBuf>,
    waiting: Option<(Handle, JoinHandle<()>)>,
}

impl Watch {
    /// Starts watching; where that cannot be done, signals do what they did. The temporary folder is removed before a
    /// signal ends the process.
    pub(crate) fn start(temporary: Option<&Path>) -> Watch {
        let ignored = ignored();
        let wanted = [SIGINT, SIGTERM, SIGHUP];
        let wanted = wanted
            .iter()
            .filter(|&&signal| ignored >> (signal - 1) & 1 == 0);
        let answer = Arc::new(AtomicU8::new(END));
        let temporary = temporary.map(Path::to_owned);
        let (told, gone) = (Arc::clone(&answer), temporary.clone());
        let waiting = Signals::new(wanted).and_then(|mut signals| {
            let handle = signals.handle();
            let receive = move |signal| receive(signal, &told, gone.as_deref());
            let wait = move || signals.forever().for_each(receive);
            let thread = thread::Builder::new().spawn(wait)?;
            Ok((handle, thread))
        });
        Watch {
            answer,
            temporary,
            waiting: waiting.ok(),
        }
    }

    /// From now on the first Ctrl-C is only noted, for work that can come to its end with what it has.
    pub(crate) fn note_first(&self) -> Noted<'_> {
        self.answer.store(NOTE, Ordering::Relaxed);
        Noted(self)
    }
}

/// The answer to the next SIGINT: the process ends, or takes note once.
const END: u8 = 0;
const NOTE: u8 = 1;
/// The next SIGINT ends the process; one was noted.
const NOTED: u8 = 2;

/// As long as it lives, Ctrl-C is noted once.
pub(crate) struct Noted<'a>(&'a Watch);

impl Noted<'_> {
    /// Whether Ctrl-C was pressed.
    pub(crate) fn came(&self) -> bool {
        self.0.answer.load(Ordering::Relaxed) == NOTED
    }

    /// Ends the process as by a Ctrl-C that was noted, if one was.
    pub(crate) fn obey(&self) {
        if self.came() {
            end(SIGINT, self.0.temporary.as_deref());
        }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.answer.store(END, Ordering::Relaxed);
    }
}

fn receive(signal: i32, answer: &AtomicU8, temporary: Option<&Path>) {
    let note = || answer.compare_exchange(NOTE, NOTED, Ordering::Relaxed, Ordering::Relaxed);
    if signal != SIGINT || note().is_err() {
        end(signal, temporary);
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

fn end(signal: i32, temporary: Option<&Path>) {
    // Held until the end, so that no progress is drawn again.
    let mut lock = io::stderr().lock();
    if lock.is_terminal() {
        let _ = lock.write_all(CLEAR);
    }
    if let Some(folder) = temporary {
        let _ = fs::remove_dir_all(folder);
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
