//! Plans of learned steps. Many tests ask for the same ones, so each is made once.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use remat_core::{Bytes, Guide, Recorded};
use remat_plan::step::{Learned, Search, StepPlan, verify};

/// How a step is to be planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// The budget in bytes.
    pub budget: u64,
    /// Bytes that the plan may take.
    pub bytes: u64,
    pub iterations: u64,
    /// Whether the plan may keep results after the program let go of them.
    pub keeps: bool,
}

impl Asked {
    /// Plans a step.
    pub fn plan(self, recorded: &Recorded) -> (StepPlan, Guide) {
        let mut learned = Learned::new(recorded);
        if self.keeps {
            learned = learned.keeping();
        }
        let search = Search {
            iterations: Some(self.iterations),
            ..Search::default()
        };
        let watch = &mut |_: &_| ControlFlow::Continue(());
        let (budget, bytes) = (Bytes(self.budget), Bytes(self.bytes));
        let planned = learned.plan_beyond(budget, bytes, search, watch);
        let (plan, guide) = planned.expect("a plan");
        let verified = verify(learned.events(), &plan).expect("a valid plan");
        assert!(verified.peak_bytes <= self.bytes);
        (plan, guide)
    }

    /// The plan of a step, which is made if no test has asked for it yet.
    pub fn plan_once(self, recorded: &Recorded) -> (StepPlan, Guide) {
        type Made = Arc<OnceLock<(StepPlan, Guide)>>;
        static MADE: Mutex<Vec<(Asked, Recorded, Made)>> = Mutex::new(Vec::new());
        let mut all = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(asked, of, _): &&(Asked, Recorded, Made)| *asked == self && of == recorded;
        let made = if let Some((.., made)) = all.iter().find(same) {
            made.clone()
        } else {
            let made = Made::default();
            all.push((self, recorded.clone(), made.clone()));
            made
        };
        drop(all);
        made.get_or_init(|| self.plan(recorded)).clone()
    }
}
