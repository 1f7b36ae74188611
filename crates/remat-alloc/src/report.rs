//! One line on stderr, written without allocating: an allocator may not call itself to complain.

use std::ffi::c_char;
use std::fmt::{self, Write};

/// Longest text; what is beyond is cut.
const WIDTH: usize = 400;

/// A text in place.
pub struct Text {
    /// Ends in zeros: `length` is below their number.
    bytes: [u8; WIDTH + 1],
    length: usize,
}

impl Text {
    /// What the arguments say, cut to its place.
    pub fn of(what: fmt::Arguments) -> Text {
        let mut text = Text {
            bytes: [0; WIDTH + 1],
            length: 0,
        };
        // Writing here never fails; a value whose own formatting fails has its text cut there.
        let _ = text.write_fmt(what);
        text
    }

    /// The text as C takes it, as long as this lives.
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

/// Writes `remat: WHAT` and a line end to stderr.
pub fn line(what: fmt::Arguments) {
    let text = Text::of(format_args!("remat: {what}\n"));
    // SAFETY: the buffer is alive and `length` bytes of it are text.
    unsafe { libc::write(libc::STDERR_FILENO, text.bytes.as_ptr().cast(), text.length) };
}

/// Writes the line and ends the process.
#[cfg(feature = "checker")]
pub fn fatal(what: fmt::Arguments) -> ! {
    line(what);
    // SAFETY: `abort` takes nothing and has no precondition.
    unsafe { libc::abort() }
}
