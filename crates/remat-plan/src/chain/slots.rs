//! Tables by slots: memory is counted in equal parts, a row holds a time for each number of them.

use super::error::PlanError;
use super::recurrence::{Choice, Recurrence, State};
use super::table::{Pace, Table};

/// A flat table of times, `width` to a state.
pub(crate) struct Slots {
    width: usize,
    times: Vec<f64>,
    /// The first slot of each row that is finite; `width` if none is.
    from: Vec<u32>,
}

impl Slots {
    /// Bytes of a table of so many states.
    pub(crate) fn bytes(states: u128, width: usize) -> u128 {
        states * (width as u128 * 8 + 4)
    }

    /// Fills the table for memories from 0 to `top` slots, in time linear in states, choices and slots.
    pub(crate) fn fill(
        recurrence: &impl Recurrence,
        top: usize,
        pace: &mut Pace,
    ) -> Result<Slots, PlanError> {
        let width = top + 1;
        let states = recurrence.states();
        let mut table = Slots {
            width,
            times: vec![f64::INFINITY; width * states],
            from: vec![width as u32; states],
        };
        let mut row = vec![0.0; width];
        recurrence.in_order(|state| {
            row.fill(f64::INFINITY);
            recurrence.choices(state, |choice| table.merge(&choice, &mut row));
            let from = row.partition_point(|time| time.is_infinite());
            table.from[state] = from as u32;
            table.row_mut(state).copy_from_slice(&row);
            pace.step()
        })?;
        Ok(table)
    }

    /// Times of a state by slots.
    pub(crate) fn row(&self, state: State) -> &[f64] {
        &self.times[state * self.width..][..self.width]
    }

    fn row_mut(&mut self, state: State) -> &mut [f64] {
        &mut self.times[state * self.width..][..self.width]
    }

    /// `row[x] = min(row[x], choice at x)` for all `x`; rows never rise.
    fn merge(&self, choice: &Choice, row: &mut [f64]) {
        let top = self.width - 1;
        let first = choice.first.map(|(state, less)| (self.row(state), less));
        let second = choice.second.map(|state| self.row(state));
        let mut start = choice.need.max(0);
        if let Some((state, less)) = choice.first {
            start = start.max(i64::from(self.from[state]) + less);
        }
        if let Some(state) = choice.second {
            start = start.max(i64::from(self.from[state]));
        }
        if start > top as i64 {
            return;
        }
        let start = start as usize;
        let least = self.time_of(choice, top as i64);
        let end = start + row[start..].partition_point(|&time| time > least);
        let row = &mut row[start..end];
        let time = choice.time;
        match (first, second) {
            (None, _) => row.iter_mut().for_each(|to| *to = to.min(time)),
            (Some((first, less)), second) if less >= 0 => {
                let first = &first[start - less as usize..][..row.len()];
                match second {
                    None => lower(row, first.iter().map(|first| time + first)),
                    Some(second) => {
                        let both = first.iter().zip(&second[start..][..row.len()]);
                        lower(row, both.map(|(first, second)| (first + second) + time));
                    }
                }
            }
            // A stage saved in less than its output takes; beyond the table nothing more is known than at its end.
            (Some(_), _) => {
                for (at, to) in row.iter_mut().enumerate() {
                    *to = to.min(self.time_of(choice, (start + at) as i64));
                }
            }
        }
    }
}

/// Lowers each time to what is offered.
fn lower(row: &mut [f64], offers: impl Iterator<Item = f64>) {
    for (to, offer) in row.iter_mut().zip(offers) {
        *to = if offer < *to { offer } else { *to };
    }
}

impl Table for Slots {
    fn time(&self, state: State, x: i64) -> f64 {
        match usize::try_from(x) {
            Ok(x) => self.row(state)[x.min(self.width - 1)],
            Err(_) => f64::INFINITY,
        }
    }
}
