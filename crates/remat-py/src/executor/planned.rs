//! Steps that the engine recorded are planned, and plans that are made are followed.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::planning::overhead;
use super::state::Executor;

impl Executor {
    /// Follows the plans that other runs made for the budget of the device that is planned, and no others. Steps are
    /// learned, but where a plan was given.
    ///
    /// # Errors
    /// `ValueError` for a given plan that is not for this budget, if `wanted`; else none is followed.
    pub fn load_plans(&mut self, wanted: bool) -> PyResult<()> {
        let given = self.given(self.budget_device);
        let name = self.devices.get(self.budget_device.0 as usize);
        let (Some(planning), Some(given), Some(device)) = (&mut self.planning, given, name) else {
            return Ok(());
        };
        self.engine.forget_steps();
        match planning.load(&device.name, given) {
            Ok(guides) => guides
                .into_iter()
                .for_each(|guide| self.engine.follow(guide)),
            Err(unfit) if wanted => return Err(PyValueError::new_err(unfit)),
            Err(_) => {}
        }
        if planning.learns() {
            self.engine.learn_steps(self.budget_device);
        }
        Ok(())
    }

    /// Has steps planned, and adopts plans that are made. Called after each op.
    pub fn tend_plans(&mut self) {
        let Some(planning) = &mut self.planning else {
            return;
        };
        if let Some(mark) = self.engine.step_mark() {
            planning.note(mark, &mut self.engine);
        }
        if let Some(guide) = planning.take_plan() {
            self.engine.follow(guide);
        }
        if !planning.is_idle() {
            return;
        }
        let Some(recorded) = self.engine.recorded_step() else {
            return;
        };
        if let Some(budget) = self.engine.budget(self.budget_device) {
            planning.start(recorded, budget);
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
        d.set_item("departures", guided.departures)?;
        d.set_item("overhead", overhead(guided.replayed.0, guided.cost.0))?;
        Ok(Some(d))
    }
}
