//! Calls of a known form that are not recorded. Their results are constants of the engine. Bytes are counted as always.
//!
//! - A run that needs far less than its budget evicts nothing, so no record of it would ever be replayed. It is
//!   recorded from its first op on that would take more than three fifths of the budget. What it made before stays
//!   until the program drops it, like all constants.
//! - While a planned step is followed, those ops are not recorded that the plan does not replay and whose results it
//!   does not drop, as far as their results take little at a time.

use pyo3::prelude::*;
use remat_core::{Cost, Output, Replay, StorageId, TensorId};
use smallvec::SmallVec;

use super::forms::Known;
use super::known::{for_each_result, wrap_result};
use super::running::form_number;
use super::state::State;
use super::unwatched::bytes_counted_alone;
use crate::call::arguments::Registry;
use crate::call::record::GradMode;
use crate::call::stacked::Stacked;
use crate::ffi::boxed::{Value, storage_bytes};
use crate::ffi::counted;
use crate::ffi::dispatcher::Torch;
use crate::ffi::fastcall::call_one;
use crate::ffi::gil::Attach;
use crate::tracking::live::{Contents, LiveId, UNTOLD};

/// The storages that a call reads and overwrites, as they were found.
enum Found {
    /// It may all be used without a word to the engine. So many bytes are read.
    All(u64),
    /// The session does not know the storage of this argument.
    Unknown(u32),
    /// The call has to be told, or to go through Python.
    Unfit,
}

impl State {
    /// Whether a call of a known form needs no record: there is no other record, and the run never needed more than
    /// three fifths of the budget, this call included.
    pub(super) fn needs_no_record(&self, known: &Known) -> bool {
        let executor = &self.executor;
        let device = executor.budget_device;
        if self.ops < self.always_recorded || !executor.engine.is_idle() {
            return false;
        }
        let (Some(taken), Some(budget)) = (self.taken(known), executor.engine.budget(device))
        else {
            return false;
        };
        let ledger = &executor.ledger;
        let most = ledger
            .peak(device)
            .max(ledger.used(device).saturating_add(taken));
        most <= budget.plentiful().0
    }

    /// Whether a call of a known form comes next in a planned step, needs no record there, and finds room.
    /// If much is there already that has no record, the rest of the step is recorded.
    pub(super) fn may_pass(&mut self, known: &Known, stacked: &Stacked) -> bool {
        let executor = &self.executor;
        if !self.may_forgo_records() || !executor.engine.may_pass(form_number(stacked)) {
            return false;
        }
        let Some(finds_room) = self.finds_room(known, executor.used_watched()) else {
            return false;
        };
        if !executor.has_room_unrecorded(known.takes.made) {
            self.executor.engine.record_rest();
            return false;
        }
        finds_room
    }

    /// Whether ops of planned steps may go without records. In an arena the engine places results where a plan has
    /// them, and is told nothing of these.
    pub(super) fn may_forgo_records(&self) -> bool {
        self.executor.arena.is_none() && self.always_recorded != u64::MAX
    }

    /// Whether there is room for what a call takes, beside so many [`used_watched`](Executor::used_watched) bytes;
    /// `None` as for [`taken`](Self::taken).
    #[inline]
    pub(super) fn finds_room(&self, known: &Known, used_watched: u64) -> Option<bool> {
        let executor = &self.executor;
        let taken = self.taken(known)?;
        let budget = executor.engine.budget(executor.budget_device)?;
        let used = used_watched.saturating_add(counted::bytes());
        Some(used.saturating_add(taken) <= budget.0)
    }

    /// The bytes that a call takes beside its inputs; `None` if they are not all in the main memory that has the
    /// budget, or if the run is traced or drawn.
    #[inline]
    fn taken(&self, known: &Known) -> Option<u64> {
        let executor = &self.executor;
        let device = executor.budget_device;
        let unseen = executor.trace.is_none() && executor.storages.timeline.is_none();
        let here = known.takes.device == Some(device) && self.is_main_memory(device, &[]);
        (unseen && here).then_some(known.takes.all)
    }

    /// Tells the engine that a call goes as planned, and leaves no record. It reads so many bytes. Returns its number.
    pub(super) fn pass(&mut self, gil: impl Attach, known: &Known, read: u64) -> PyResult<u64> {
        let bytes = read.saturating_add(known.takes.made);
        let cost = self.costs.of_form(known.cost.nanoseconds(), bytes);
        let passed = self.executor.engine.pass(Cost(cost), known.outputs.len());
        let (number, ends) = passed.map_err(|e| self.executor.refusal(gil, &e))?;
        if ends {
            self.executor.tend_plans();
        }
        Ok(number)
    }

    /// Lets a call run without a record. Returns the bytes that it reads; `None` if it has to be told, or to go through
    /// Python.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    pub(super) unsafe fn begin_unrecorded(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        stacked: &Stacked,
        known: &Known,
    ) -> PyResult<Option<u64>> {
        if !known.uses_statistics_alike(&stacked.numbers) {
            return Ok(None);
        }
        let device = self.executor.budget_device;
        let used = self.executor.ledger.used(device);
        let mut latest = None;
        let read = loop {
            // SAFETY: as the caller promises.
            match unsafe { self.find_inputs(torch, stacked, known) } {
                Found::All(read) => break read,
                Found::Unknown(at) if latest != Some(at) => {
                    // Others may be evicted to make room for it, so all are looked at again.
                    // SAFETY: as the caller promises.
                    if unsafe { self.resolve_at(gil, torch, stacked, at)? }.is_none() {
                        return Ok(None);
                    }
                    latest = Some(at);
                }
                Found::Unknown(_) | Found::Unfit => return Ok(None),
            }
        };
        // An input may be the first view of much memory that was made out of the session's sight.
        let grew = self.executor.ledger.used(device) != used;
        if grew && !self.needs_no_record(known) && !self.may_pass(known, stacked) {
            return Ok(None);
        }
        self.ops += 1;
        if known.grad == GradMode::On {
            self.executor.storages.note_forward();
        }
        Ok(Some(read))
    }

    /// Looks at what a call reads and overwrites. If it may all be used without a word to the engine, none of it counts
    /// as blank any more.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    unsafe fn find_inputs(&mut self, torch: &Torch, stacked: &Stacked, known: &Known) -> Found {
        let storages = &self.executor.storages;
        let find = |at: u32| storages.find_at(stacked.storages[at as usize]);
        for &at in &known.roles.updated {
            match find(at) {
                Some((_, tensor)) if self.may_overwrite(tensor) => {}
                Some(_) => return Found::Unfit,
                None => return Found::Unknown(at),
            }
        }
        let mut read = 0;
        let mut blank: SmallVec<[LiveId; 4]> = SmallVec::new();
        for (index, &at) in (0..).zip(&known.roles.inputs) {
            let Some((id, tensor)) = find(at) else {
                // SAFETY: as the caller promises.
                match unsafe { bytes_counted_alone(torch, stacked.storages[at as usize]) } {
                    Some(bytes) => read += bytes, // a transient op made it
                    None => return Found::Unknown(at),
                }
                continue;
            };
            let Some(live) = storages.live(id) else {
                return Found::Unfit;
            };
            let written = known.form.written.contains(&index);
            let may_write = || live.outside.is_none() && !live.freed && self.may_overwrite(tensor);
            if !live.present || written && !may_write() {
                return Found::Unfit;
            }
            if live.blank {
                blank.push(id);
            }
            read += live.bytes;
        }
        for id in blank {
            if let Some(live) = self.executor.storages.live_mut(id) {
                live.blank = false;
            }
        }
        Found::All(read)
    }

    /// Whether a value may be overwritten without a word to the engine: it was not told of it, or it is a constant that
    /// nothing was computed from.
    fn may_overwrite(&self, tensor: TensorId) -> bool {
        tensor == UNTOLD || self.executor.engine.is_unread_constant(tensor)
    }

    /// Takes in the results of a call that ran without a record: they are constants. The number is that of the call for
    /// the engine, or 0.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned, and so are the tensors that it wrote to.
    pub(super) unsafe fn finish_unrecorded(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        known: &Known,
        number: u64,
        results: &[Value],
        stacked: &Stacked,
    ) -> PyResult<()> {
        let (passed, followed) = (number, number > 0);
        let constant = followed && self.makes_constants(gil, known, stacked)?;
        let number = if constant { 0 } else { number };
        let mut fresh = std::mem::take(&mut self.buffers.fresh);
        // SAFETY: as the caller promises.
        unsafe { self.sort_fresh(gil, torch, known, results, stacked, &mut fresh) };
        if !fresh.usual {
            self.known.remove(&stacked.key);
            self.buffers.fresh = fresh;
            self.executor.engine.note_left(passed, None);
            // SAFETY: as the caller promises.
            return gil.attach(|py| unsafe { self.adopt_results(py, torch, results) });
        }
        for storage in &fresh.storages {
            let output = storage.output as usize;
            let Output::Fresh { device, .. } = known.outputs[output] else {
                continue;
            };
            let bytes = fresh.sizes[output].0;
            self.executor.ledger.add(device, bytes);
            let contents = Contents {
                tensor: UNTOLD,
                sid: StorageId(u32::MAX),
                bytes,
                device,
            };
            // SAFETY: as the caller promises: the result, on the stack, owns the storage.
            let id = unsafe { self.insert_result(gil, torch, results, storage, contents)? };
            self.executor
                .storages
                .note_made(id, (number, storage.output));
            if let Some(live) = self.executor.storages.live_mut(id) {
                live.maker = number;
                // Its first value may have a record yet.
                live.blank = followed && known.func.blank;
            }
        }
        if followed {
            let stay = known.func.blank || constant && !fresh.storages.is_empty();
            let left = (!stay).then_some(fresh.storages.len() as u32);
            self.executor.engine.note_left(passed, left);
        }
        self.buffers.fresh = fresh;
        if number > 0 {
            self.executor
                .storages
                .note_unrecorded_at_once(known.takes.made);
        }
        let signature = &known.signature;
        let (device, workspace) = (signature.workspace_device, signature.workspace.0);
        self.executor.ledger.spike(device, workspace);
        for &input in &known.form.written {
            let storage = stacked.storages[known.roles.inputs[input as usize] as usize];
            let Some((id, _)) = self.executor.storages.find_at(storage) else {
                continue;
            };
            self.note_overwritten(id, known, input, number);
            let counted = self.executor.storages.live(id).map(|live| live.bytes);
            // SAFETY: as the caller promises, a tensor that is alive owns the storage.
            let bytes = unsafe { storage_bytes(torch.boxed, storage) };
            if counted.is_some_and(|counted| counted != bytes) {
                self.executor.tell_untold();
                gil.attach(|py| self.check_size(py, id))?;
            }
        }
        Ok(())
    }

    /// Whether the results of a call are constants with a record too: blank memory, gradients of leaves, tiny ones, and
    /// what was carried into a forward pass or is a constant itself before it is overwritten.
    fn makes_constants(
        &mut self,
        gil: impl Attach,
        known: &Known,
        stacked: &Stacked,
    ) -> PyResult<bool> {
        if known.func.blank || (known.func.accumulates && self.is_accumulating(gil)?) {
            return Ok(true);
        }
        let written = &known.form.written;
        if written.is_empty() {
            let replay = self.replay_of(&known.outputs, known.grad, &[], written);
            return Ok(replay == Replay::Forbidden);
        }
        let storages = &self.executor.storages;
        let inputs = known.roles.inputs.iter();
        let found = inputs.map(|&at| storages.find_at(stacked.storages[at as usize]));
        let lives: SmallVec<[LiveId; 4]> = found.flatten().map(|(id, _)| id).collect();
        if lives.len() < known.roles.inputs.len() {
            return Ok(false); // resized or let go of meanwhile
        }
        let replay = self.replay_of(&known.outputs, known.grad, &lives, written);
        let engine = &self.executor.engine;
        let is_constant = |&input: &u32| {
            let live = storages.live(lives[input as usize]);
            live.is_some_and(|live| live.tensor != UNTOLD && engine.is_constant_anyway(live.tensor))
        };
        Ok(replay == Replay::Forbidden || written.iter().any(is_constant))
    }

    /// An op of this number, if it is not 0, overwrote one of its inputs: it made the value that is there now.
    fn note_overwritten(&mut self, id: LiveId, known: &Known, input: u32, number: u64) {
        let overwrites =
            |output: &Output| matches!(*output, Output::InPlace { of } if of == input as usize);
        let (true, Some(output)) = (number > 0, known.outputs.iter().position(overwrites)) else {
            return;
        };
        let Some(live) = self.executor.storages.live_mut(id) else {
            return;
        };
        let output = output as u32;
        if live.tensor == UNTOLD {
            self.executor.storages.note_made(id, (number, output));
        } else {
            let tensor = live.tensor;
            self.executor
                .engine
                .note_overwritten(tensor, number, output);
        }
    }

    /// Takes in results that are not as the form says, like tensors that were made out of the session's sight.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned.
    unsafe fn adopt_results(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        results: &[Value],
    ) -> PyResult<()> {
        self.executor.tell_untold();
        let mut count = 0;
        // SAFETY: as the caller promises.
        unsafe { for_each_result(torch, results, &mut |_, _| count += 1) };
        for place in 0..count {
            // SAFETY: as the caller promises.
            let tensor = unsafe { wrap_result(py, torch, results, place)? };
            if !tensor.is_none() {
                if let Ok(storage) = call_one(&self.torch.untyped_storage, &tensor) {
                    self.executor.resolve(&storage)?;
                }
            }
        }
        Ok(())
    }
}
