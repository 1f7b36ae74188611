//! A front end that holds hashes for buffers. It performs steps. At each it checks that all inputs are there, that a
//! replay makes the same values as the first run, and that the bytes never exceed the budget.

pub mod program;

use remat_core::*;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Clone)]
struct Op {
    salt: u64,
    inputs: Vec<TensorId>,
    outputs: Vec<TensorId>,
    /// For outputs that take over a block: the input.
    in_place: Vec<Option<usize>>,
    own: Vec<bool>,
    workspace: (u8, u64),
}

pub struct Front {
    pub engine: Engine,
    ops: BTreeMap<OpId, Op>,
    /// The value in each buffer.
    contents: BTreeMap<StorageId, u64>,
    bytes: BTreeMap<StorageId, (u8, u64)>,
    defined: BTreeSet<TensorId>,
    /// The value of each view, as first computed.
    first: BTreeMap<TensorId, u64>,
    view_salt: BTreeMap<TensorId, u64>,
    pub held: Vec<TensorId>,
    salt: u64,
    /// All that was performed, for comparing runs.
    pub trace: Vec<Step>,
    pub replays: u64,
    /// A new budget holds once all steps are performed, not before.
    settling: bool,
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// An op to run.
pub struct Call {
    pub inputs: Vec<TensorId>,
    pub outputs: Vec<Output>,
    pub workspace: u64,
    pub cost: u64,
    pub replay: Replay,
    /// Sizes as they turn out.
    pub actual: Option<Vec<Bytes>>,
}

/// The way in which a begun op ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Run,
    Cancel,
    /// After so many steps (as many as there are at most).
    Abort(usize),
}

impl Front {
    pub fn new(config: Config) -> Front {
        Front {
            engine: Engine::new(config),
            ops: BTreeMap::new(),
            contents: BTreeMap::new(),
            bytes: BTreeMap::new(),
            defined: BTreeSet::new(),
            first: BTreeMap::new(),
            view_salt: BTreeMap::new(),
            held: Vec::new(),
            salt: 0,
            trace: Vec::new(),
            replays: 0,
            settling: false,
        }
    }

    fn memory(&self, device: u8) -> u64 {
        self.contents
            .keys()
            .map(|s| self.bytes[s])
            .filter(|(of, _)| *of == device)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    fn within_budget(&self, extra: &BTreeMap<u8, u64>) {
        for device in 0..3 {
            let total = self.memory(device) + extra.get(&device).copied().unwrap_or(0);
            if let Some(budget) = self.engine.budget(DeviceId(device)) {
                assert!(
                    self.settling || total <= budget.0,
                    "pool {device}: {total} of {}",
                    budget.0
                );
            }
        }
    }

    /// The engine's view and this one's are the same.
    pub fn check(&self) {
        for (s, (device, _)) in &self.bytes {
            assert_eq!(
                self.engine.is_resident(*s),
                self.contents.contains_key(s),
                "{s:?} in device {device}"
            );
        }
        for t in &self.held {
            assert_eq!(
                self.engine.is_defined(*t),
                self.defined.contains(t),
                "{t:?}"
            );
        }
        for device in 0..3 {
            assert_eq!(
                self.engine.memory(DeviceId(device)).0,
                self.memory(device),
                "pool {device}"
            );
        }
        self.within_budget(&BTreeMap::new());
        self.check_addresses();
    }

    /// No two resident storages overlap, and none lies beyond the budget.
    fn check_addresses(&self) {
        assert_eq!(self.engine.check(), Ok(()));
        for device in (0..3).map(DeviceId) {
            let Some(arena) = self.engine.arena(device) else {
                continue;
            };
            let of_pool = self.contents.keys().filter(|s| self.bytes[s].0 == device.0);
            let mut blocks: Vec<(u64, u64)> = of_pool
                .filter(|s| self.bytes[s].1 > 0)
                .map(|s| {
                    (
                        self.engine.address(*s).expect("an address"),
                        self.bytes[s].1,
                    )
                })
                .collect();
            blocks.sort_unstable();
            for pair in blocks.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
            }
            let end = blocks.last().map_or(0, |(address, bytes)| address + bytes);
            let budget = self
                .engine
                .budget(device)
                .map_or(u64::MAX, |budget| budget.0);
            assert!(end <= arena.capacity() && arena.capacity() <= budget);
        }
    }

    fn show(&self, t: TensorId) -> u64 {
        let s = self.engine.storage(t).expect("a known tensor");
        assert!(
            self.defined.contains(&t),
            "{t:?} of {s:?} is needed and not defined"
        );
        hash((self.view_salt[&t], self.contents[&s]))
    }

    fn drop_storage(&mut self, s: StorageId) {
        self.contents.remove(&s);
        let engine = &self.engine;
        self.defined
            .retain(|t| engine.storage(*t).expect("a known tensor") != s);
    }

    fn perform(&mut self, step: Step) {
        self.trace.push(step);
        match step {
            Step::Evict(s) => {
                assert!(
                    self.contents.contains_key(&s),
                    "{s:?} is evicted and not there"
                );
                self.drop_storage(s);
            }
            Step::Recompute { op, mutation } => {
                self.replays += 1;
                self.compute(op, mutation, false);
            }
            Step::Move { storage, .. } => {
                assert!(
                    self.contents.contains_key(&storage),
                    "{storage:?} is moved and not there"
                );
            }
        }
        self.within_budget(&BTreeMap::new());
    }

    pub fn perform_steps(&mut self, count: usize) {
        let steps: Vec<_> = self.engine.steps().iter().copied().take(count).collect();
        for step in steps {
            self.perform(step);
        }
    }

    fn compute(&mut self, id: OpId, mutation: Mutation, first: bool) {
        let op = self.ops[&id].clone();
        assert_eq!(self.engine.inputs(id), op.inputs);
        assert_eq!(self.engine.outputs(id), op.outputs);
        let shown: Vec<_> = op.inputs.iter().map(|&input| self.show(input)).collect();
        for (input, shown) in op.inputs.iter().zip(&shown) {
            assert_eq!(self.first[input], *shown, "{input:?} is not what it was");
        }
        let mut transient = BTreeMap::from([op.workspace]);
        for (index, &output) in op.outputs.iter().enumerate() {
            let copied = op.in_place[index].is_some() && mutation == Mutation::Copy;
            if op.own[index] && (op.in_place[index].is_none() || copied) {
                let (device, bytes) =
                    self.bytes[&self.engine.storage(output).expect("a known tensor")];
                *transient.entry(device).or_default() += bytes;
            }
        }
        self.within_budget(&transient);
        if mutation == Mutation::Consume {
            for of in op.in_place.iter().flatten() {
                self.drop_storage(self.engine.storage(op.inputs[*of]).expect("a known tensor"));
            }
        }
        for (index, &output) in op.outputs.iter().enumerate() {
            let s = self.engine.storage(output).expect("a known tensor");
            if op.own[index] && !self.contents.contains_key(&s) {
                self.contents.insert(s, hash((op.salt, index, &shown)));
            }
        }
        for &output in &op.outputs {
            let s = self.engine.storage(output).expect("a known tensor");
            if !self.contents.contains_key(&s) {
                continue;
            }
            let value = hash((self.view_salt[&output], self.contents[&s]));
            if first {
                self.first.insert(output, value);
            }
            assert_eq!(
                self.first[&output], value,
                "{output:?} is recomputed as something else"
            );
            // What nobody can ask for is not looked at by the engine either.
            self.defined.insert(output);
        }
    }

    /// Announces an op and sees it through.
    pub fn call(&mut self, call: &Call, fate: Fate) -> Result<Option<OpId>, Error> {
        let before = format!("{:?}", self.engine);
        let spec = OpSpec {
            inputs: &call.inputs,
            outputs: &call.outputs,
            workspace: Bytes(call.workspace),
            workspace_device: DeviceId(0),
            replay: call.replay,
        };
        let id = match self.engine.begin(&spec) {
            Ok(id) => id,
            Err(error) => {
                assert_eq!(
                    before,
                    format!("{:?}", self.engine),
                    "a refusal left a trace"
                );
                return Err(error);
            }
        };
        let steps = self.engine.steps().len();
        if let Fate::Abort(performed) = fate {
            let performed = performed.min(steps);
            self.perform_steps(performed);
            self.engine.abort(performed);
            self.perform_steps(usize::MAX);
            self.check_known();
            return Ok(None);
        }
        self.perform_steps(usize::MAX);
        if fate == Fate::Cancel {
            self.engine.cancel(id);
            self.perform_steps(usize::MAX);
            self.check_known();
            return Ok(None);
        }
        self.record(id, call);
        self.compute(id, Mutation::Consume, true);
        if let Some(actual) = &call.actual {
            for (output, bytes) in self.ops[&id].outputs.clone().into_iter().zip(actual) {
                let s = self.engine.storage(output).expect("a known tensor");
                let index = self.ops[&id]
                    .outputs
                    .iter()
                    .position(|&o| o == output)
                    .expect("an output");
                if matches!(call.outputs[index], Output::Fresh { .. }) {
                    self.bytes.get_mut(&s).expect("a storage").1 = bytes.0;
                }
            }
        }
        self.engine.finish(
            id,
            &Finished {
                cost: Cost(call.cost),
                bytes: call.actual.as_deref(),
            },
        )?;
        let outputs = self.ops[&id].outputs.clone();
        self.held.extend(outputs);
        self.perform_steps(usize::MAX);
        self.check();
        Ok(Some(id))
    }

    fn check_known(&mut self) {
        self.check();
    }

    fn record(&mut self, id: OpId, call: &Call) {
        self.salt += 1;
        let outputs = self.engine.outputs(id).to_vec();
        let old: Vec<_> = call
            .inputs
            .iter()
            .map(|&input| self.engine.storage(input).expect("a known tensor"))
            .collect();
        let mut seen = old.clone();
        let (mut own, mut in_place) = (Vec::new(), Vec::new());
        for (index, (&output, kind)) in outputs.iter().zip(&call.outputs).enumerate() {
            let s = self.engine.storage(output).expect("a known tensor");
            let takes = !matches!(kind, Output::Alias { .. }) && !seen.contains(&s);
            if !matches!(kind, Output::Alias { .. }) {
                seen.push(s);
            }
            own.push(takes);
            in_place.push(match kind {
                Output::InPlace { of } if takes => Some(*of),
                _ => None,
            });
            match kind {
                Output::Fresh { bytes, device } => {
                    self.bytes.insert(s, (device.0, bytes.0));
                }
                Output::InPlace { of } => {
                    let size = self.bytes[&old[*of]];
                    self.bytes.insert(s, size);
                }
                Output::Alias { .. } => {}
            }
            self.view_salt
                .insert(output, if takes { 0 } else { hash((self.salt, index)) });
            self.defined.remove(&output);
        }
        let op = Op {
            salt: self.salt,
            inputs: call.inputs.clone(),
            outputs,
            in_place,
            own,
            workspace: (0, call.workspace),
        };
        self.ops.insert(id, op);
    }

    pub fn constant(&mut self, bytes: u64, device: u8) -> Result<TensorId, Error> {
        let before = format!("{:?}", self.engine);
        let t = match self.engine.constant(Bytes(bytes), DeviceId(device)) {
            Ok(t) => t,
            Err(error) => {
                assert_eq!(
                    before,
                    format!("{:?}", self.engine),
                    "a refusal left a trace"
                );
                return Err(error);
            }
        };
        self.perform_steps(usize::MAX);
        self.salt += 1;
        let s = self.engine.storage(t).expect("a known tensor");
        self.bytes.insert(s, (device, bytes));
        self.contents.insert(s, hash(self.salt));
        self.view_salt.insert(t, 0);
        self.defined.insert(t);
        self.first.insert(t, self.show(t));
        self.held.push(t);
        self.check();
        Ok(t)
    }

    pub fn release(&mut self, index: usize) {
        let t = self.held.swap_remove(index);
        self.engine.release(t).expect("a held tensor");
        self.perform_steps(usize::MAX);
        self.check();
    }

    /// Lets go of a tensor whose value was overwritten for good.
    pub fn release_if_held(&mut self, index: usize) {
        if index < self.held.len() {
            self.release(index);
        }
    }

    pub fn retain(&mut self, index: usize) {
        let t = self.held[index];
        self.engine.retain(t).expect("a held tensor");
        self.held.push(t);
    }

    /// `ensure` or `pin`; all targets show what they should.
    pub fn bring(
        &mut self,
        tensors: &[TensorId],
        pin: bool,
        performed: Option<usize>,
    ) -> Result<(), Error> {
        let before = format!("{:?}", self.engine);
        let result = if pin {
            self.engine.pin(tensors[0])
        } else {
            self.engine.ensure(tensors)
        };
        if let Err(error) = result {
            assert_eq!(
                before,
                format!("{:?}", self.engine),
                "a refusal left a trace"
            );
            return Err(error);
        }
        if let Some(performed) = performed {
            let performed = performed.min(self.engine.steps().len());
            self.perform_steps(performed);
            self.engine.abort(performed);
            self.perform_steps(usize::MAX);
        } else {
            self.perform_steps(usize::MAX);
            for &t in if pin { &tensors[..1] } else { tensors } {
                assert_eq!(self.show(t), self.first[&t]);
            }
        }
        self.check();
        Ok(())
    }

    pub fn set_budget(&mut self, device: u8, budget: Option<u64>) -> Result<(), Error> {
        let before = format!("{:?}", self.engine);
        if let Err(error) = self.engine.set_budget(DeviceId(device), budget.map(Bytes)) {
            assert_eq!(
                before,
                format!("{:?}", self.engine),
                "a refusal left a trace"
            );
            return Err(error);
        }
        self.settling = true;
        self.perform_steps(usize::MAX);
        self.settling = false;
        self.check();
        Ok(())
    }

    pub fn collect(&mut self) {
        let collected = self.engine.collected();
        let (ops, storages) = (collected.ops.to_vec(), collected.storages.to_vec());
        for op in ops {
            assert!(self.ops.remove(&op).is_some(), "{op:?} is collected twice");
        }
        for s in storages {
            assert!(
                !self.contents.contains_key(&s),
                "{s:?} is collected with its bytes"
            );
            assert!(self.bytes.remove(&s).is_some(), "{s:?} is collected twice");
            let engine = &self.engine;
            assert!(
                self.held
                    .iter()
                    .all(|t| engine.storage(*t).expect("a known tensor") != s),
                "{s:?} is collected and referenced"
            );
            self.first
                .retain(|t, _| engine.storage(*t).expect("a known tensor") != s);
        }
    }

    /// Whether a tensor's value can still be had.
    pub fn held_views(&self, s: StorageId) -> Vec<usize> {
        (0..self.held.len())
            .rev()
            .filter(|&index| {
                self.engine
                    .storage(self.held[index])
                    .expect("a known tensor")
                    == s
            })
            .collect()
    }
}
