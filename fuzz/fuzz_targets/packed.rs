//! Any bytes: gzip, zstd or plain.
#![no_main]

#[path = "text.rs"]
mod text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| text::read_and_simulate(bytes, None));
