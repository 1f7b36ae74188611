//! Steps that repeat: learned while they run, and followed as planned; and actions of plans, told one by one.

use super::contract::Engine;
use super::validity::check_size;
use crate::error::Error;
use crate::graph::Phase;
use crate::guide::{Guide, Guided, Guides, Planned, Recorded, StepMark};
use crate::ids::{Bytes, Cost, DeviceId, StorageId, TensorId};
use crate::transaction::Call;

impl Engine {
    /// Looks for steps that repeat from now on, to be planned for the memory of a device. Nothing else changes.
    ///
    /// A step is a period of what the engine is told: it came twice, the program refers to as much after it as before
    /// it, and ops were replayed in it. Watching begins after the first replay. Before, it begins once more than three
    /// fifths of the device's budget were needed: as long as nothing is replayed, steps without replays are found, if a
    /// quarter of all memory that rose and fell so far rises and falls in them, and sixteen times as much as is more or
    /// less after them.
    ///
    /// Watching takes constant time an op, on average, and 80 bytes for each of the last 2^20. Steps that are
    /// [followed](Engine::follow) already are not learned.
    pub fn learn_steps(&mut self, device: DeviceId) {
        self.learns = Some(device);
    }

    /// [`learn_steps`](Engine::learn_steps), also for steps in which nothing is replayed, such as those of a program
    /// that runs without a budget. Much of the memory must rise and fall in such a step.
    ///
    /// ```
    /// use remat_core::*;
    ///
    /// let mut engine = Engine::new(Config::default());
    /// engine.learn_all_steps(DeviceId(0));
    /// let weights = engine.constant(Bytes(10), DeviceId(0))?;
    /// let (workspace, workspace_device) = (Bytes(0), DeviceId(0));
    /// let mut step = None;
    /// for _ in 0..4 {
    ///     let mut made = vec![weights];
    ///     for number in 0..50 {
    ///         let inputs = &made[made.len() - 1..];
    ///         let outputs = &[Output::Fresh { bytes: Bytes((1 << 20) + number), device: DeviceId(0) }];
    ///         let spec = OpSpec { inputs, outputs, workspace, workspace_device, replay: Replay::Allowed };
    ///         let op = engine.begin(&spec)?;
    ///         engine.finish(op, &Finished { cost: Cost(5), bytes: None })?;
    ///         made.push(engine.outputs(op)[0]);
    ///     }
    ///     made[1..].iter().try_for_each(|&tensor| engine.release(tensor))?;
    ///     engine.collected();
    ///     step = step.or(engine.recorded_step());
    /// }
    /// assert_eq!(step.map(|step| step.signatures.len()), Some(50));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn learn_all_steps(&mut self, device: DeviceId) {
        self.learns = None;
        self.guides().learn_all_for(device);
    }

    /// A step of the program begins with the op that is announced next. A front end may tell so; from then on, the
    /// steps that are learned are those between two calls, or up to eight of them in a row, however much the program
    /// refers to after them.
    pub fn mark_step(&mut self) {
        if let Some(guides) = &mut self.guides {
            guides.mark_step();
        }
    }

    /// A step of the program may begin with the op that is announced next, as after an optimizer's step. A front end
    /// may tell so: a program may have several kinds of step that come in no order, such as those on batches of a few
    /// lengths. If what comes between two calls comes again and again, and not in turns, it is a step.
    pub fn may_begin_step(&mut self) {
        if let Some(guides) = &mut self.guides {
            guides.may_begin_step();
        }
    }

    /// Watches what repeats from now on, if steps are learned and either an op was replayed or memory is not plentiful.
    pub(super) fn start_to_learn(&mut self) {
        let Some(device) = self.learns else {
            return;
        };
        let replayed = self.state.counters.replays > 0;
        if !replayed && self.state.accounts.get(device.0).is_plentiful() {
            return;
        }
        self.learns = None;
        let guides = self.guides();
        if replayed {
            guides.learn_for(device);
        } else {
            guides.learn_all_until_replayed(device);
        }
    }

    fn guides(&mut self) -> &mut Guides {
        let graph = &self.state.graph;
        let forgoes = self.forgoes;
        let new = || {
            let mut guides = Box::new(Guides::new(graph));
            if forgoes {
                guides.forgo_records();
            }
            guides
        };
        self.guides.get_or_insert_with(new)
    }

    /// The step that was recorded since the last call, if there is one. It came twice before.
    pub fn recorded_step(&mut self) -> Option<Recorded> {
        self.guides.as_mut()?.take_recorded()
    }

    /// Follows a plan from now on, whenever ops come as it expects. What it has happen is done beside what the policy
    /// decides, and only where it fits: bits, the budget and what is refused stay as they are without it.
    ///
    /// A guide of the same ops is replaced when its step begins the next time. One that replays more than is replayed
    /// without it, as a part of the step's time and three steps in a row, is given up. A step whose ops or replays take
    /// more than a tenth longer or shorter than [planned](Guide::planned), eight times in a row, is recorded again
    /// while it is followed, if steps are learned.
    pub fn follow(&mut self, guide: Guide) {
        self.guides().follow(guide);
    }

    /// In planned steps, ops need no record from now on where a plan has [no use](Guide::unrecorded) for one. An op of
    /// these that is announced makes constants, and those that have forms need not be announced.
    ///
    /// Their results stay where the program departs from the plan, until it lets go of them: an op may then be
    /// refused that would be met if all had records.
    pub fn forgo_records(&mut self) {
        self.forgoes = true;
        if let Some(guides) = &mut self.guides {
            guides.forgo_records();
        }
    }

    /// Results of the op announced last that a followed plan [keeps](Guide::kept) after the last reference went, until
    /// it drops them or memory is short. A front end whose storages die with their last reference saves the bytes of
    /// these, or tells that it [cannot](Engine::do_not_keep).
    #[inline]
    pub fn kept_results(&self) -> &[StorageId] {
        let guides = self.guides.as_ref();
        guides.map_or(&[], |guides| guides.kept_results())
    }

    /// A storage goes with its last reference, whatever a plan says: its bytes are not there any more.
    pub fn do_not_keep(&mut self, storage: StorageId) {
        if let Some(storage) = self.state.graph.storages.get_mut(storage.index()) {
            storage.kept = false;
        }
    }

    /// The op that is announced next is of this form. The numbers of forms are the front end's, and not 0.
    #[inline]
    pub fn note_form(&mut self, form: u64) {
        if let Some(guides) = &mut self.guides {
            guides.note_form(form);
        }
    }

    /// Whether an op of this [form](Engine::note_form) need not be announced: it comes next in a planned step that was
    /// followed once with forms noted, and the plan's [guide](Guide::unrecorded) says that it needs no record.
    #[inline]
    pub fn may_pass(&self, form: u64) -> bool {
        let guides = self.guides.as_ref();
        guides.is_some_and(|guides| guides.may_pass(form))
    }

    /// The most bytes that results without records take at a time in the planned step that the program is in, but for
    /// those that are constants anyway; `None` if its plan does not say, or outside of planned steps.
    #[inline]
    pub fn unrecorded_most(&self) -> Option<Bytes> {
        self.guides.as_ref()?.unrecorded_most()
    }

    /// An op that [may pass](Engine::may_pass) runs, in so much time, and makes so many results. All it reads is there,
    /// it overwrites nothing that a remembered op reads or makes, and there is room for it. Its results are constants,
    /// told by [`constant_of`](Engine::constant_of) before anything else is told while they are there. Returns its
    /// number for that, and whether a planned step ends with it.
    ///
    /// # Errors
    /// [`Error::Overflow`] if the clock would pass 63 bits.
    pub fn pass(&mut self, cost: Cost, outputs: usize) -> Result<(u64, bool), Error> {
        check_size(self.state.clock.saturating_add(cost.0))?;
        let state = &mut self.state;
        state.clock += cost.0;
        let first = &mut state.counters.first_cost.0;
        *first = first.saturating_add(cost.0);
        let Some(guides) = &mut self.guides else {
            return Ok((0, false));
        };
        let (number, ended, unsought) = guides.pass(outputs, &state.counters);
        if unsought {
            state.eviction.forget_scores(&mut state.graph);
        }
        Ok((number, ended))
    }

    /// The [form](Engine::note_form) of the op that comes next in a planned step, if it may pass and nobody need take
    /// note of its results: they were [gone](Engine::note_gone) again when a step of the plan ended. What there is of
    /// such results when anything else is told is one [constant](Engine::constant_elsewhere).
    #[inline]
    pub fn next_transient(&self) -> Option<u64> {
        self.guides.as_ref()?.next_transient()
    }

    /// An op that [passed](Engine::pass) with this number left so many results of which the front end took note. `None`
    /// if it has to take note of them in every step.
    #[inline]
    pub fn note_left(&mut self, op: u64, results: Option<u32>) {
        if let Some(guides) = &mut self.guides {
            guides.note_left(op, results);
        }
    }

    /// A result of the op that passed with this number is there no more, and no op that was announced read it.
    #[inline]
    pub fn note_gone(&mut self, op: u64) {
        if let Some(guides) = &mut self.guides {
            guides.note_gone(op);
        }
    }

    /// A result of a [transient](Engine::next_transient) op was asked for. All results are noted in the step that
    /// begins next; where that is so again and again, in all steps.
    pub fn note_asked(&mut self) {
        if let Some(guides) = &mut self.guides {
            guides.note_asked();
        }
    }

    /// [`constant`](Engine::constant) for a result of the op that [passed](Engine::pass) with this number. It needs no
    /// room: its bytes were counted when the op was let pass. No steps follow.
    ///
    /// # Errors
    /// [`Error::Overflow`] for sizes beyond 63 bits.
    pub fn constant_of(
        &mut self,
        op: u64,
        output: u32,
        bytes: Bytes,
        device: DeviceId,
    ) -> Result<TensorId, Error> {
        let tensor = self.add_elsewhere(bytes, device)?;
        if let Some(guides) = &mut self.guides {
            guides.constant_of(&self.state.graph, tensor, op, output);
        }
        Ok(tensor)
    }

    /// An op that [passed](Engine::pass) with this number overwrote a constant, as this output of it. Nothing is noted
    /// of one that is a constant with a record too.
    pub fn note_overwritten(&mut self, constant: TensorId, op: u64, output: u32) {
        if let Some(guides) = &mut self.guides {
            guides.note_overwritten(constant, op, output);
        }
    }

    /// Whether a tensor is of a constant that no op [without a record](Engine::pass) made.
    pub fn is_constant_anyway(&self, tensor: TensorId) -> bool {
        let graph = &self.state.graph;
        let storage = graph.tensors.get(tensor.index()).map(|t| t.storage);
        let pinned = storage.is_some_and(|storage| graph[storage].pinned);
        pinned && !self.is_unrecorded(tensor)
    }

    /// Whether an op of a planned step made a tensor without a record, where a record would have let it be evicted.
    #[inline]
    pub fn is_unrecorded(&self, tensor: TensorId) -> bool {
        let guides = self.guides.as_ref();
        guides.is_some_and(|guides| guides.is_unrecorded(tensor))
    }

    /// A front end would [pin](Engine::pin) a tensor that is a constant already, as its op left no record. Planned
    /// steps are told apart by which inputs of their ops are pinned.
    pub fn note_constant(&mut self, tensor: TensorId) {
        if let Some(guides) = &mut self.guides {
            guides.note_constant(tensor);
        }
    }

    /// The program holds more than the plan has it: the rest of the planned step is recorded.
    pub fn record_rest(&mut self) {
        if let Some(guides) = &mut self.guides {
            guides.record_rest();
        }
    }

    /// Ops run of which the engine is [told nothing](Engine::is_idle). Steps are sought among those that are announced
    /// after them.
    #[inline]
    pub fn note_gap(&mut self) {
        if let Some(guides) = &mut self.guides {
            guides.note_gap();
        }
    }

    /// The op that passed last raised an error: the program is not where a plan has it.
    pub fn lose_place(&mut self) {
        if let Some(guides) = &mut self.guides {
            guides.lose_place();
        }
    }

    /// Performs an action of a plan now, for a front end that knows by itself where in a plan it is: steps follow. A
    /// storage that is not there or must stay is not dropped, and an op whose results are all there does not run. Room
    /// that an op lacks is made by the policy.
    ///
    /// ```
    /// use remat_core::*;
    ///
    /// let mut engine = Engine::new(Config { budgets: vec![Some(Bytes(100))], ..Config::default() });
    /// let weights = engine.constant(Bytes(10), DeviceId(0))?;
    /// let fresh = [Output::Fresh { bytes: Bytes(60), device: DeviceId(0) }];
    /// let (inputs, workspace, workspace_device) = (&[weights][..], Bytes(0), DeviceId(0));
    /// let spec = OpSpec { inputs, outputs: &fresh, workspace, workspace_device, replay: Replay::Allowed };
    /// let op = engine.begin(&spec)?;
    /// engine.finish(op, &Finished { cost: Cost(5), bytes: None })?;
    /// let made = engine.storage(engine.outputs(op)[0]).unwrap();
    ///
    /// engine.perform(Planned::Drop(made))?;
    /// assert_eq!(engine.steps(), [Step::Evict(made)]);
    /// engine.perform(Planned::Run(op))?;
    /// assert_eq!(engine.steps(), [Step::Recompute { op, mutation: Mutation::Consume }]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`begin`](Engine::begin); nothing is performed then. [`Error::Protocol`] also for an op of which an input is
    /// not there.
    pub fn perform(&mut self, action: Planned) -> Result<(), Error> {
        let state = &mut self.state;
        let known = match action {
            Planned::Drop(storage) => state.graph.storages.get(storage.index()).map(|s| s.used),
            Planned::Run(op) | Planned::RunInPlace(op) => {
                let op = state.graph.ops.get(op.index());
                op.map(|op| op.phase == Phase::Done)
            }
        };
        if known != Some(true) {
            return Err(Error::Protocol(
                "a plan names what is not there, or did not run",
            ));
        }
        state.open_call();
        self.planner.plan_one(state, action)?;
        state.journal.stop();
        state.call = Call::Plan;
        if let Some(guides) = &mut self.guides {
            guides.note_steps(&self.state.steps);
        }
        Ok(())
    }

    /// The constant, op or [action](Engine::perform) that is told next takes its blocks at these addresses of the
    /// arena, wherever they are free: those of the results that take a block, in their order, and then that of the
    /// workspace. Other blocks are placed as always. Where bytes are only counted, nothing changes.
    ///
    /// ```
    /// use remat_core::*;
    ///
    /// let memory = Memory::Arena(Arena::default());
    /// let mut engine = Engine::new(Config { budgets: vec![Some(Bytes(1024))], memory, ..Config::default() });
    /// engine.place_next(&[512]);
    /// let weights = engine.constant(Bytes(10), DeviceId(0))?;
    /// assert_eq!(engine.address(engine.storage(weights).unwrap()), Some(512));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn place_next(&mut self, addresses: &[u64]) {
        let next = &mut self.state.demand.planned_next;
        next.clear();
        next.extend_from_slice(addresses);
    }

    /// The planned step that [ended](StepMark::Ended) last took so many nanoseconds, by the [hash](Guide::hash) of its
    /// guide. A front end that measures time tells so after each.
    ///
    /// A guide that is to save less than 3% of a step is tried by these times: its step runs with it and without it in
    /// turn, 21 times in all, and the guide is given up, and not learned again, if steps are shorter without it by 2%.
    /// Where nobody tells, no guide is tried.
    pub fn step_took(&mut self, hash: u64, nanoseconds: u64) {
        if let Some(guides) = &mut self.guides {
            guides.took(hash, nanoseconds);
        }
    }

    /// The planned step that the program began, ended or left since the last call; the latest, if several.
    pub fn step_mark(&mut self) -> Option<StepMark> {
        self.guides.as_mut()?.take_mark()
    }

    /// Forgets all steps that were learned and all plans, as after a change of the budget; steps are learned anew.
    pub fn forget_steps(&mut self) {
        if let Some(guides) = &mut self.guides {
            guides.forget();
        }
    }

    /// Follows no plan from now on, and learns no step. What plans kept after its last reference went stays, and is
    /// dropped like anything else.
    pub fn leave_steps(&mut self) {
        self.learns = None;
        self.guides = None;
        for storage in &mut self.state.graph.storages {
            storage.kept = false;
        }
    }

    /// Counts of planned steps.
    pub fn guided(&self) -> Guided {
        let guides = self.guides.as_ref();
        guides.map(|guides| guides.counts()).unwrap_or_default()
    }
}
