//! Steps that the engine recorded are planned, and plans that are made are followed.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use remat_core::{DeviceId, StepMark};
use remat_plan::step::ArenaInUse;
use remat_trace::Planning;

use super::plan_search::Memory;
use super::planning::{self, UnfitPlan, overhead};
use super::state::Executor;
use crate::ffi::arena::{ALIGNMENT, SMALLEST};
use crate::ffi::counted;
use crate::tracking::devices::Follow;

impl Executor {
    /// How it is with a plan that does not fit the budget as the run begins. Where the budget may move to another
    /// device, a plan for that one may fit yet.
    pub fn unfit_at_first(&self) -> UnfitPlan {
        let name = self.devices.get(self.budget_device.0 as usize);
        let is_for = |planning: &planning::Planning| {
            name.is_some_and(|device| planning.is_given_for(&device.name))
        };
        if self.follow == Follow::Fixed || self.planning.as_ref().is_some_and(is_for) {
            UnfitPlan::Refused
        } else {
            UnfitPlan::Left
        }
    }

    /// Follows the plans that other runs made for the budget of the device that is planned, and no others. Steps are
    /// learned, but where a plan was given.
    ///
    /// # Errors
    /// `ValueError` for a given plan that is not for this budget, unless none is followed then.
    pub fn load_plans(&mut self, unfit_plan: UnfitPlan) -> PyResult<()> {
        let given = self.given(self.budget_device);
        let name = self.devices.get(self.budget_device.0 as usize);
        let (Some(planning), Some(given), Some(device)) = (&mut self.planning, given, name) else {
            return Ok(());
        };
        let mut told = Vec::new();
        if self.engine.guided().guides > 0 {
            told.push(Planning::Forget);
        } else {
            self.engine.forget_steps();
        }
        let loaded = planning.load(&device.name, given, self.keeps);
        let learns = planning.learns();
        let unfit = match loaded {
            Ok(guides) => {
                told.extend(guides.into_iter().map(Box::new).map(Planning::Follow));
                None
            }
            Err(unfit) => Some(unfit).filter(|_| unfit_plan == UnfitPlan::Refused),
        };
        if learns && unfit.is_none() {
            let DeviceId(device) = self.budget_device;
            told.push(Planning::Learn { device });
        }
        for told in told {
            self.tell_of_plans(told);
        }
        unfit.map_or(Ok(()), |unfit| Err(PyValueError::new_err(unfit)))
    }

    /// Tells the engine, and the trace, of planned steps.
    fn tell_of_plans(&mut self, told: Planning) {
        told.tell(&mut self.engine);
        if let Some(trace) = &mut self.trace {
            trace.plan(told);
        }
    }

    /// Has steps planned, and adopts plans that are made. Called after each op.
    pub fn tend_plans(&mut self) {
        self.tend_measured();
        let Some(planning) = &mut self.planning else {
            return;
        };
        let mark = self.engine.step_mark();
        if matches!(mark, Some(StepMark::Begun(_))) {
            self.unwatched.at_begin = counted::bytes();
        }
        let took = mark.and_then(|mark| planning.note(mark));
        let took = took.map(|(hash, nanoseconds)| Planning::Took { hash, nanoseconds });
        let made = planning.take_plans().into_iter();
        let made = made.map(|guide| Planning::Follow(Box::new(guide)));
        for told in took.into_iter().chain(made) {
            self.tell_of_plans(told);
        }
        self.plan_recorded();
    }

    /// Has the step planned that was recorded, if there is one and not too much is being planned.
    fn plan_recorded(&mut self) {
        let Some(planning) = self
            .planning
            .as_mut()
            .filter(|planning| planning.may_start())
        else {
            return;
        };
        let Some(recorded) = self.engine.recorded_step() else {
            return;
        };
        let keeps = self.keeps;
        let memory = match self.engine.arena(self.budget_device) {
            Some(pool) => Some(Memory::Arena(ArenaInUse {
                bytes: pool.capacity(),
                alignment: ALIGNMENT,
                smallest: SMALLEST,
                foreign: self.engine.unowned(self.budget_device),
                moves: self.engine.moves_blocks(),
            })),
            None => self
                .engine
                .budget(self.budget_device)
                .map(|budget| Memory::Counted { budget, keeps }),
        };
        if let Some(memory) = memory {
            planning.start(recorded, memory);
        }
    }

    /// Counters of plans; `None` where steps are not planned.
    pub fn plan_stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(planning) = &self.planning else {
            return Ok(None);
        };
        let guided = self.engine.guided();
        let d = PyDict::new(py);
        planning.write(&d)?;
        d.set_item("given_up", guided.given_up)?;
        d.set_item("steps", guided.steps)?;
        d.set_item("ops", guided.ops)?;
        d.set_item("unrecorded", guided.unrecorded)?;
        d.set_item("transient", self.unwatched.transient)?;
        d.set_item("departures", guided.departures)?;
        let placed = self.engine.arena(self.budget_device).is_some();
        for (name, count) in [
            ("placed", guided.placed),
            ("displaced", guided.displaced),
            ("settled", guided.settled),
            ("moves", guided.moves),
            ("searches", guided.searches),
        ] {
            d.set_item(name, placed.then_some(count))?;
        }
        d.set_item("overhead", overhead(guided.replayed.0, guided.cost.0))?;
        Ok(Some(d))
    }
}
