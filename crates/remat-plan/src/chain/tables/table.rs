//! Tables of dynamic programs, and the plans read off them.

use crate::chain::model::error::PlanError;
use crate::chain::model::sequence::{LONGEST, Op};
use crate::chain::recurrences::recurrence::{Choice, Recurrence, State, Step};

/// Least time by state and memory.
pub(crate) trait Table {
    /// Least time of a state with memory `x`; infinite if it cannot be done.
    fn time(&self, state: State, x: i64) -> f64;

    /// Least time of a choice with memory `x`.
    fn time_of(&self, choice: &Choice, x: i64) -> f64 {
        if x < choice.need {
            return f64::INFINITY;
        }
        let first = choice
            .first
            .map_or(0.0, |(state, less)| self.time(state, x - less));
        let second = choice.second.map_or(0.0, |state| self.time(state, x));
        choice.time + first + second
    }

    /// A choice that takes least in a state with memory `x`; `None` if there is none.
    fn best(&self, recurrence: &impl Recurrence, state: State, x: i64) -> Option<Choice> {
        let (mut best, mut least) = (None, f64::INFINITY);
        recurrence.choices(state, |choice| {
            let time = self.time_of(&choice, x);
            if time < least {
                (best, least) = (Some(choice), time);
            }
        });
        best
    }
}

/// The operations of the best plan with memory `x`; `None` if there is none.
pub(crate) fn sequence(
    recurrence: &impl Recurrence,
    table: &impl Table,
    x: i64,
) -> Result<Option<Vec<Op>>, PlanError> {
    if table.time(recurrence.root(), x).is_infinite() {
        return Ok(None);
    }
    enum Todo {
        Solve(State, i64),
        Emit(Op),
    }
    let mut ops = Vec::new();
    let mut todo = vec![Todo::Solve(recurrence.root(), x)];
    while let Some(next) = todo.pop() {
        let (state, x) = match next {
            Todo::Solve(state, x) => (state, x),
            Todo::Emit(op) => {
                ops.push(op);
                continue;
            }
        };
        let Some(choice) = table.best(recurrence, state, x) else {
            return Ok(None);
        };
        choice.step.before(|op| ops.push(op));
        if ops.len() > LONGEST {
            return Err(PlanError::TooLong { limit: LONGEST });
        }
        // Last in, first out.
        todo.extend(choice.second.map(|state| Todo::Solve(state, x)));
        todo.extend(Step::after(choice.step).map(Todo::Emit));
        todo.extend(
            choice
                .first
                .map(|(state, less)| Todo::Solve(state, x - less)),
        );
    }
    Ok(Some(ops))
}
