//! One line on stderr, written without allocating: an allocator may not call itself to complain.

use std::ffi::c_char;
use std::fmt::{self, Write};

/// Length of the longest text in bytes; longer ones are cut.
const WIDTH: usize = 400;

/// A text in place.
pub struct Text {
    /// Ends in zeros: `length` is below their number.
    bytes: [u8; WIDTH + 1],
    length: usize,
}

impl Text {
    /// The formatted arguments, cut to the longest text.
    pub fn of(arguments: fmt::Arguments) -> Text {
        let mut text = Text {
            bytes: [0; WIDTH + 1],
            length: 0,
        };
        // Writing here never fails; a value whose own formatting fails has its text cut there.
        let _ = text.write_fmt(arguments);
        text
    }

    /// The text as C takes it; valid as long as this lives.
    pub fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let kept = part.len().min(WIDTH - self.length);
        self.bytes[self.length..self.length + kept].copy_from_slice(&part.as_bytes()[..kept]);
        self.length += kept;
        Ok(())
    }
}

/// Writes `remat: MESSAGE` and a line end to stderr.
pub fn line(message: fmt::Arguments) {
    let text = Text::of(format_args!("remat: {message}\n"));
    // SAFETY: the buffer is alive and holds at least `length` bytes.
    unsafe { libc::write(libc::STDERR_FILENO, text.bytes.as_ptr().cast(), text.length) };
}

/// Writes the line and ends the process.
#[cfg(feature = "checker")]
pub fn fatal(message: fmt::Arguments) -> ! {
    line(message);
    // SAFETY: `abort` takes nothing and has no precondition.
    unsafe { libc::abort() }
}
