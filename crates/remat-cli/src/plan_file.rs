//! The files of planning: chains, joint graphs and plans, as text.

use crate::failure::Failure;
use crate::standard_streams::is_standard;
use remat_core::{Alignment, Bytes};
use remat_plan::chain::Chain;
use remat_plan::cut::JointGraph;
use remat_plan::step::{Action, StepPlan};
use remat_sim::{Plan, PlanAction, PlannedArena};
use remat_trace::Destination;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::str::FromStr;

/// The beginning of UTF-8 text that some editors and shells of other systems write.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a chain.
pub(crate) fn chain(path: &Path) -> Result<Chain, Failure> {
    parsed(path)
}

/// Reads a joint graph.
pub(crate) fn graph(path: &Path) -> Result<JointGraph, Failure> {
    parsed(path)
}

fn parsed<T: FromStr<Err: Display>>(path: &Path) -> Result<T, Failure> {
    let parsed = text(path)?.parse();
    parsed.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}

/// Reads a plan of a recorded step.
pub(crate) fn step_plan(path: &Path) -> Result<StepPlan, Failure> {
    plan(path, "`remat plan step --out` writes")
}

/// Reads a plan. `maker` is the command that makes such plans.
pub(crate) fn plan<T: DeserializeOwned>(path: &Path, maker: &str) -> Result<T, Failure> {
    serde_json::from_str(&text(path)?).map_err(|error| {
        let place = path.display();
        Failure::Input(format!("{place}: no plan: {error}; wanted is what {maker}"))
    })
}

/// A plan of a recorded step as the engine is told it, with its addresses if it has them.
pub(crate) fn told(plan: &StepPlan) -> Plan {
    let actions = plan.steps.iter().map(|action| match *action {
        Action::Run(op) => PlanAction::Run(op),
        Action::RunInPlace(op) => PlanAction::RunInPlace(op),
        Action::Free(storage) => PlanAction::Drop(storage),
    });
    let arena = plan.addresses.as_ref().and_then(|addresses| {
        Some(PlannedArena {
            bytes: Bytes(addresses.bytes),
            alignment: Alignment::new(addresses.alignment).ok()?,
            addresses: addresses.offsets.clone(),
        })
    });
    Plan {
        budget: Bytes(plan.budget_bytes),
        actions: actions.collect(),
        arena,
    }
}

/// Writes a plan of a recorded step, `-` to standard output. Until a file is complete it is called `NAME.partial`.
pub(crate) fn write_step_plan(path: &Path, plan: &StepPlan) -> Result<(), Failure> {
    let text = serde_json::to_string(plan).map_err(|error| Failure::Input(error.to_string()))?;
    let line = text + "\n";
    if is_standard(path) {
        let written = io::stdout().write_all(line.as_bytes());
        return written.map_err(Failure::output);
    }
    let written = Destination::of(path).and_then(|place| place.write(line.as_bytes()));
    written.map_err(|error| Failure::write(&path.display().to_string(), error))
}

/// Whether a file can be written, before it is known what to write. One that is there stays as it is.
pub(crate) fn check_writable(path: &Path) -> Result<(), Failure> {
    if is_standard(path) {
        return Ok(());
    }
    let checked = Destination::of(path).and_then(|place| place.check());
    checked.map_err(|error| Failure::write(&path.display().to_string(), error))
}

/// Whether two paths lead to one regular file.
pub(crate) fn are_one(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other && one.is_file(),
        _ => false,
    }
}

/// The text of a file, or of standard input for `-`, without the byte order mark that some editors begin it with.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    const LONGEST: u64 = 256 << 20;
    let place = path.display();
    let unreadable = |error: io::Error| {
        Failure::Input(match error.kind() {
            io::ErrorKind::IsADirectory => format!("{place}: is a folder; name a file"),
            _ => format!(
                "{place}: cannot be read: {error}; check the path and that it is UTF-8 text"
            ),
        })
    };
    let mut text = String::new();
    let read = if is_standard(path) {
        io::stdin()
            .lock()
            .take(LONGEST + 1)
            .read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
    };
    if read.map_err(unreadable)? as u64 > LONGEST {
        let most = Bytes(LONGEST);
        return Err(Failure::Input(format!(
            "{place}: longer than {most}; chains and plans are not that long"
        )));
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    Ok(text)
}
