//! The schedule that a policy comes to: which ops it replays, and where.

use crate::drive::{self, Seen, Telling, Unsound};
use crate::recorded::{Instruction, Recorded};
use crate::{Base, Budget, Program, Setting};
use remat_core::{Bytes, Cost, DeviceId, Policy, Step};
use remat_trace::Rerun;

/// The policies whose schedules are worth starting from when a better one is searched for.
pub const STARTING_POLICIES: [&str; 3] = ["dtr", "dtr-eq", "dtr-anc"];

/// The ops that ran again in a run that came to its end, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reruns {
    /// The ops, each as often as it ran again.
    pub runs: Vec<Rerun>,
    /// Their cost, in nanoseconds.
    pub cost: Cost,
    /// Highest memory of device 0.
    pub peak: Bytes,
}

impl Program {
    /// Replays the step inside a budget as [`run`](Program::run) does with [`Setting::default`], and tells which ops
    /// the policy recomputed. `None` if the budget cannot be met, or more was recomputed than the limit allows.
    ///
    /// ```
    /// use remat_core::{Bytes, Policy};
    /// use remat_sim::{Budget, Program};
    /// use remat_trace::{Event, Rerun, TraceOutput, TraceOutputKind};
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
    /// let found = program.reruns(&program.base()?, Policy::default(), Budget::Bytes(Bytes(80)))?.unwrap();
    /// assert_eq!(found.runs, [Rerun { op: 1, event: 4 }]);
    /// # Ok::<(), remat_sim::Unsound>(())
    /// ```
    ///
    /// # Errors
    /// [`Unsound`] if the events contradict one another.
    pub fn reruns(
        &self,
        base: &Base,
        policy: Policy,
        budget: Budget,
    ) -> Result<Option<Reruns>, Unsound> {
        let setting = Setting {
            budget,
            ..Setting::default()
        };
        let config = setting.config(base, policy, setting.dealloc);
        let numbers = numbers(self.recorded());
        let mut runs = Vec::new();
        let watch = |event: usize, seen: Seen<'_>| {
            let Seen::Steps(steps) = seen else { return };
            runs.extend(steps.iter().filter_map(|step| match step {
                Step::Recompute { op, .. } => Some(Rerun {
                    op: numbers[op.index()],
                    event: event as u32,
                }),
                Step::Evict(_) | Step::Move { .. } => None,
            }));
        };
        let (engine, stopped) = drive::watched(self.recorded(), config, Telling::default(), watch)?;
        Ok(stopped.is_none().then(|| Reruns {
            runs,
            cost: engine.counters().replayed_cost,
            peak: engine.peak(DeviceId(0)),
        }))
    }
}

/// The number among constants and ops of each op. The engine numbers ops alone, in the same order.
fn numbers(step: &Recorded) -> Vec<u32> {
    let mut next = 0;
    let made = step.instructions.iter().filter_map(|instruction| {
        let number = next;
        next += u32::from(matches!(
            instruction,
            Instruction::Constant { .. } | Instruction::Op(_)
        ));
        matches!(instruction, Instruction::Op(_)).then_some(number)
    });
    made.collect()
}
