//! A schedule as a list of what happens.

use super::step_plan::Action;
use crate::step::model::step::{NONE, OpKind};
use crate::step::timeline::moment::Moment;
use crate::step::timeline::schedule::Schedule;

/// The runs and frees of a schedule, in order.
pub(crate) fn actions(schedule: &Schedule<'_>) -> Vec<Action> {
    let ops = schedule.step.ops.len() as u32;
    let mut writer = Writer {
        schedule,
        defined: vec![Moment::END; ops as usize],
        actions: Vec::new(),
    };
    for slot in 0..ops {
        for run in schedule.runs_in(slot) {
            writer.run(run);
        }
    }
    writer.actions
}

struct Writer<'a> {
    schedule: &'a Schedule<'a>,
    /// The latest run of each op that makes views.
    defined: Vec<Moment>,
    actions: Vec<Action>,
}

impl Writer<'_> {
    fn run(&mut self, run: Moment) {
        let step = self.schedule.step;
        let op = run.op() as usize;
        for &view in step.views.of(op) {
            self.define(view, run);
        }
        let first = run == Moment::first(run.op());
        let writes = step.makes.of(op).iter();
        let writes = writes
            .filter(|&&storage| step.old_block(storage).is_some())
            .count();
        let consumes = writes > 0 && self.schedule.consumes(run);
        let number = step.ops[op].number;
        if number != NONE {
            self.actions.push(if consumes && !first {
                Action::RunInPlace(number)
            } else {
                Action::Run(number)
            });
        }
        if first {
            self.defined[op] = run;
        }
        // What the last op reads is what stays.
        if !(first && run.slot() + 1 == step.ops.len() as u32) {
            self.free(run, consumes);
        }
    }

    /// Runs the op of a view again, if it has not run since its storage was last made.
    fn define(&mut self, view: u32, run: Moment) {
        let step = self.schedule.step;
        let op = step.ops[view as usize];
        let OpKind::View(storage) = op.kind else {
            return;
        };
        let Some(life) = self.schedule.lives(storage).at(run) else {
            return;
        };
        let defined = self.defined[view as usize];
        if defined != Moment::END && defined > life.start {
            return;
        }
        for &base in step.views.of(view as usize) {
            self.define(base, run);
        }
        self.defined[view as usize] = run;
        self.actions.push(Action::Run(op.number));
    }

    /// Frees what a run reads for the last time, and what it makes for nobody.
    fn free(&mut self, run: Moment, consumes: bool) {
        let step = self.schedule.step;
        let op = run.op() as usize;
        let made = step.makes.of(op);
        let taken =
            |storage: u32| consumes && made.iter().any(|&new| step.old_block(new) == Some(storage));
        for &storage in step.reads.of(op) {
            let life = self.schedule.lives(storage).at(run);
            if life.is_some_and(|life| life.end == run) && !taken(storage) {
                self.actions.push(Action::Free(storage));
            }
        }
        for &storage in made {
            // What stays was there before, and only its copy goes.
            let lives = self.schedule.lives(storage);
            let used = lives.starts_at(run) || lives.at(run).is_some();
            if !used && !step.storages[storage as usize].constant {
                self.actions.push(Action::Free(storage));
            }
        }
    }
}
