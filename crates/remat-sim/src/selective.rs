//! Selective activation recomputation (Korthikanti et al., 2022, section 5; `sar` in Coop section 4.1): what the core of attention makes is
//! dropped once the forward pass has read it, and the core runs again when the backward pass asks for the first of it.
//!
//! The plan is static. It is the step itself with references moved: what is dropped is released, so that the engine evicts it at once, and
//! retained again where the core runs again; what the core reads is retained until then. As where a core is wrapped in
//! PyTorch's `checkpoint`, but the product with values is not repeated, since no backward pass reads its result.

use crate::attention::{cores, Core, Flow, NoAttention};
use crate::program::Instruction;
use crate::Program;
use remat_core::TensorId;

/// A step with its attention dropped and recomputed.
#[derive(Clone, Debug)]
pub(crate) struct Drops {
    pub(crate) instructions: Vec<Instruction>,
    /// After which of them one more storage was dropped that will be read again, ascending.
    dropped: Vec<usize>,
}

impl Drops {
    /// # Errors
    /// [`NoAttention`] if there is nothing to drop.
    pub(crate) fn of(program: &Program) -> Result<Drops, NoAttention> {
        let flow = Flow::of(program);
        let cores = cores(&flow)?;
        let plans = cores.iter().map(|core| Plan::of(&flow, core)).collect();
        Ok(Rewriting::new(&flow, plans).run(program))
    }

    /// How many storages the first instructions drop.
    pub(crate) fn among(&self, instructions: usize) -> u64 {
        self.dropped.partition_point(|&place| place <= instructions) as u64
    }
}

/// What happens to a core.
#[derive(Default)]
struct Plan {
    /// Storages to drop, each after the last place in the forward pass that reads it.
    drops: Vec<(usize, usize)>,
    /// Tensors that the core reads, each before the op that does so first.
    holds: Vec<(usize, TensorId)>,
    /// Places of the ops that run again, in order.
    ops: Vec<usize>,
    /// Before this place; none if no backward pass reads what was dropped.
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

/// What a plan does at a place of the step.
#[derive(Clone, Copy)]
enum Deed {
    Hold(TensorId),
    Again(usize),
    Drop(usize),
}

struct Rewriting<'a> {
    flow: &'a Flow<'a>,
    plans: Vec<Plan>,
    /// Before and after instructions: place, whether after it, what.
    deeds: Vec<(usize, bool, Deed)>,
    /// References that the program has, by tensor made so far.
    refs: Vec<u32>,
    /// By storage, the instruction that dropped it; its references are not told the engine.
    dropped: Vec<Option<usize>>,
    result: Drops,
}

impl<'a> Rewriting<'a> {
    fn new(flow: &'a Flow<'a>, plans: Vec<Plan>) -> Rewriting<'a> {
        let mut deeds = Vec::new();
        for (number, plan) in plans.iter().enumerate() {
            if let Some(again) = plan.again {
                deeds.extend(
                    plan.holds
                        .iter()
                        .map(|&(place, tensor)| (place, false, Deed::Hold(tensor))),
                );
                deeds.push((again, false, Deed::Again(number)));
            }
            deeds.extend(
                plan.drops
                    .iter()
                    .map(|&(place, s)| (place, true, Deed::Drop(s))),
            );
        }
        deeds.sort_by_key(|&(place, after, _)| (place, after));
        Rewriting {
            flow,
            plans,
            deeds,
            refs: Vec::new(),
            dropped: vec![None; flow.tensors.len()],
            result: Drops {
                instructions: Vec::new(),
                dropped: Vec::new(),
            },
        }
    }

    fn run(mut self, program: &Program) -> Drops {
        let mut next = 0;
        for (place, &instruction) in program.instructions.iter().enumerate() {
            next = self.perform(next, (place, false));
            self.tell(instruction);
            self.count_made(self.flow.made_by(instruction));
            next = self.perform(next, (place, true));
        }
        self.result.dropped.sort_unstable();
        self.result
    }

    /// The deeds up to a moment; the number of the next one.
    fn perform(&mut self, mut next: usize, moment: (usize, bool)) -> usize {
        while let Some(&(place, after, deed)) = self.deeds.get(next) {
            if (place, after) > moment {
                break;
            }
            match deed {
                Deed::Hold(tensor) => self.push(Instruction::Retain(tensor)),
                Deed::Again(plan) => self.run_again(plan),
                Deed::Drop(s) => self.let_go(s),
            }
            next += 1;
        }
        next
    }

    fn push(&mut self, instruction: Instruction) {
        self.result.instructions.push(instruction);
    }

    /// What the program does, without references to what is dropped.
    fn tell(&mut self, instruction: Instruction) {
        let (tensor, more) = match instruction {
            Instruction::Retain(tensor) => (tensor, true),
            Instruction::Release(tensor) => (tensor, false),
            other => return self.push(other),
        };
        let Some(s) = self.flow.storage_of(tensor) else {
            return self.push(instruction);
        };
        let refs = &mut self.refs[tensor.0 as usize];
        *refs = match more {
            true => refs.saturating_add(1),
            false => refs.saturating_sub(1),
        };
        if self.dropped[s].is_none() {
            self.push(instruction);
        }
    }

    /// The tensors that an instruction made have a reference.
    fn count_made(&mut self, made: usize) {
        self.refs.resize(self.refs.len() + made, 1);
    }

    /// An instruction for each of the program's references to a storage.
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

    fn let_go(&mut self, s: usize) {
        self.references(s, Instruction::Release);
        self.dropped[s] = Some(self.result.instructions.len());
    }

    /// The core once more, op by op; what only the core reads goes when it was read.
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
