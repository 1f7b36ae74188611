//! A run of a log, of a policy or of a plan.

use crate::log::Log;
use remat_sim::{Outcome, Plan, Setting};

/// A run, and how a row tells of it.
pub(super) struct Case<'a> {
    pub(super) policy: String,
    pub(super) dealloc: &'static str,
    pub(super) setting: Setting,
    pub(super) plan: Option<&'a Plan>,
}

impl Case<'_> {
    /// The outcome, or why there is none.
    pub(super) fn run(&self, log: &Log, thrash_limit: f64) -> Result<Outcome, String> {
        let (program, base) = (&log.program, &log.base);
        match self.plan {
            None => program
                .run(base, &self.setting)
                .map_err(|unsound| unsound.to_string()),
            Some(plan) => program
                .run_plan(base, plan, thrash_limit)
                .map_err(|misfit| misfit.to_string()),
        }
    }
}
