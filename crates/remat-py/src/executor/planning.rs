//! Steps planned in the background: the engine records each, a thread plans it, and the engine follows the plan.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use remat_core::{Bytes, Guide, Recorded, StepMark};
use remat_plan::step::{PlannedStep, PlannedSteps};

use super::plan_files::PlanFiles;
use super::plan_job::{Found, Jobs};
use super::plan_search::Memory;
use super::step_clock::StepClock;

/// A plan that was given and is for another device, or for more bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum UnfitPlan {
    /// It is an error.
    Refused,
    /// It is not followed.
    Left,
}

/// The plans of a run.
pub struct Planning {
    /// The steps that are being planned, and the plans that are followed, with the device and the budget as the user
    /// gave it.
    jobs: Jobs,
    seed: u64,
    files: PlanFiles,
    /// The plans to follow, and no others.
    given: Option<PlannedSteps>,
    /// The clock, if it may decide whether plans stay.
    clock: Option<StepClock>,
    /// Faults of files, a line each.
    troubles: Vec<String>,
    /// Plans that were made by other runs.
    loaded: u64,
    /// Steps that were recorded.
    found: u64,
    /// Steps of which a plan was adopted.
    adopted: u64,
    /// Plans that took the place of the first one of a step, which was made in a hurry.
    improved: u64,
    /// Steps for which there is no plan.
    hopeless: u64,
}

impl Planning {
    /// Plans with this seed, kept in these files. Those that save little are tried by the clock if `timed`, unless they
    /// were given.
    ///
    /// # Errors
    /// What is wrong with the file that was given or is to be written, in one line.
    pub fn new(seed: u64, files: PlanFiles, timed: bool) -> Result<Planning, String> {
        files.check_out()?;
        let timed = timed && files.given.is_none();
        Ok(Planning {
            clock: timed.then(StepClock::default),
            jobs: Jobs::new(files.clone(), PlannedSteps::new("", 0)),
            seed,
            given: files.given()?,
            files,
            troubles: Vec::new(),
            loaded: 0,
            found: 0,
            adopted: 0,
            improved: 0,
            hopeless: 0,
        })
    }

    /// Whether steps are learned: not where a plan was given.
    pub fn learns(&self) -> bool {
        self.given.is_none()
    }

    /// Whether the plan that was given is for this device.
    pub(super) fn is_given_for(&self, device: &str) -> bool {
        let given = self.given.as_ref();
        given.is_some_and(|given| given.device == device)
    }

    /// Drops the plans that were followed so far and those under way, and takes those that other runs made for a
    /// budget, in bytes as the user gave it. Plans that keep results are for runs that can.
    ///
    /// # Errors
    /// In one line, that the plan that was given is for another device or more bytes, or keeps results and the run
    /// cannot. None is followed then.
    pub(super) fn load(
        &mut self,
        device: &str,
        budget: u64,
        keeps: bool,
    ) -> Result<Vec<Guide>, String> {
        let can_follow = |step: &PlannedStep| keeps || step.guide.kept().is_empty();
        self.jobs = Jobs::new(self.files.clone(), PlannedSteps::new(device, budget));
        let steps = match &self.given {
            Some(given) if !given.steps.iter().all(can_follow) => {
                return Err(
                    "the plan keeps results that the program lets go of, which is not possible where ops come \
                     through Python: have one made there (plan_out, --plan-out)"
                        .into(),
                );
            }
            Some(given) if given.device == device && given.budget_bytes <= budget => {
                given.steps.clone()
            }
            Some(given) => {
                return Err(format!(
                    "the plan is for {} on {}, the budget is {} on {device}: \
                     have one made for it (plan_out, --plan-out)",
                    Bytes(given.budget_bytes),
                    given.device,
                    Bytes(budget),
                ));
            }
            None => {
                let (steps, trouble) = self.files.cached(device, budget);
                self.troubles.extend(trouble);
                steps.into_iter().filter(can_follow).collect()
            }
        };
        self.loaded += steps.len() as u64;
        let guides = steps.iter().map(|step| step.guide.clone()).collect();
        let mut plans = self.jobs.plans();
        for step in steps {
            plans.add(step);
        }
        drop(plans);
        Ok(guides)
    }

    /// The process is the child of a fork, where the threads are not.
    pub fn leave(self) {
        std::mem::forget(self.jobs);
    }

    /// Ends planning, and writes the plans of the run where none was made. Returns what went wrong with files, a line
    /// each.
    pub fn close(&mut self) -> Vec<String> {
        let used = self.jobs.plans().device.clone();
        let unused = self.given.as_ref().filter(|_| self.loaded == 0);
        if let Some(given) = unused.filter(|given| given.device != used) {
            let device = &given.device;
            self.troubles.push(format!(
                "the plan was not followed: it is for {device}, and the budget was on {used}"
            ));
        }
        // Plans may be ready that no op came to adopt.
        self.take_plans();
        let is_written = !self.jobs.are_under_way() && self.adopted > 0;
        self.jobs.stop();
        if !is_written && self.files.out.is_some() {
            let written = self.files.write_out(&self.jobs.plans());
            self.troubles.extend(written.err());
        }
        std::mem::take(&mut self.troubles)
    }

    /// The plans that were made since the last call. They are adopted.
    pub(super) fn take_plans(&mut self) -> Vec<Guide> {
        let mut adopted = Vec::new();
        for found in self.jobs.take() {
            match found {
                Found::First(guide) => {
                    self.adopted += 1;
                    adopted.push(guide);
                }
                Found::Better(guide) => {
                    self.improved += 1;
                    adopted.push(guide);
                }
                Found::Nothing => self.hopeless += 1,
                Found::Trouble(trouble) => self.troubles.push(trouble),
            }
        }
        adopted
    }

    /// The program began, ended or left a planned step. The guide of one that ended, by its hash, and how many
    /// nanoseconds it took, if the clock may decide.
    pub(super) fn note(&mut self, mark: StepMark) -> Option<(u64, u64)> {
        self.clock.as_mut()?.note(mark)
    }

    /// Whether a step can be planned now.
    #[inline]
    pub(super) fn may_start(&self) -> bool {
        self.jobs.may_start()
    }

    /// Plans a step in the background.
    pub(super) fn start(&mut self, recorded: Recorded, memory: Memory) {
        self.found += 1;
        if self.jobs.start(recorded, memory, self.seed).is_err() {
            self.hopeless += 1;
        }
    }

    /// Writes the counters of plans into a dictionary.
    ///
    /// # Errors
    /// Those of Python.
    pub(super) fn write(&self, d: &Bound<'_, PyDict>) -> PyResult<()> {
        d.set_item("loaded", self.loaded)?;
        d.set_item("found", self.found)?;
        d.set_item("adopted", self.adopted)?;
        d.set_item("improved", self.improved)?;
        d.set_item("hopeless", self.hopeless)?;
        d.set_item("under_way", self.jobs.are_under_way())?;
        let plans = self.jobs.plans();
        let latest = plans.steps.last();
        let places = latest.and_then(|step| step.guide.places());
        d.set_item("placed_bytes", places.map(|places| places.bytes()))?;
        d.set_item("planned_peak", latest.and_then(|step| step.peak_bytes))?;
        d.set_item("planned_overhead", latest.and_then(planned_overhead))?;
        d.set_item("least_overhead", latest.and_then(least_overhead))
    }
}

fn planned_overhead(step: &PlannedStep) -> Option<f64> {
    let planned = step.guide.planned();
    overhead(planned.replayed.0, planned.first.0)
}

fn least_overhead(step: &PlannedStep) -> Option<f64> {
    let cost = step.guide.planned().first.0;
    overhead(step.bound_ns.saturating_sub(cost), cost)
}

/// Time of recomputing as a part of the time of ops.
pub(super) fn overhead(again: u64, cost: u64) -> Option<f64> {
    (cost > 0).then(|| again as f64 / cost as f64)
}
