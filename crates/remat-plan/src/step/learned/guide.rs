//! A plan of a recorded step, as an engine follows it.

use super::drops::leave_out_drops;
use super::events::{Counted, Translated, translate};
use super::kept::kept;
use super::places::{ArenaInUse, Order, places};
use super::reads::Reads;
use super::unrecorded::{Unrecorded, unrecorded};
use crate::step::model::error::StepError;
use crate::step::model::step::Step;
use crate::step::model::writer::Kept;
use crate::step::plan::step_plan::{Action, StepPlan};
use crate::step::search::planner::{Planner, Search};
use crate::step::search::rounds::Progress;
use remat_core::{Bytes, Cost, Guide, GuideAction, Recorded, StepCosts};
use remat_trace::{Event, Rerun};
use std::ops::ControlFlow;

/// A plan beyond its budget lets ops go without records if it replays this part of the step's time, or less.
const EASY: u64 = 20;
/// Nor may it lack more than this part of the budget for that.
const LITTLE: u64 = 16;

/// A step that an engine recorded ([`Engine::recorded_step`](remat_core::Engine::recorded_step)).
///
/// Twenty layers and their gradients, trained within half of what they take:
///
/// ```
/// use remat_core::*;
/// use remat_plan::step::{Learned, Search};
/// use std::ops::ControlFlow;
///
/// fn run(engine: &mut Engine, inputs: &[TensorId]) -> Result<TensorId, Error> {
///     let outputs = &[Output::Fresh { bytes: Bytes(100), device: DeviceId(0) }];
///     let (workspace, workspace_device) = (Bytes(0), DeviceId(0));
///     let spec = OpSpec { inputs, outputs, workspace, workspace_device, replay: Replay::Allowed };
///     let op = engine.begin(&spec)?;
///     engine.finish(op, &Finished { cost: Cost(10), bytes: None })?;
///     Ok(engine.outputs(op)[0])
/// }
///
/// fn train(engine: &mut Engine, weights: TensorId) -> Result<(), Error> {
///     let mut layers = vec![run(engine, &[weights])?];
///     while layers.len() < 20 {
///         layers.push(run(engine, &[weights, layers[layers.len() - 1]])?);
///     }
///     let mut gradient = run(engine, &[weights])?;
///     while let Some(layer) = layers.pop() {
///         let next = run(engine, &[gradient, layer])?;
///         engine.release(gradient)?;
///         engine.release(layer)?;
///         gradient = next;
///     }
///     engine.release(gradient)
/// }
///
/// let budget = Bytes(1100);
/// let mut engine = Engine::new(Config { budgets: vec![Some(budget)], ..Config::default() });
/// engine.learn_steps(DeviceId(0));
/// let weights = engine.constant(Bytes(10), DeviceId(0))?;
/// for _ in 0..8 {
///     train(&mut engine, weights)?;
///     engine.collected();
///     if let Some(recorded) = engine.recorded_step() {
///         let search = Search { iterations: Some(10), ..Search::default() };
///         let watch = &mut |_: &_| ControlFlow::Continue(());
///         let (plan, guide) = Learned::new(&recorded).plan(budget, search, watch)?;
///         assert!(plan.peak_bytes <= 1100);
///         engine.follow(guide);
///     }
/// }
/// assert!(engine.guided().steps >= 2);
/// assert!(engine.peak(DeviceId(0)) <= budget);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Learned<'a> {
    recorded: &'a Recorded,
    translated: Translated,
    counted: Counted,
    keeps: Kept,
}

impl<'a> Learned<'a> {
    /// From a recording.
    pub fn new(recorded: &'a Recorded) -> Learned<'a> {
        Learned {
            recorded,
            translated: translate(recorded, Counted::All),
            counted: Counted::All,
            keeps: Kept::Nothing,
        }
    }

    /// From a recording made in an arena. What was there and lies elsewhere is not counted.
    pub fn in_arena(recorded: &'a Recorded) -> Learned<'a> {
        Learned {
            recorded,
            translated: translate(recorded, Counted::InArena),
            counted: Counted::InArena,
            keeps: Kept::Nothing,
        }
    }

    /// The same, for a front end that can keep the bytes of results after the program let go of them
    /// ([`Engine::kept_results`](remat_core::Engine::kept_results)). In an arena none are kept.
    pub fn keeping(self) -> Learned<'a> {
        let keeps = match self.counted {
            Counted::All => Kept::Results,
            Counted::InArena => Kept::Nothing,
        };
        Learned { keeps, ..self }
    }

    /// Adds addresses to a guide that was made of a plan of this step: those of all blocks that the plan takes, and of
    /// what is there when the step begins. Blocks that an arena of so many bytes does not hold get none.
    ///
    /// The recording is one of an engine whose memory is an arena. What stays from step to step keeps its address, if
    /// all blocks then find room; else it is moved once.
    ///
    /// Takes some tenths of a second at most, for steps of up to a few thousand ops; less where the blocks fit soon.
    pub fn place(&self, plan: &StepPlan, guide: Guide, arena: &ArenaInUse) -> Guide {
        let Learned {
            recorded,
            translated,
            ..
        } = self;
        let (_, order) = before_each(plan, translated, recorded.signatures.len());
        let places = places(translated, plan, &order, arena);
        // A guide of another plan stays as it is.
        guide.clone().with_places(places).unwrap_or(guide)
    }

    /// The step as a trace would hold it. The device that is planned is device 0.
    pub fn events(&self) -> &[Event] {
        &self.translated.events
    }

    /// The runs again of a plan of this step, for a search that goes on from it ([`Search::known`]).
    pub fn reruns(&self, plan: &StepPlan) -> Vec<Rerun> {
        self.translated.reruns_of(plan)
    }

    /// Plans the step, for [`Engine::follow`](remat_core::Engine::follow). The search starts with what the engine
    /// replayed, beside the schedules that are known. What the program lets go of is gone, as it is with a real
    /// allocator, unless the front end [keeps](Learned::keeping) it; offline, a plan may hold it.
    ///
    /// # Errors
    /// As [`Planner::plan`], [`StepError::Event`] for a recording whose events do not follow one another, and
    /// [`StepError::NoGain`] for a plan that the engine would give up.
    pub fn plan(
        &self,
        budget: Bytes,
        search: Search,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<(StepPlan, Guide), StepError> {
        self.plan_beyond(budget, budget, search, watch)
    }

    /// [`plan`](Learned::plan) within more bytes than the budget, for where none fits: what is missing the engine
    /// evicts online. Ops go without records as the budget allows, if the plan replays and lacks little: else so much
    /// has to be evicted online that all of it needs a record.
    ///
    /// # Errors
    /// As [`plan`](Learned::plan).
    pub fn plan_beyond(
        &self,
        budget: Bytes,
        bytes: Bytes,
        mut search: Search,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<(StepPlan, Guide), StepError> {
        let Learned {
            recorded,
            translated,
            counted,
            keeps,
        } = self;
        let step = Step::from_program(&translated.events, *keeps)?;
        search.known.push(translated.reruns(&recorded.replays));
        let plan = Planner::new(&step).plan(bytes, &search, watch)?;
        let (mut actions, order) = before_each(&plan, translated, recorded.signatures.len());
        let mut without = Unrecorded::default();
        let mut outlive = Vec::new();
        // In an arena each action has its places.
        if *counted == Counted::All {
            let reads = Reads::of(recorded);
            if *keeps == Kept::Results {
                outlive = kept(&plan, translated, &reads);
            }
            leave_out_drops(
                &plan,
                translated,
                &order,
                &reads,
                &outlive,
                budget,
                &mut actions,
            );
            let lacks = plan.peak_bytes.saturating_sub(budget.0);
            let easy = lacks <= budget.0 / LITTLE && plan.recompute_ns <= plan.cost_ns / EASY;
            if lacks == 0 || easy {
                without = unrecorded(&reads, &actions, budget);
            }
        }
        let times = StepCosts {
            first: Cost(plan.cost_ns),
            replayed: Cost(plan.recompute_ns),
        };
        let guide = Guide::new(
            recorded.signatures.clone(),
            &actions,
            recorded.costs(),
            times,
        );
        let guide = guide.and_then(|guide| guide.with_unrecorded(without.ops, without.most));
        let guide = guide.and_then(|guide| guide.with_kept(outlive));
        let guide = guide.map_err(|_| StepError::Event {
            event: 0,
            fault: "starts a step in which an op is planned before it ran",
        })?;
        if guide.is_hopeless() {
            return Err(StepError::NoGain {
                planned: times.replayed,
                replayed: recorded.replayed,
            });
        }
        Ok((plan, guide))
    }
}

/// The plan's actions before the first run of each op of the step, and which of the plan's steps they are. What comes
/// after the last one is left to the program, which lets go of it.
fn before_each(
    plan: &StepPlan,
    translated: &Translated,
    ops: usize,
) -> (Vec<Vec<GuideAction>>, Order) {
    let mut before: Vec<Vec<GuideAction>> = Vec::with_capacity(ops);
    let mut pending = Vec::new();
    let mut order = Order::default();
    let mut told = 0;
    for (step, action) in plan.steps.iter().enumerate() {
        match *action {
            Action::Run(op) | Action::RunInPlace(op) => match translated.ops[op as usize] {
                Some(place) if place as usize == before.len() => {
                    before.push(std::mem::take(&mut pending));
                    order.runs.push(step);
                    told = order.actions.len();
                }
                Some(place) => {
                    order.actions.push(step);
                    pending.push(match action {
                        Action::RunInPlace(_) => GuideAction::RunInPlace(place),
                        _ => GuideAction::Run(place),
                    });
                }
                None => {}
            },
            Action::Free(storage) => {
                if let Some((op, output)) = translated.storages[storage as usize] {
                    order.actions.push(step);
                    pending.push(GuideAction::Drop { op, output });
                }
            }
        }
    }
    order.actions.truncate(told);
    (before, order)
}
