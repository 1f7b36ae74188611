//! All schedules of the planner's own form: each set of runs again is one.
//!
//! An op runs again right before the first run of another op, or before a place at which the recording asks for
//! something. Runs again at one place are in program order. A read is served by the latest run that makes the value; a
//! value is in memory from a run that makes it to the last read before the next run that does. Views are made when they
//! are read, once for each time that their storage comes into memory.

use crate::numbered::{Made, Numbered, Slot};
use crate::recordings::unclaimed;
use remat_plan::step::{Action, Fault, verify};
use remat_trace::Event;

/// The most bytes and the runs again of each schedule that is valid, in nanoseconds, those that others beat left out.
pub(crate) struct Frontier(pub(crate) Vec<(u64, u64)>);

impl Frontier {
    /// The frontier of all sets of runs; `None` if there are more than so many.
    pub(crate) fn of(events: &[Event], most: usize) -> Option<Frontier> {
        let step = Numbered::of(events);
        let form = Form::of(&step);
        let runs = form.runs();
        if runs.len() >= usize::BITS as usize || 1 << runs.len() > most {
            return None;
        }
        let mut found = Vec::new();
        for set in 0..1usize << runs.len() {
            let chosen = (0..runs.len()).filter(|run| set >> run & 1 == 1);
            let chosen: Vec<(usize, usize)> = chosen.map(|run| runs[run]).collect();
            let actions = form.actions(&chosen);
            let again = form.again_ns(&actions);
            // The verifier compares the peak once it has found all actions valid.
            if let Err(Fault::Claim {
                field, found: peak, ..
            }) = verify(events, &unclaimed(events, actions))
            {
                assert_eq!(field, "peak_bytes");
                found.push((u64::try_from(peak).expect("small numbers"), again));
            }
        }
        found.sort_unstable();
        let mut frontier: Vec<(u64, u64)> = Vec::new();
        for (peak, again) in found {
            if frontier.last().is_none_or(|&(_, least)| again < least) {
                frontier.push((peak, again));
            }
        }
        Some(Frontier(frontier))
    }

    /// The fewest nanoseconds of runs again within a budget.
    pub(crate) fn within(&self, budget: u64) -> Option<u64> {
        let fitting = self.0.iter().take_while(|&&(peak, _)| peak <= budget);
        fitting.last().map(|&(_, again)| again)
    }
}

/// How each op takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Repeatable,
    Once,
    /// It only makes views of this storage.
    Views(usize),
}

struct Form<'a> {
    step: &'a Numbered,
    roles: Vec<Role>,
    /// Of each storage the op that makes it.
    producers: Vec<usize>,
    /// Of each op its slot.
    slots: Vec<usize>,
    /// Of each storage the slot from which it is not made again.
    frozen: Vec<usize>,
}

/// A run in the order of a schedule.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Run {
    slot: usize,
    /// The op that runs again; none for the slot's own.
    again: Option<usize>,
}

/// A stretch in which a storage is in memory, by places in the order.
#[derive(Clone, Copy)]
struct Life {
    start: usize,
    end: usize,
}

impl<'a> Form<'a> {
    fn of(step: &'a Numbered) -> Form<'a> {
        let mut producers = vec![0; step.storages.len()];
        for tensor in step
            .tensors
            .iter()
            .filter(|tensor| tensor.made != Made::View)
        {
            producers[tensor.storage] = tensor.op;
        }
        let mut form = Form {
            step,
            roles: Vec::new(),
            producers,
            slots: vec![0; step.ops.len()],
            frozen: vec![usize::MAX; step.storages.len()],
        };
        for (slot, kind) in step.slots.iter().enumerate() {
            if let Slot::Op(op) = *kind {
                form.slots[op] = slot;
                form.roles.push(form.role(op));
                for &output in &step.ops[op].outputs {
                    let tensor = step.tensors[output];
                    if tensor.made == Made::View && !matches!(form.roles[op], Role::Views(_)) {
                        form.freeze(tensor.storage, slot);
                    }
                }
            }
        }
        for request in step.requests.iter().filter(|request| request.pins) {
            let storage = step.tensors[request.tensor].storage;
            form.freeze(storage, request.slot);
        }
        form
    }

    fn freeze(&mut self, storage: usize, slot: usize) {
        self.frozen[storage] = self.frozen[storage].min(slot);
    }

    fn role(&self, op: usize) -> Role {
        let step = self.step;
        let record = &step.ops[op];
        let viewed = |&output: &usize| {
            let tensor = step.tensors[output];
            (tensor.made == Made::View).then_some(tensor.storage)
        };
        let Some(storage) = record.outputs.first().and_then(viewed) else {
            return if record.repeatable {
                Role::Repeatable
            } else {
                Role::Once
            };
        };
        let only_views = record
            .outputs
            .iter()
            .all(|output| viewed(output) == Some(storage));
        let beside = |&input: &usize| {
            let read = step.tensors[input].storage;
            read == storage || step.storages[read].constant
        };
        match record.repeatable {
            false => Role::Once,
            true if only_views && record.workspace == 0 && record.inputs.iter().all(beside) => {
                Role::Views(storage)
            }
            true => Role::Repeatable,
        }
    }

    fn storages<'b>(&'b self, tensors: &'b [usize]) -> impl Iterator<Item = usize> + 'b {
        tensors
            .iter()
            .map(|&tensor| self.step.tensors[tensor].storage)
    }

    fn made(&self, op: usize) -> impl Iterator<Item = (usize, Made)> + '_ {
        let outputs = self.step.ops[op].outputs.iter();
        let tensors = outputs.map(|&output| self.step.tensors[output]);
        tensors
            .filter(|tensor| tensor.made != Made::View)
            .map(|tensor| (tensor.storage, tensor.made))
    }

    /// Runs again that may serve a read.
    fn runs(&self) -> Vec<(usize, usize)> {
        let step = self.step;
        let mut last = vec![0; step.storages.len()];
        for (slot, kind) in step.slots.iter().enumerate() {
            match kind {
                Slot::Op(op) => self
                    .storages(&step.ops[*op].inputs)
                    .for_each(|read| last[read] = slot),
                Slot::Tensors(of) => self.storages(of).for_each(|read| last[read] = slot),
                Slot::Storage(of) => last[*of] = slot,
            }
        }
        let mut runs = Vec::new();
        for op in (0..step.ops.len()).rev() {
            let made = self.made(op).map(|(storage, _)| last[storage]).max();
            let until = made.unwrap_or(0);
            if self.roles[op] == Role::Repeatable {
                runs.extend((self.slots[op] + 1..=until).map(|slot| (op, slot)));
                for read in self.storages(&step.ops[op].inputs) {
                    last[read] = last[read].max(until);
                }
            }
        }
        runs
    }

    fn again_ns(&self, actions: &[Action]) -> u64 {
        let mut first = 0;
        let mut sum = 0;
        for action in actions {
            if let Action::Run(op) | Action::RunInPlace(op) = *action {
                if op == first {
                    first += 1;
                } else {
                    sum += self.step.ops[op as usize].cost;
                }
            }
        }
        sum
    }

    /// The actions of a schedule.
    fn actions(&self, again: &[(usize, usize)]) -> Vec<Action> {
        let mut order: Vec<Run> = Vec::new();
        for slot in 0..self.step.slots.len() {
            let mut here: Vec<usize> = again
                .iter()
                .filter(|run| run.1 == slot)
                .map(|run| run.0)
                .collect();
            here.sort_unstable();
            order.extend(here.iter().map(|&op| Run {
                slot,
                again: Some(op),
            }));
            order.push(Run { slot, again: None });
        }
        let lives = (0..self.step.storages.len()).map(|storage| self.lives(&order, storage));
        let mut writer = Writer {
            form: self,
            lives: lives.collect(),
            viewed: vec![None; self.step.ops.len()],
            actions: Vec::new(),
        };
        for (place, &run) in order.iter().enumerate() {
            writer.run(place, run, place + 1 == order.len());
        }
        writer.actions
    }

    fn op_of(&self, run: Run) -> Option<usize> {
        run.again.or(match self.step.slots[run.slot] {
            Slot::Op(op) => Some(op),
            _ => None,
        })
    }

    fn reads(&self, run: Run) -> Vec<usize> {
        match (self.op_of(run), &self.step.slots[run.slot]) {
            (Some(op), _) => self.storages(&self.step.ops[op].inputs).collect(),
            (None, Slot::Tensors(of)) => self.storages(of).collect(),
            (None, Slot::Storage(of)) => vec![*of],
            (None, Slot::Op(_)) => Vec::new(),
        }
    }

    fn lives(&self, order: &[Run], storage: usize) -> Vec<Life> {
        let mut lives: Vec<Life> = Vec::new();
        for (place, &run) in order.iter().enumerate() {
            if self.reads(run).contains(&storage) {
                if let Some(life) = lives.last_mut() {
                    life.end = place;
                }
            }
            let makes = self.op_of(run) == Some(self.producers[storage]);
            if makes && (run.again.is_none() || run.slot <= self.frozen[storage]) {
                lives.push(Life {
                    start: place,
                    end: place,
                });
            }
        }
        lives.retain(|life| life.end > life.start);
        lives
    }
}

struct Writer<'a> {
    form: &'a Form<'a>,
    lives: Vec<Vec<Life>>,
    /// Of each op that makes views the place at which it last did.
    viewed: Vec<Option<usize>>,
    actions: Vec<Action>,
}

impl Writer<'_> {
    fn life(&self, storage: usize, place: usize) -> Option<Life> {
        let mut lives = self.lives[storage].iter();
        lives
            .find(|life| life.start < place && place <= life.end)
            .copied()
    }

    fn run(&mut self, place: usize, run: Run, last: bool) {
        let (form, step) = (self.form, self.form.step);
        let tensors = match (form.op_of(run), &step.slots[run.slot]) {
            (Some(op), _) => step.ops[op].inputs.clone(),
            (None, Slot::Tensors(of)) => of.clone(),
            _ => Vec::new(),
        };
        tensors.iter().for_each(|&tensor| self.view(tensor, place));
        let mut taken = Vec::new();
        let mut made = Vec::new();
        if let Some(op) = form.op_of(run) {
            made = form.made(op).map(|(storage, _)| storage).collect();
            taken = self.taken(op, run, place);
            self.actions
                .push(if run.again.is_some() && !taken.is_empty() {
                    Action::RunInPlace(op as u32)
                } else {
                    Action::Run(op as u32)
                });
            if run.again.is_none() {
                self.viewed[op] = Some(place);
            }
        }
        if last {
            return;
        }
        let mut gone = form.reads(run);
        gone.sort_unstable();
        gone.dedup();
        gone.retain(|&storage| {
            let ends = self
                .life(storage, place)
                .is_some_and(|life| life.end == place);
            ends && !taken.contains(&storage)
        });
        made.retain(|&storage| {
            let starts = self.lives[storage].iter().any(|life| life.start == place);
            !starts && self.life(storage, place).is_none()
        });
        for storage in gone.into_iter().chain(made) {
            let record = &step.storages[storage];
            if !record.constant {
                self.actions.push(Action::Free(storage as u32));
            }
        }
    }

    /// The blocks that a run takes.
    fn taken(&self, op: usize, run: Run, place: usize) -> Vec<usize> {
        let writes: Vec<(usize, usize)> = self
            .form
            .made(op)
            .filter_map(|(storage, made)| match made {
                Made::InPlace(old) => Some((storage, old)),
                _ => None,
            })
            .collect();
        let free = |&(new, old): &(usize, usize)| {
            let ends = self.life(old, place).is_some_and(|life| life.end == place);
            ends && self.life(new, place).is_none()
        };
        if run.again.is_none() || writes.iter().all(free) {
            writes.into_iter().map(|(_, old)| old).collect()
        } else {
            Vec::new()
        }
    }

    /// Makes a view that is read at a place.
    fn view(&mut self, tensor: usize, place: usize) {
        let made = self.form.step.tensors[tensor];
        let Role::Views(storage) = self.form.roles[made.op] else {
            return;
        };
        let Some(life) = self.life(storage, place) else {
            return;
        };
        if self.viewed[made.op].is_some_and(|viewed| viewed > life.start) {
            return;
        }
        let inputs = self.form.step.ops[made.op].inputs.clone();
        inputs.iter().for_each(|&input| self.view(input, place));
        self.viewed[made.op] = Some(place);
        self.actions.push(Action::Run(made.op as u32));
    }
}
