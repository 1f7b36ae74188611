//! Finding the attention cores of a recorded step: the ops between the product of queries and keys and the product with
//! values (Korthikanti et al., 2022, section 5). They are found by the names that PyTorch gives ops and by the tensors
//! that ops read.

use crate::recorded::{Instruction, Mutations, Recorded};
use crate::role::Role;
use remat_core::{Output, TensorId};
use std::collections::BTreeSet;
use std::fmt;

/// The reason why a step has no attention that could be recomputed selectively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoAttention {
    /// No softmax lies between two matrix products of activations, and no op is a whole attention.
    Absent,
    /// The ops do not carry PyTorch's names.
    Unnamed,
}

impl fmt::Display for NoAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("policy 'sar' recomputes attention, and ")?;
        f.write_str(match self {
            NoAttention::Absent => {
                "there is none: no softmax between two matrix products of activations, no fused attention"
            }
            NoAttention::Unnamed => {
                "ops are not called as in PyTorch (bmm, aten._softmax.default), so none can be told"
            }
        })?;
        f.write_str("; leave this log out, or take another policy (see `remat policies`)")
    }
}

impl std::error::Error for NoAttention {}

/// Makers and readers of each storage. A place is the index of an instruction.
pub(crate) struct Flow<'a> {
    step: &'a Recorded,
    /// The storage of each tensor. A value written in place is a storage of its own.
    storage: Vec<u32>,
    /// For each storage, its tensors; the place of the op that made it; the places that read it, in order.
    pub(crate) tensors: Vec<Vec<TensorId>>,
    maker: Vec<Option<usize>>,
    pub(crate) reads: Vec<Vec<usize>>,
    /// For each storage, whether it is a constant or pinned at some time.
    pub(crate) fixed: Vec<bool>,
    /// For each op, its first output and the one after its last.
    made: Vec<(u32, u32)>,
}

/// An attention core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Core {
    /// Places of the ops to recompute, in order.
    pub(crate) ops: Vec<usize>,
    /// The place of the first later op whose name is that of a backward pass.
    pub(crate) backward: usize,
}

impl<'a> Flow<'a> {
    pub(crate) fn of(step: &'a Recorded) -> Flow<'a> {
        let mut flow = Flow {
            step,
            storage: Vec::new(),
            tensors: Vec::new(),
            maker: Vec::new(),
            reads: Vec::new(),
            fixed: Vec::new(),
            made: Vec::new(),
        };
        for (place, &instruction) in step.instructions.iter().enumerate() {
            flow.take(place, instruction);
        }
        flow
    }

    fn take(&mut self, place: usize, instruction: Instruction) {
        match instruction {
            Instruction::Constant { .. } => self.make(None),
            Instruction::Op(op) => {
                let inputs = self.step.inputs_of(op);
                self.read(place, inputs);
                let again = self.step.can_be_replayed(op);
                let first = self.storage.len() as u32;
                for &output in self.step.outputs_of(op, Mutations::Recorded) {
                    let of = match output {
                        Output::Alias { of } => inputs.get(of).copied(),
                        _ => None,
                    };
                    match of.and_then(|tensor| self.storage_of(tensor)) {
                        Some(viewed) => self.view(viewed),
                        None => self.make(again.then_some(place)),
                    }
                }
                self.made.push((first, self.storage.len() as u32));
            }
            Instruction::Pin(tensor) => {
                if let Some(s) = self.storage_of(tensor) {
                    self.fixed[s] = true;
                }
            }
            Instruction::Ensure { from, to } => self.read(place, self.step.tensors(from, to)),
            Instruction::Bring(_)
            | Instruction::Retain(_)
            | Instruction::Release(_)
            | Instruction::Plan(_) => {}
        }
    }

    /// Adds a tensor with a storage of its own. Without a place it cannot be recomputed.
    fn make(&mut self, place: Option<usize>) {
        let s = self.tensors.len();
        self.tensors.push(Vec::new());
        self.maker.push(place);
        self.reads.push(Vec::new());
        self.fixed.push(place.is_none());
        self.view(s);
    }

    fn view(&mut self, s: usize) {
        self.tensors[s].push(TensorId(self.storage.len() as u32));
        self.storage.push(s as u32);
    }

    fn read(&mut self, place: usize, tensors: &[TensorId]) {
        for &tensor in tensors {
            if let Some(s) = self.storage_of(tensor) {
                self.reads[s].push(place);
            }
        }
    }

    pub(crate) fn storage_of(&self, tensor: TensorId) -> Option<usize> {
        let storage = self.storage.get(tensor.0 as usize);
        storage.map(|&s| s as usize)
    }

    /// The op at a place.
    fn op(&self, place: usize) -> Option<u32> {
        match self.step.instructions.get(place) {
            Some(&Instruction::Op(op)) => Some(op),
            _ => None,
        }
    }

    pub(crate) fn inputs(&self, place: usize) -> &'a [TensorId] {
        let op = self.op(place);
        op.map_or(&[], |op| self.step.inputs_of(op))
    }

    /// Storages that an op reads.
    pub(crate) fn sources(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        let inputs = self.inputs(place).iter();
        inputs.filter_map(|&tensor| self.storage_of(tensor))
    }

    /// Storages that an op makes.
    pub(crate) fn results(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        let op = self.op(place);
        let (from, to) = op.map_or((0, 0), |op| self.made[op as usize]);
        let made = self.storage[from as usize..to as usize].iter();
        made.map(|&s| s as usize)
            .filter(move |&s| self.maker[s] == Some(place))
    }

    /// How many tensors an instruction makes.
    pub(crate) fn made_by(&self, instruction: Instruction) -> usize {
        match instruction {
            Instruction::Constant { .. } => 1,
            Instruction::Op(op) => {
                let (from, to) = self.made[op as usize];
                (to - from) as usize
            }
            _ => 0,
        }
    }

    /// The ops that made an op's inputs.
    fn makers(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        self.sources(place).filter_map(|s| self.maker[s])
    }

    /// Places before `end` that read an op's results.
    fn readers(&self, place: usize, end: usize) -> impl Iterator<Item = usize> + '_ {
        let reads = self.results(place).flat_map(|s| &self.reads[s]);
        reads.copied().filter(move |&reader| reader < end)
    }

    pub(crate) fn maker(&self, s: usize) -> Option<usize> {
        self.maker[s]
    }

    fn role(&self, place: usize) -> Role {
        self.op(place)
            .map_or(Role::Other, |op| self.step.role_of(op))
    }

    /// Whether an op is a product of two activations. A product with a parameter has one fixed operand.
    fn multiplies_activations(&self, place: usize) -> bool {
        self.role(place) == Role::Product
            && self.sources(place).filter(|&s| !self.fixed[s]).count() >= 2
    }
}

/// The cores of a step's attention, in order; no op is in two of them.
///
/// # Errors
/// [`NoAttention`] if there are none.
pub(crate) fn cores(flow: &Flow<'_>) -> Result<Vec<Core>, NoAttention> {
    let end = flow.step.instructions.len();
    let mut cores = Vec::new();
    let (mut named, mut backward, mut taken) = (false, end, vec![false; end]);
    for place in (0..end).rev() {
        let role = flow.role(place);
        named |= role != Role::Other;
        let ops = match role {
            Role::Backward => {
                backward = place;
                None
            }
            Role::Fused => Some(vec![place]),
            Role::Softmax => around(flow, place, backward),
            _ => None,
        };
        let mut ops = ops.unwrap_or_default();
        ops.retain(|&op| !std::mem::replace(&mut taken[op], true));
        if !ops.is_empty() {
            cores.push(Core { ops, backward });
        }
    }
    cores.reverse();
    if !cores.is_empty() {
        Ok(cores)
    } else if named {
        Err(NoAttention::Absent)
    } else {
        Err(NoAttention::Unnamed)
    }
}

/// The core that a softmax is part of, if it is one of attention.
fn around(flow: &Flow<'_>, softmax: usize, backward: usize) -> Option<Vec<usize>> {
    let mut within = scores(flow, softmax)?;
    within.append(&mut weights(flow, softmax, backward)?);
    within.insert(softmax);
    aside(flow, backward, &mut within);
    Some(within.into_iter().collect())
}

/// The products of activations that lead to the softmax and the ops between; `None` without such a product.
fn scores(flow: &Flow<'_>, softmax: usize) -> Option<BTreeSet<usize>> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![softmax]);
    while let Some(place) = next.pop() {
        for maker in flow.makers(place) {
            let between = flow.role(maker) == Role::Other;
            let known = !(between || flow.multiplies_activations(maker)) || !seen.insert(maker);
            if between && !known {
                next.push(maker);
            }
        }
    }
    let mut within = BTreeSet::new();
    for place in seen {
        let product = flow.role(place) == Role::Product;
        if product || flow.makers(place).any(|maker| within.contains(&maker)) {
            within.insert(place);
        }
    }
    (!within.is_empty()).then_some(within)
}

/// The ops between the softmax and products of activations in the same forward pass; `None` without such a product.
fn weights(flow: &Flow<'_>, softmax: usize, backward: usize) -> Option<BTreeSet<usize>> {
    let (mut derived, mut products) = (BTreeSet::new(), Vec::new());
    let mut next: BTreeSet<usize> = flow.readers(softmax, backward).collect();
    while let Some(place) = next.pop_first() {
        match flow.role(place) {
            Role::Other => {
                derived.insert(place);
                next.extend(flow.readers(place, backward));
            }
            Role::Product if flow.multiplies_activations(place) => products.push(place),
            _ => {}
        }
    }
    let mut within = BTreeSet::new();
    for &place in derived.iter().rev() {
        let leads = |reader| within.contains(&reader) || products.contains(&reader);
        if flow.readers(place, backward).any(leads) {
            within.insert(place);
        }
    }
    (!products.is_empty()).then_some(within)
}

/// Adds masks and dropout's random draws: ops whose results no other op of the forward pass reads.
fn aside(flow: &Flow<'_>, backward: usize, within: &mut BTreeSet<usize>) {
    let between = |place: &usize| flow.role(*place) != Role::Product;
    let reading = within.iter().copied().filter(between);
    let mut next: BTreeSet<usize> = reading.flat_map(|place| flow.makers(place)).collect();
    while let Some(place) = next.pop_last() {
        if within.contains(&place) || flow.role(place) != Role::Other {
            continue;
        }
        let mut readers = flow.readers(place, backward);
        let only = readers.all(|reader| {
            within.contains(&reader) && between(&reader) || flow.results(reader).next().is_none()
        });
        if only && flow.results(place).all(|s| !flow.fixed[s]) {
            within.insert(place);
            next.extend(flow.makers(place));
        }
    }
}
