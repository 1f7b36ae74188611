//! Any text as a trace, a line with `plan`, and any text as a plan of it. Refusals are one line of text; a plan that
//! the planner makes is valid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remat_core::Bytes;
use remat_plan::step::{verify, Planner, Search, Step, StepPlan};
use remat_trace::{Event, Limits, TraceReader};
use std::io::Cursor;
use std::ops::ControlFlow;

const LIMITS: Limits = Limits {
    line: 1 << 12,
    unpacked: 1 << 16,
    tensors: 1 << 8,
    events: 1 << 8,
};

const BETWEEN: &[u8] = b"\nplan\n";

fuzz_target!(|bytes: &[u8]| {
    let between = bytes
        .windows(BETWEEN.len())
        .position(|window| window == BETWEEN);
    let (trace, plan) = match between {
        Some(at) => (&bytes[..=at], &bytes[at + BETWEEN.len()..]),
        None => (bytes, &[][..]),
    };
    let Ok(reader) = TraceReader::new(Cursor::new(trace.to_vec()), "input", LIMITS) else {
        return;
    };
    let Ok(events) = reader.collect::<Result<Vec<Event>, _>>() else {
        return;
    };
    if let Ok(plan) = serde_json::from_slice::<StepPlan>(plan) {
        if let Err(fault) = verify(&events, &plan) {
            one_line(&fault.to_string());
        }
    }
    let step = match Step::from_events(&events) {
        Ok(step) => step,
        Err(error) => return one_line(&error.to_string()),
    };
    let budget = Bytes(step.peak_bytes() / 3 * 2);
    let search = Search {
        iterations: Some(3),
        ..Search::default()
    };
    let watch = &mut |_: &_| ControlFlow::Continue(());
    match Planner::new(&step).plan(budget, &search, watch) {
        Ok(plan) => {
            let verified = verify(&events, &plan).expect("a valid plan");
            assert!(verified.peak_bytes <= budget.0);
        }
        Err(error) => one_line(&error.to_string()),
    }
});

fn one_line(message: &str) {
    assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
}
