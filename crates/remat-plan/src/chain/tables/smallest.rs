//! Tables of the least memory in which a chain can be done at all, to the byte.

use crate::chain::model::error::PlanError;
use crate::chain::model::progress::Pace;
use crate::chain::recurrences::recurrence::{Recurrence, State};
use crate::chain::tables::table::Table;

/// The least memory of each state, and a time in which it can be done within that.
pub(crate) struct Smallest {
    rows: Vec<(i64, f64)>,
}

impl Smallest {
    /// Bytes of a table of so many states.
    pub(crate) fn bytes(states: u128) -> u128 {
        states * 16
    }

    pub(crate) fn fill(
        recurrence: &impl Recurrence,
        pace: &mut Pace,
    ) -> Result<Smallest, PlanError> {
        let never = (i64::MAX, f64::INFINITY);
        let mut rows = vec![never; recurrence.states()];
        recurrence.in_order(|state| {
            let mut best = never;
            recurrence.choices(state, |choice| {
                let (first, less) = choice
                    .first
                    .map_or(((0, 0.0), 0), |(state, less)| (rows[state], less));
                let second = choice.second.map_or((0, 0.0), |state| rows[state]);
                if first == never || second == never {
                    return;
                }
                let candidate = (
                    choice.need.max(first.0 + less).max(second.0),
                    choice.time + first.1 + second.1,
                );
                if candidate < best {
                    best = candidate;
                }
            });
            rows[state] = best;
            pace.step()
        })?;
        Ok(Smallest { rows })
    }

    /// The least memory of a state.
    pub(crate) fn least(&self, state: State) -> i64 {
        self.rows[state].0
    }
}

impl Table for Smallest {
    fn time(&self, state: State, x: i64) -> f64 {
        let (least, time) = self.rows[state];
        if x >= least { time } else { f64::INFINITY }
    }
}
