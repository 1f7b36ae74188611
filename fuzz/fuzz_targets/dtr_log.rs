//! Any text as a DTR log.
#![no_main]

#[path = "text.rs"]
mod text;

use remat_trace::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| text::read_and_simulate(bytes, Some(Format::Dtr)));
