//! Tables by exact bytes: a row holds the plans of a state that no other plan beats in both memory and time.

use crate::chain::model::error::PlanError;
use crate::chain::model::progress::Pace;
use crate::chain::recurrences::recurrence::{Choice, Recurrence, State};
use crate::chain::tables::table::Table;

/// The time of a state from so many bytes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Corner {
    pub(crate) bytes: i64,
    pub(crate) time: f64,
}

/// Rows of corners, bytes rising, times falling.
pub(crate) struct Exact {
    rows: Vec<Box<[Corner]>>,
}

/// The most corners of all rows together: 1 GiB of them.
const MOST: usize = 1 << 26;

/// Times that differ by less than this part differ only in the order in which they were added up.
const SAME: f64 = 1e-13;

impl Exact {
    /// Fills the table for memories up to `most` bytes. Time and memory grow with the number of corners, which is
    /// exponential at worst.
    pub(crate) fn fill(
        recurrence: &impl Recurrence,
        most: i64,
        pace: &mut Pace,
    ) -> Result<Exact, PlanError> {
        let mut table = Exact {
            rows: vec![Box::default(); recurrence.states()],
        };
        let (mut row, mut corners_of_choice, mut spare) = (Vec::new(), Vec::new(), Vec::new());
        let mut corners = 0;
        recurrence.in_order(|state| {
            row.clear();
            recurrence.choices(state, |choice| {
                if table.improves(&choice, &row, most) {
                    table.corners_of(&choice, most, &mut corners_of_choice);
                    merge(&row, &corners_of_choice, &mut spare);
                    std::mem::swap(&mut row, &mut spare);
                }
            });
            corners += row.len();
            if corners > MOST {
                return Err(PlanError::TooFine { entries: corners });
            }
            table.rows[state] = row.as_slice().into();
            pace.step()
        })?;
        Ok(table)
    }

    /// The corners of the whole chain: its time against memory.
    pub(crate) fn row(&self, state: State) -> &[Corner] {
        &self.rows[state]
    }

    /// The least memory for a choice; `None` if there is none.
    fn least_bytes(&self, choice: &Choice) -> Option<i64> {
        let mut least = choice.need;
        if let Some((state, less)) = choice.first {
            least = least.max(self.rows[state].first()?.bytes + less);
        }
        if let Some(state) = choice.second {
            least = least.max(self.rows[state].first()?.bytes);
        }
        Some(least)
    }

    /// The choice takes less time than the row somewhere.
    fn improves(&self, choice: &Choice, row: &[Corner], most: i64) -> bool {
        let Some(bytes) = self.least_bytes(choice) else {
            return false;
        };
        if bytes > most {
            return false;
        }
        at(row, bytes) > self.time_of(choice, most)
    }

    /// All corners of a choice up to `most` bytes.
    fn corners_of(&self, choice: &Choice, most: i64, corners: &mut Vec<Corner>) {
        corners.clear();
        let (first, less) = match choice.first {
            Some((state, less)) => (&*self.rows[state], less),
            None => (&[][..], 0),
        };
        let second = choice.second.map_or(&[][..], |state| &*self.rows[state]);
        let Some(mut bytes) = self.least_bytes(choice) else {
            return;
        };
        let mut i = first.partition_point(|corner| corner.bytes + less <= bytes);
        let mut j = second.partition_point(|corner| corner.bytes <= bytes);
        let last = |corners: &[Corner], at: usize| match at {
            0 => 0.0, // Nothing follows: where something does, the least memory is behind its first corner.
            _ => corners[at - 1].time,
        };
        while bytes <= most {
            let time = choice.time + last(first, i) + last(second, j);
            corners.push(Corner { bytes, time });
            let next = |corner: Option<&Corner>, less| corner.map_or(i64::MAX, |c| c.bytes + less);
            bytes = next(first.get(i), less).min(next(second.get(j), 0));
            if bytes == i64::MAX {
                break;
            }
            i += usize::from(next(first.get(i), less) == bytes);
            j += usize::from(next(second.get(j), 0) == bytes);
        }
    }
}

/// Time at so many bytes.
fn at(row: &[Corner], bytes: i64) -> f64 {
    match row.partition_point(|corner| corner.bytes <= bytes) {
        0 => f64::INFINITY,
        behind => row[behind - 1].time,
    }
}

/// The lower of two rows.
fn merge(a: &[Corner], b: &[Corner], into: &mut Vec<Corner>) {
    into.clear();
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut least = f64::INFINITY;
    loop {
        let from_a = match (a.peek(), b.peek()) {
            (None, None) => return,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(x), Some(y)) => (x.bytes, x.time) <= (y.bytes, y.time),
        };
        let next = if from_a { a.next() } else { b.next() };
        if let Some(&corner) = next {
            if least.is_infinite() || corner.time < least - least * SAME {
                least = corner.time;
                into.push(corner);
            }
        }
    }
}

impl Table for Exact {
    fn time(&self, state: State, x: i64) -> f64 {
        at(&self.rows[state], x)
    }
}
