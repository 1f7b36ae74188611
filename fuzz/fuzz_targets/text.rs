//! The check that all readers' targets share.

use remat_core::Dealloc;
use remat_sim::{Budget, Program, Setting, Status};
use remat_trace::{Format, Limits, TraceReader};
use std::io::Cursor;

const LIMITS: Limits = Limits {
    line: 1 << 16,
    unpacked: 1 << 20,
    tensors: 1 << 12,
    events: 1 << 16,
};

/// Reads a trace; simulates a whole one without a limit and at half its memory. Every refusal is one line of text.
pub fn read_and_simulate(bytes: &[u8], only: Option<Format>) {
    let reader = match TraceReader::new(Cursor::new(bytes.to_vec()), "input", LIMITS) {
        Ok(reader) => reader,
        Err(error) => return one_line(&error.to_string()),
    };
    if only.is_some_and(|format| format != reader.format()) {
        return;
    }
    let program = match Program::read(reader) {
        Ok(program) => program,
        Err(error) => return one_line(&error.to_string()),
    };
    let base = match program.base() {
        Ok(base) => base,
        Err(error) => return one_line(&error.to_string()),
    };
    for policy in ["dtr-eq", "dtr", "sar"] {
        let setting = Setting {
            policy: policy.parse().expect("a known name"),
            dealloc: Dealloc::Eager,
            budget: Budget::Ratio(0.5),
            thrash_limit: 1.0,
            seed: 0,
            ..Setting::default()
        };
        match program.run(&base, &setting) {
            Ok(outcome) if outcome.status == Status::Ok => {
                assert!(outcome.peak <= setting.budget.bytes(&base));
            }
            Ok(_) => {}
            Err(error) => one_line(&error.to_string()),
        }
    }
}

fn one_line(message: &str) {
    assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
}
