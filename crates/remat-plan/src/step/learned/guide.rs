//! A plan of a recorded step, as an engine follows it.

use super::events::{translate, Translated};
use crate::step::model::error::StepError;
use crate::step::model::step::Step;
use crate::step::plan::step_plan::{Action, StepPlan};
use crate::step::search::planner::{Planner, Search};
use crate::step::search::rounds::Progress;
use remat_core::{Bytes, Guide, GuideAction, Recorded};
use remat_trace::Event;
use std::ops::ControlFlow;

/// A step that an engine recorded ([`Engine::recorded_step`](remat_core::Engine::recorded_step)).
pub struct Learned<'a> {
    recorded: &'a Recorded,
    translated: Translated,
}

impl<'a> Learned<'a> {
    /// From a recording.
    pub fn new(recorded: &'a Recorded) -> Learned<'a> {
        Learned {
            recorded,
            translated: translate(recorded),
        }
    }

    /// The step as a trace would hold it. The device that is planned is device 0.
    pub fn events(&self) -> &[Event] {
        &self.translated.events
    }

    /// Plans the step, for [`Engine::follow`](remat_core::Engine::follow). The search starts with what the engine
    /// replayed, beside the schedules that are known. What the program lets go of is gone, as it is with a real
    /// allocator; offline, a plan may hold it.
    ///
    /// # Errors
    /// As [`Planner::plan`], and [`StepError::Event`] for a recording whose events do not follow one another.
    pub fn plan(
        &self,
        budget: Bytes,
        mut search: Search,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<(StepPlan, Guide), StepError> {
        let Learned {
            recorded,
            translated,
        } = self;
        let step = Step::from_program(&translated.events)?;
        search.known.push(translated.reruns(&recorded.replays));
        let plan = Planner::new(&step).plan(budget, &search, watch)?;
        let actions = before_each(&plan, translated, recorded.signatures.len());
        let guide = Guide::new(recorded.signatures.clone(), &actions, recorded.replayed);
        let guide = guide.map_err(|_| StepError::Event {
            event: 0,
            fault: "starts a step in which an op is planned before it ran",
        })?;
        Ok((plan, guide))
    }
}

/// The plan's actions before the first run of each op of the step. What comes after the last one is left to the
/// program, which lets go of it.
fn before_each(plan: &StepPlan, translated: &Translated, ops: usize) -> Vec<Vec<GuideAction>> {
    let mut before: Vec<Vec<GuideAction>> = Vec::with_capacity(ops);
    let mut pending = Vec::new();
    for action in &plan.steps {
        match *action {
            Action::Run(op) | Action::RunInPlace(op) => match translated.ops[op as usize] {
                Some(place) if place as usize == before.len() => {
                    before.push(std::mem::take(&mut pending));
                }
                Some(place) => pending.push(match action {
                    Action::RunInPlace(_) => GuideAction::RunInPlace(place),
                    _ => GuideAction::Run(place),
                }),
                None => {}
            },
            Action::Free(storage) => {
                if let Some((op, output)) = translated.storages[storage as usize] {
                    pending.push(GuideAction::Drop { op, output });
                }
            }
        }
    }
    before
}
