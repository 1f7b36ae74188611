//! Selective activation recomputation (Korthikanti et al., 2022, section 5; `sar` in Coop section 4.1). The results of
//! an attention core are dropped once the forward pass has read them, and the core runs again when the backward pass
//! asks for the first of them.
//!
//! The plan is static: it is the step itself with references moved. A dropped storage is released, so that the engine
//! evicts it at once, and retained again where the core runs again. The core's inputs are retained until then.
//! PyTorch's `checkpoint` around a core does the same, except that the product with values is not repeated here, since
//! no backward pass reads its result.

use crate::attention::{Core, Flow, NoAttention, cores};
use crate::recorded::{Instruction, Recorded};
use remat_core::TensorId;

/// A step with its attention dropped and recomputed.
#[derive(Clone, Debug)]
pub(crate) struct Drops {
    pub(crate) instructions: Vec<Instruction>,
    /// Places after each of which one more storage was dropped that will be read again, ascending.
    dropped: Vec<usize>,
}

impl Drops {
    /// # Errors
    /// [`NoAttention`] if there is nothing to drop.
    pub(crate) fn of(step: &Recorded) -> Result<Drops, NoAttention> {
        let flow = Flow::of(step);
        let cores = cores(&flow)?;
        let plans = cores.iter().map(|core| Plan::of(&flow, core)).collect();
        Ok(Rewriting::new(&flow, plans).run(step))
    }

    /// How many storages the first instructions drop.
    pub(crate) fn among(&self, instructions: usize) -> u64 {
        self.dropped.partition_point(|&place| place <= instructions) as u64
    }
}

/// The plan for one core.
#[derive(Default)]
struct Plan {
    /// Storages to drop, each with the last place in the forward pass that reads it.
    drops: Vec<(usize, usize)>,
    /// Tensors that the core reads, each with the first op that does so.
    holds: Vec<(usize, TensorId)>,
    /// Places of the ops that run again, in order.
    ops: Vec<usize>,
    /// They run again before this place; `None` if no backward pass reads a dropped storage.
    again: Option<usize>,
}

impl Plan {
    fn of(flow: &Flow<'_>, core: &Core) -> Plan {
        let made = core.ops.iter().flat_map(|&op| flow.results(op));
        let made: Vec<usize> = made.filter(|&s| !flow.fixed[s]).collect();
        let forward = |s: usize| flow.reads[s].partition_point(|&place| place < core.backward);
        let again = made.iter().filter_map(|&s| flow.reads[s].get(forward(s)));
        let drops = made.iter().filter_map(|&s| {
            let last = forward(s).checked_sub(1).map(|last| flow.reads[s][last]);
            Some((last.or(flow.maker(s))?, s))
        });
        let mut holds: Vec<(usize, TensorId)> = Vec::new();
        for &op in &core.ops {
            for &tensor in flow.inputs(op) {
                let outside = flow.storage_of(tensor).is_some_and(|s| !made.contains(&s));
                if outside && holds.iter().all(|&(_, held)| held != tensor) {
                    holds.push((op, tensor));
                }
            }
        }
        Plan {
            again: again.copied().min(),
            drops: drops.collect(),
            holds,
            ops: core.ops.clone(),
        }
    }
}

/// A change that a plan makes at a place of the step.
#[derive(Clone, Copy)]
enum Edit {
    Hold(TensorId),
    Again(usize),
    Drop(usize),
}

/// Immediately before or after an instruction.
#[derive(Clone, Copy)]
enum Moment {
    Before(usize),
    After(usize),
}

impl Moment {
    /// Moments in order: place by place, before it and then after it.
    fn order(self) -> (usize, bool) {
        match self {
            Moment::Before(place) => (place, false),
            Moment::After(place) => (place, true),
        }
    }
}

struct Rewriting<'a> {
    flow: &'a Flow<'a>,
    plans: Vec<Plan>,
    /// Changes in order of their moments.
    edits: Vec<(Moment, Edit)>,
    /// For each tensor made so far, the references that the program holds.
    refs: Vec<u32>,
    /// For each storage, the instruction that dropped it. The engine is not told of a dropped storage's references.
    dropped: Vec<Option<usize>>,
    result: Drops,
}

impl<'a> Rewriting<'a> {
    fn new(flow: &'a Flow<'a>, plans: Vec<Plan>) -> Rewriting<'a> {
        let mut edits = Vec::new();
        for (number, plan) in plans.iter().enumerate() {
            if let Some(again) = plan.again {
                let holds = plan.holds.iter();
                edits.extend(holds.map(|&(place, t)| (Moment::Before(place), Edit::Hold(t))));
                edits.push((Moment::Before(again), Edit::Again(number)));
            }
            let drops = plan.drops.iter();
            edits.extend(drops.map(|&(place, s)| (Moment::After(place), Edit::Drop(s))));
        }
        edits.sort_by_key(|&(moment, _)| moment.order());
        Rewriting {
            flow,
            plans,
            edits,
            refs: Vec::new(),
            dropped: vec![None; flow.tensors.len()],
            result: Drops {
                instructions: Vec::new(),
                dropped: Vec::new(),
            },
        }
    }

    fn run(mut self, step: &Recorded) -> Drops {
        let mut next = 0;
        for (place, &instruction) in step.instructions.iter().enumerate() {
            next = self.perform(next, Moment::Before(place));
            self.tell(instruction);
            self.count_made(self.flow.made_by(instruction));
            next = self.perform(next, Moment::After(place));
        }
        self.result.dropped.sort_unstable();
        self.result
    }

    /// Makes the changes up to a moment, from the one numbered `next` on; returns the number of the first one left.
    fn perform(&mut self, mut next: usize, until: Moment) -> usize {
        while let Some(&(moment, edit)) = self.edits.get(next) {
            if moment.order() > until.order() {
                break;
            }
            match edit {
                Edit::Hold(tensor) => self.push(Instruction::Retain(tensor)),
                Edit::Again(plan) => self.run_again(plan),
                Edit::Drop(s) => self.drop_storage(s),
            }
            next += 1;
        }
        next
    }

    fn push(&mut self, instruction: Instruction) {
        self.result.instructions.push(instruction);
    }

    /// Passes on an instruction, unless it is a reference to a dropped storage.
    fn tell(&mut self, instruction: Instruction) {
        let (tensor, change): (_, fn(u32) -> u32) = match instruction {
            Instruction::Retain(tensor) => (tensor, |refs| refs.saturating_add(1)),
            Instruction::Release(tensor) => (tensor, |refs| refs.saturating_sub(1)),
            other => return self.push(other),
        };
        let Some(s) = self.flow.storage_of(tensor) else {
            return self.push(instruction);
        };
        let refs = &mut self.refs[tensor.0 as usize];
        *refs = change(*refs);
        if self.dropped[s].is_none() {
            self.push(instruction);
        }
    }

    /// The tensors that an instruction made have a reference.
    fn count_made(&mut self, made: usize) {
        self.refs.resize(self.refs.len() + made, 1);
    }

    /// Adds an instruction for each of the program's references to a storage; returns whether there was one.
    fn references(&mut self, s: usize, one: fn(TensorId) -> Instruction) -> bool {
        let flow = self.flow;
        let before = self.result.instructions.len();
        for &tensor in &flow.tensors[s] {
            for _ in 0..self.refs_to(tensor) {
                self.push(one(tensor));
            }
        }
        self.result.instructions.len() > before
    }

    /// 0 for a tensor that is not yet made.
    fn refs_to(&self, tensor: TensorId) -> u32 {
        let refs = self.refs.get(tensor.0 as usize);
        refs.copied().unwrap_or(0)
    }

    fn drop_storage(&mut self, s: usize) {
        self.references(s, Instruction::Release);
        self.dropped[s] = Some(self.result.instructions.len());
    }

    /// Runs the core again, op by op. A storage that only the core reads is released after its last reader.
    fn run_again(&mut self, number: usize) {
        let plan = std::mem::take(&mut self.plans[number]);
        for &(_, s) in &plan.drops {
            if let Some(at) = self.dropped[s].take() {
                if self.references(s, Instruction::Retain) {
                    self.result.dropped.push(at);
                }
            }
        }
        for &op in &plan.ops {
            if let Some(s) = self.flow.results(op).next() {
                self.push(Instruction::Bring(self.flow.tensors[s][0]));
            }
            let read = plan
                .drops
                .iter()
                .filter(|&&(_, s)| self.last_use(&plan, s) == Some(op));
            for s in read.map(|&(_, s)| s).collect::<Vec<_>>() {
                let tensors = &self.flow.tensors[s];
                if tensors.iter().all(|&tensor| self.refs_to(tensor) == 0) {
                    self.push(Instruction::Retain(tensors[0]));
                    self.push(Instruction::Release(tensors[0]));
                }
            }
        }
        for &(_, tensor) in &plan.holds {
            self.push(Instruction::Release(tensor));
        }
    }

    /// The last op of a core that reads one of its storages, or else makes it.
    fn last_use(&self, plan: &Plan, s: usize) -> Option<usize> {
        let mut readers = self.flow.reads[s].iter().rev();
        let last = readers.find(|&place| plan.ops.binary_search(place).is_ok());
        last.copied().or(self.flow.maker(s))
    }
}
