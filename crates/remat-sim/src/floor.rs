//! The smallest budget that a recorded run gets through in training, and the bytes that none does without.

use crate::bounds::narrow;
use crate::drive::{self, Telling, Unsound};
use crate::recorded::{Instruction, Mutations, Recorded};
use crate::run::scaled;
use crate::{Base, Program};
use remat_core::{
    Bytes, Config, Cost, DeviceId, Engine, Error, Finished, Lineage, Output, Policy, ReplayOrder,
    StorageId, TensorId, ThrashLimit,
};
use std::collections::HashMap;

/// Times that a budget is tried with.
const VARIED: u64 = 12;

/// The device whose memory is bounded.
const BOUNDED: DeviceId = DeviceId(0);

/// The floor of a recorded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Bytes that no order of evictions and replays does without: the most, over all ops, of what cannot be dropped and
    /// is referred to, what the op reads and makes, and its workspace.
    pub needed: Bytes,
    /// The smallest budget found that the engine gets through; `None` if it is not the memory without a limit.
    pub works: Option<Bytes>,
}

/// How a floor is sought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloorSearch {
    /// The policy that makes room.
    pub policy: Policy,
    /// The exactness of [`Floor::works`].
    pub within: Bytes,
    /// A budget in which recomputing costs more than so many times the run's own ops counts as too small.
    pub thrash_limit: f64,
}

impl Program {
    /// The floor of the run, for an engine that is set as in training: lineage is forgotten that nothing needs, other
    /// orders of replay than DTR's are tried, and constants that the program dropped go where nothing else makes room.
    /// Plans are not followed: the first steps of a run have none. The budget found holds with the recorded times of
    /// ops, and with times that are changed at random.
    ///
    /// ```
    /// use remat_core::{Bytes, Policy};
    /// use remat_sim::{FloorSearch, Program};
    /// use remat_trace::{Event, TraceOutput, TraceOutputKind};
    ///
    /// // Two results of 60 bytes each; the first is read again at the end.
    /// let op = |input, tensor| Event::Op {
    ///     name: "op".into(),
    ///     inputs: vec![input],
    ///     outputs: vec![TraceOutput { tensor, kind: TraceOutputKind::Fresh { bytes: 60, device: 0 } }],
    ///     workspace: 0, workspace_device: 0, cost: 5, replay: true,
    /// };
    /// let events = [
    ///     Event::Constant { tensor: 0, bytes: 10, device: 0 },
    ///     op(0, 1),
    ///     op(0, 2),
    ///     Event::Release { tensor: 2 },
    ///     Event::Pin { tensor: 1 },
    /// ];
    /// let program: Program = events.iter().collect();
    /// let search = FloorSearch { policy: Policy::default(), within: Bytes(1), thrash_limit: 2.0 };
    /// let floor = program.floor(&program.base()?, search)?;
    /// assert_eq!((floor.needed, floor.works), (Bytes(70), Some(Bytes(70))));
    /// # Ok::<(), remat_sim::Unsound>(())
    /// ```
    ///
    /// # Errors
    /// [`Unsound`] if the events contradict one another.
    pub fn floor(&self, base: &Base, search: FloorSearch) -> Result<Floor, Unsound> {
        let step = self.recorded();
        let needed = needed(step)?;
        let limit = Cost(scaled(base.cost.0, search.thrash_limit));
        let holds = |budget: u64| -> Result<bool, Unsound> {
            for clock in Clock::all() {
                if !runs(step, Bytes(budget), search.policy, limit, clock)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let (low, mut high) = (needed.0, base.memory.0.max(needed.0));
        // The run often gets by with what it cannot do without.
        if holds(low)? {
            high = low;
        } else if !holds(high)? {
            return Ok(Floor {
                needed,
                works: None,
            });
        }
        let (_, high) = narrow(low, high, search.within.0, holds)?;
        Ok(Floor {
            needed,
            works: Some(Bytes(high)),
        })
    }
}

/// The times that ops take in a run. No two runs measure the same, and what is evicted depends on them.
#[derive(Clone, Copy, Debug)]
enum Clock {
    /// As recorded.
    Recorded,
    /// Up to four times as long or as short, by this seed.
    Varied(u64),
}

impl Clock {
    /// Those that a floor is tried with.
    fn all() -> impl Iterator<Item = Clock> {
        std::iter::once(Clock::Recorded).chain((1..VARIED).map(Clock::Varied))
    }

    fn cost(self, op: u32, cost: Cost) -> Cost {
        let Clock::Varied(seed) = self else {
            return cost;
        };
        // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        let mut mixed = (seed << 32 | u64::from(op)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let quarters = [1, 2, 3, 4, 6, 8, 12, 16][(mixed >> 61) as usize];
        Cost(cost.0 / 4 * quarters)
    }
}

/// Whether an engine set as in training gets through the run.
fn runs(
    step: &Recorded,
    budget: Bytes,
    policy: Policy,
    limit: Cost,
    clock: Clock,
) -> Result<bool, Unsound> {
    let mut engine = Engine::new(Config {
        budgets: vec![Some(budget)],
        policy,
        lineage: Lineage::Collect,
        order: ReplayOrder::Fit,
        thrash: ThrashLimit::Total(limit),
        ..Config::default()
    });
    let mut held = Held::default();
    for (event, &instruction) in step.instructions.iter().enumerate() {
        let unsound = |error| Unsound { event, error };
        let mut told = tell(&mut engine, step, instruction, clock);
        if matches!(told, Err(Error::Budget { .. })) && held.banish(&mut engine).map_err(unsound)? {
            told = tell(&mut engine, step, instruction, clock);
        }
        match told {
            Ok(()) => {}
            Err(Error::Budget { .. } | Error::Thrash { .. } | Error::PlanLimit) => {
                return Ok(false);
            }
            Err(error) => return Err(unsound(error)),
        }
        held.note(&engine, step, instruction);
    }
    Ok(true)
}

fn tell(
    engine: &mut Engine,
    step: &Recorded,
    instruction: Instruction,
    clock: Clock,
) -> Result<(), Error> {
    let Instruction::Op(op) = instruction else {
        return drive::tell(engine, step, instruction, Telling::default(), &mut |_| {});
    };
    let (spec, mut expected) = step.op(op, Mutations::Recorded);
    expected.cost = clock.cost(op, expected.cost);
    let id = engine.begin_expecting(&spec, expected)?;
    let cost = expected.cost;
    engine.finish(id, &Finished { cost, bytes: None })
}

/// Storages of the run, and the constants among them that the program dropped. The engine keeps those for replays.
#[derive(Default)]
struct Held {
    storages: Storages,
    dropped: Vec<TensorId>,
}

impl Held {
    fn note(&mut self, engine: &Engine, step: &Recorded, instruction: Instruction) {
        self.storages.note(step, instruction);
        if let Instruction::Release(tensor) = instruction {
            let constant = engine.storage(tensor).is_some_and(|s| engine.is_pinned(s));
            if constant && self.storages.of(tensor).references == 0 {
                self.dropped.push(tensor);
            }
        }
    }

    /// Drops constants that the program dropped, as a front end does where nothing else makes room. Returns whether
    /// there were any.
    fn banish(&mut self, engine: &mut Engine) -> Result<bool, Error> {
        self.dropped.retain(|&tensor| {
            let storage = engine.storage(tensor);
            storage.is_some_and(|s| engine.is_pinned(s) && engine.is_resident(s))
        });
        let plan = engine.plan_banish(&self.dropped)?;
        for &tensor in &plan.tensors {
            match engine.pin(tensor) {
                Err(Error::Budget { .. }) => return Ok(false),
                pinned => pinned?,
            }
        }
        Ok(plan.constants > 0)
    }
}

/// Bytes that no order of evictions and replays of a run does without.
fn needed(step: &Recorded) -> Result<Bytes, Unsound> {
    let mut engine = Engine::new(Config::default());
    let mut storages = Storages::default();
    let mut most = 0;
    for (event, &instruction) in step.instructions.iter().enumerate() {
        let read = match instruction {
            Instruction::Op(op) => step.inputs_of(op),
            Instruction::Ensure { from, to } => step.tensors(from, to),
            _ => &[],
        };
        let mut there = storages.pinned + storages.evictable(read);
        if let Instruction::Op(op) = instruction {
            let (spec, _) = step.op(op, Mutations::Recorded);
            let fresh = spec.outputs.iter().map(|&output| match output {
                Output::Fresh { bytes, device } => on_bounded(bytes, device),
                Output::Alias { .. } | Output::InPlace { .. } => 0,
            });
            there += fresh.sum::<u64>() + on_bounded(spec.workspace, spec.workspace_device);
        }
        tell(&mut engine, step, instruction, Clock::Recorded)
            .map_err(|error| Unsound { event, error })?;
        storages.note(step, instruction);
        storages.note_pinned(&engine, step, instruction);
        most = most.max(there).max(storages.pinned);
    }
    Ok(Bytes(most))
}

fn on_bounded(bytes: Bytes, device: DeviceId) -> u64 {
    if device == BOUNDED { bytes.0 } else { 0 }
}

/// The storages of a run as far as it was told.
#[derive(Default)]
struct Storages {
    /// The storage of each tensor.
    of: Vec<u32>,
    all: Vec<Stored>,
    /// A tensor of each storage that an op made, by the engine's number of the storage.
    known: HashMap<StorageId, TensorId>,
    /// Bytes of what is pinned and referred to.
    pinned: u64,
}

#[derive(Clone, Copy, Default)]
struct Stored {
    bytes: u64,
    references: u32,
    pinned: bool,
}

impl Storages {
    fn of(&self, tensor: TensorId) -> Stored {
        let storage = self.of.get(tensor.index());
        storage.map_or_else(Stored::default, |&storage| self.all[storage as usize])
    }

    /// Bytes of what can be dropped among the storages of tensors.
    fn evictable(&self, tensors: &[TensorId]) -> u64 {
        let storages = tensors
            .iter()
            .filter_map(|tensor| self.of.get(tensor.index()));
        let mut storages: Vec<u32> = storages.copied().collect();
        storages.sort_unstable();
        storages.dedup();
        let stored = storages.iter().map(|&storage| self.all[storage as usize]);
        stored.filter(|s| !s.holds()).map(|s| s.bytes).sum()
    }

    fn note(&mut self, step: &Recorded, instruction: Instruction) {
        match instruction {
            Instruction::Constant { bytes, device } => {
                self.make(on_bounded(bytes, device), true);
            }
            Instruction::Op(op) => self.note_op(step, op),
            Instruction::Retain(tensor) => self.change(tensor, |stored| stored.references += 1),
            Instruction::Release(tensor) => self.change(tensor, |stored| {
                stored.references = stored.references.saturating_sub(1);
            }),
            Instruction::Pin(tensor) => self.change(tensor, |stored| stored.pinned = true),
            Instruction::Ensure { .. } | Instruction::Plan(_) | Instruction::Bring(_) => {}
        }
    }

    fn note_op(&mut self, step: &Recorded, op: u32) {
        let (spec, _) = step.op(op, Mutations::Recorded);
        for output in spec.outputs {
            match *output {
                Output::Fresh { bytes, device } => self.make(on_bounded(bytes, device), false),
                Output::Alias { of } => {
                    let tensor = spec.inputs.get(of).copied();
                    let storage = tensor.and_then(|tensor| self.of.get(tensor.index()).copied());
                    match storage {
                        Some(storage) => {
                            self.of.push(storage);
                            let alias = TensorId(self.of.len() as u32 - 1);
                            self.change(alias, |stored| stored.references += 1);
                        }
                        None => self.make(0, false), // the engine refuses it
                    }
                }
                // The bytes of the old value are those of the new one.
                Output::InPlace { of } => {
                    let old = spec.inputs.get(of).copied().unwrap_or(TensorId(u32::MAX));
                    let Stored { bytes, pinned, .. } = self.of(old);
                    self.change(old, |stored| stored.pinned = false);
                    self.make(bytes, pinned);
                }
            }
        }
    }

    /// Takes in what the engine pinned of itself: results of ops that write into constants, and what is computed from
    /// values that they overwrite.
    fn note_pinned(&mut self, engine: &Engine, step: &Recorded, instruction: Instruction) {
        let made = match instruction {
            Instruction::Op(op) => step.outputs_of(op, Mutations::Recorded).len(),
            _ => 0,
        };
        for tensor in self.of.len() - made..self.of.len() {
            let tensor = TensorId(tensor as u32);
            if let Some(storage) = engine.storage(tensor) {
                self.known.insert(storage, tensor);
                if engine.is_pinned(storage) {
                    self.change(tensor, |stored| stored.pinned = true);
                }
            }
        }
        for storage in engine.newly_pinned() {
            if let Some(&tensor) = self.known.get(storage) {
                self.change(tensor, |stored| stored.pinned = true);
            }
        }
    }

    fn make(&mut self, bytes: u64, pinned: bool) {
        self.of.push(self.all.len() as u32);
        self.all.push(Stored {
            bytes,
            references: 1,
            pinned,
        });
        self.pinned += if pinned { bytes } else { 0 };
    }

    fn change(&mut self, tensor: TensorId, change: impl FnOnce(&mut Stored)) {
        if let Some(&storage) = self.of.get(tensor.index()) {
            let stored = &mut self.all[storage as usize];
            let held = stored.holds();
            change(stored);
            match (held, stored.holds()) {
                (false, true) => self.pinned += stored.bytes,
                (true, false) => self.pinned -= stored.bytes,
                _ => {}
            }
        }
    }
}

impl Stored {
    /// Whether its bytes stay whatever is evicted.
    fn holds(&self) -> bool {
        self.pinned && self.references > 0
    }
}
