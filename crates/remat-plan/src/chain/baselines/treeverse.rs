//! Binomial checkpointing (Griewank and Walther 2000): optimal where all stages are alike, and applied here as if
//! they were.

use crate::chain::model::error::PlanError;
use crate::chain::model::sequence::{Action, LONGEST, Op};

/// `binomial(c + r, c)`: stages that `c` checkpoints reach when none is computed more than `r` times.
fn reach(checkpoints: u64, repeats: u64) -> u64 {
    let (low, high) = (checkpoints.min(repeats), checkpoints.max(repeats));
    let mut product: u64 = 1;
    for k in 1..=low {
        product = match product.checked_mul(high + k) {
            Some(product) => product / k,
            None => return u64::MAX,
        };
    }
    product
}

/// Stages before the next checkpoint, of `length >= 2` with `checkpoints >= 2`, the one at the start counted.
fn split(length: u64, checkpoints: u64) -> u64 {
    let mut repeats = 1;
    while reach(checkpoints, repeats) < length {
        repeats += 1;
    }
    let before = reach(checkpoints, repeats - 1);
    let behind = reach(checkpoints - 1, repeats - 1).min(length - 1);
    before.min(length - behind).max(1)
}

/// The sequence for so many stages and checkpoints, the input counted as one.
pub(crate) fn sequence(stages: usize, checkpoints: usize) -> Result<Vec<Op>, PlanError> {
    enum Todo {
        /// Reverse these stages, the input of the first of which is there.
        Reverse(usize, usize, usize),
        Ops([Op; 2]),
    }
    let mut ops = Vec::new();
    let mut todo = vec![Todo::Reverse(1, stages, checkpoints)];
    while let Some(next) = todo.pop() {
        let (start, end, checkpoints) = match next {
            Todo::Reverse(start, end, checkpoints) => (start, end, checkpoints),
            Todo::Ops(pair) => {
                ops.extend(pair);
                continue;
            }
        };
        let save = |l| [Op::new(Action::ForwardAll, l), Op::new(Action::Backward, l)];
        if start == end {
            ops.extend(save(end));
            continue;
        }
        let before = match checkpoints {
            1 => end - start,
            _ => split((end - start + 1) as u64, checkpoints as u64) as usize,
        };
        ops.push(Op::new(Action::ForwardCheckpoint, start));
        ops.extend((start + 1..start + before).map(|l| Op::new(Action::ForwardNone, l)));
        if ops.len() > LONGEST {
            return Err(PlanError::TooLong { limit: LONGEST });
        }
        todo.push(Todo::Reverse(start, start + before - 1, checkpoints));
        todo.push(match checkpoints {
            1 => Todo::Ops(save(end)),
            _ => Todo::Reverse(start + before, end, checkpoints - 1),
        });
    }
    Ok(ops)
}

/// Numbers of checkpoints to try, falling: all up to 64, then each a little above the last.
pub(crate) fn counts(stages: usize) -> Vec<usize> {
    let mut counts = vec![];
    let mut count = 1;
    while count < stages {
        counts.push(count);
        count += 1 + count / 64;
    }
    counts.push(stages);
    counts.reverse();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recurrence: run to a checkpoint, reverse what is beyond, then what is before. Forward operations, the last
    /// one of each stage not counted.
    fn fewest(stages: usize, checkpoints: usize) -> usize {
        let mut least = vec![vec![0; stages + 1]; checkpoints + 1];
        for (l, ops) in least[1].iter_mut().enumerate() {
            *ops = l * l.saturating_sub(1) / 2;
        }
        for c in 2..=checkpoints {
            for l in 2..=stages {
                let at = |k: usize| k + least[c - 1][l - k] + least[c][k];
                least[c][l] = (1..l).map(at).min().unwrap();
            }
        }
        least[checkpoints][stages]
    }

    #[test]
    fn no_other_places_take_fewer_operations() {
        for checkpoints in 1..8 {
            for stages in 1..60 {
                let ops = sequence(stages, checkpoints).unwrap();
                let forward = ops.iter().filter(|op| {
                    matches!(op.action, Action::ForwardCheckpoint | Action::ForwardNone)
                });
                assert_eq!(
                    forward.count(),
                    fewest(stages, checkpoints),
                    "{stages} stages, {checkpoints} checkpoints"
                );
            }
        }
    }
}
