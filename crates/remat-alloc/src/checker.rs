//! The checker build: every operation is checked against a ledger that is kept apart from the pool.

use std::collections::BTreeMap;

use remat_core::pool::{Pool, PoolError};

use crate::report;

/// The byte that fills freed and unused memory. Read as a number of any float type, it is no number.
pub const POISON: u8 = 0xff;

/// A block that was taken.
#[derive(Clone, Copy)]
pub struct Taken {
    /// Its address in memory.
    pub address: u64,
    /// Its address in the pool.
    pub offset: u64,
    /// Its size as asked for.
    pub bytes: u64,
    /// The alignment asked for.
    pub alignment: u64,
}

/// The taken blocks: offset and bytes as asked for.
#[derive(Default)]
pub struct Ledger {
    live: BTreeMap<u64, u64>,
}

impl Ledger {
    /// Checks a block that was taken: it is aligned, within the arena, and overlaps no other.
    pub fn taken(&mut self, pool: &Pool, block: Taken) {
        let Taken {
            address,
            offset,
            bytes,
            alignment,
        } = block;
        let end = offset + bytes.max(1);
        if end > pool.capacity() || address % alignment != 0 {
            report::fatal(format_args!(
                "checker: the block of {bytes} bytes at {offset:#x} is outside or not aligned to {alignment}"
            ));
        }
        if let Some((other, length)) = self.live.range(..end).next_back() {
            if other + length.max(&1) > offset {
                report::fatal(format_args!(
                    "checker: {bytes} bytes at {offset:#x} overlap {length} live bytes at {other:#x}"
                ));
            }
        }
        self.live.insert(offset, bytes);
        Self::sound(pool);
    }

    /// Checks a block that was given back: a live one was accepted, any other refused.
    pub fn given(&mut self, pool: &Pool, offset: u64, outcome: Result<u64, PoolError>) {
        match (self.live.remove(&offset), outcome) {
            (Some(bytes), Ok(given)) if given >= bytes => Self::sound(pool),
            (None, Err(wrong)) => report::fatal(format_args!("checker: wrong free: {wrong}")),
            (live, outcome) => report::fatal(format_args!(
                "checker: free of {offset:#x}: live {live:?}, the pool says {outcome:?}"
            )),
        }
    }

    fn sound(pool: &Pool) {
        if let Err(broken) = pool.check() {
            report::fatal(format_args!("checker: {broken}"));
        }
    }
}

/// Fills memory with the poison.
///
/// # Safety
/// `bytes` bytes from `start` on are writable, and no other thread uses them.
pub unsafe fn poison(start: *mut u8, bytes: usize) {
    // SAFETY: the caller promises so many writable bytes that no other thread uses.
    unsafe { start.write_bytes(POISON, bytes) }
}

/// Ends the process if memory that was poisoned has been written to since.
///
/// # Safety
/// `bytes` bytes from `start` on are readable, and no thread writes to them meanwhile.
pub unsafe fn verify_poison(start: *const u8, bytes: usize) {
    // SAFETY: the caller promises so many readable bytes that no thread writes to meanwhile.
    let memory = unsafe { std::slice::from_raw_parts(start, bytes) };
    if let Some(written) = memory.iter().position(|&byte| byte != POISON) {
        report::fatal(format_args!(
            "checker: free memory at {start:p} + {written} was written to after its block was freed"
        ));
    }
}
