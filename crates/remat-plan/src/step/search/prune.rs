//! Runs that a schedule does without.

use crate::step::timeline::moment::Moment;
use crate::step::timeline::schedule::Schedule;

/// Takes out those of some runs without which the schedule still fits, dearest first, and the runs that only served
/// them, until it is told to stop.
pub(crate) fn prune(
    schedule: &mut Schedule<'_>,
    budget: u64,
    mut runs: Vec<(u32, u32)>,
    mut goes_on: impl FnMut() -> bool,
) {
    let cost = |&(op, _): &(u32, u32)| schedule.step.ops[op as usize].cost;
    runs.sort_by_key(|run| (std::cmp::Reverse(cost(run)), *run));
    for (op, slot) in runs {
        if !schedule.has(op, slot) {
            continue;
        }
        if !goes_on() {
            return;
        }
        let (mark, before) = (schedule.mark(), schedule.again_ns());
        take_out(schedule, op, slot);
        if !schedule.is_valid() || schedule.again_ns() > before || schedule.exceeds(budget) {
            schedule.undo_to(mark);
        }
    }
}

/// Every run of an op that runs again.
pub(crate) fn all_runs(schedule: &Schedule<'_>) -> Vec<(u32, u32)> {
    let within = |slot| schedule.runs.within(slot).iter().map(move |&op| (op, slot));
    (0..schedule.runs.slots()).flat_map(within).collect()
}

/// Takes out a run, and the runs whose results nothing reads any more.
pub(crate) fn take_out(schedule: &mut Schedule<'_>, op: u32, slot: u32) {
    let mut out = vec![(op, slot)];
    let step = schedule.step;
    while let Some((op, slot)) = out.pop() {
        let run = Moment::new(slot, op);
        // The runs that made what this one reads.
        let read = step.reads.of(op as usize).iter();
        let makers: Vec<Moment> = read
            .filter_map(|&storage| Some(schedule.lives(storage).at(run)?.start))
            .collect();
        schedule.remove(op, slot);
        for maker in makers {
            if maker != Moment::first(maker.op()) && !is_useful(schedule, maker) {
                out.push((maker.op(), maker.slot()));
            }
        }
    }
}

/// Whether anything reads what a run makes.
pub(crate) fn is_useful(schedule: &Schedule<'_>, run: Moment) -> bool {
    let made = schedule.step.makes.of(run.op() as usize).iter();
    made.copied()
        .any(|storage| schedule.lives(storage).starts_at(run))
}
