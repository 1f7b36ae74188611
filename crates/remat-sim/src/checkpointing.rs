//! Ops that static checkpointing schemes take for one step of the [linear network](crate::linear), for comparison.
//!
//! All counts are in ops: first computations and replays, forward and backward.

use crate::linear::ceil_root;

/// Ops of Chen's square-root scheme (Chen et al., 2016, section 4.1). It keeps the ends of segments of `ceil(sqrt(N))`
/// layers and recomputes each segment but the last once: less than 3N ops within `2 ceil(sqrt N)` bytes.
///
/// ```
/// use remat_sim::checkpointing::chen_root;
///
/// assert_eq!(chen_root(100), 200 + 9 * 9); // nine segments, of each of which all but the first result
/// assert_eq!(chen_root(1), 2);
/// ```
pub fn chen_root(layers: u32) -> u64 {
    let layers = u64::from(layers);
    let segment = ceil_root(layers);
    let whole = match segment {
        0 => 0,
        _ => layers.div_ceil(segment) - 1,
    };
    2 * layers + whole * (segment.max(1) - 1)
}

/// Ops of Chen's recursive scheme with one checkpoint a level (Chen et al., 2016, section 4.3). It halves the network
/// again and again, for memory of `log2(N)` and as many passes: 2N ops, and the half before each middle once more.
///
/// ```
/// use remat_sim::checkpointing::chen_halving;
///
/// assert_eq!([1, 2, 4, 1024].map(chen_halving), [2, 5, 12, 2048 + 5120]);
/// ```
pub fn chen_halving(layers: u32) -> u64 {
    let layers = u64::from(layers);
    // Halving leaves at most two lengths a level, and they differ by one.
    let (mut short, mut shorts, mut longs) = (layers, 1, 0);
    let mut ops = 2 * layers;
    while short > 1 || (short == 1 && longs > 0) {
        let long = short + 1;
        if short > 1 {
            ops += shorts * short.div_ceil(2);
        }
        ops += longs * long.div_ceil(2);
        let half = short / 2;
        (shorts, longs) = match short % 2 {
            0 => (2 * shorts + longs, longs),
            _ => (shorts, shorts + 2 * longs),
        };
        short = half;
    }
    ops
}

/// Ops of Treeverse (Griewank and Walther, 2000), the fewest with `checkpoints` checkpoints, the input counted as one:
/// `r N - binomial(c + r, c + 1)` forward ops, where r is the smallest number with `N <= binomial(c + r, c)`, and N
/// backward ops, each of which reads the result below it. `None` without a checkpoint.
///
/// ```
/// use remat_sim::checkpointing::treeverse;
///
/// assert_eq!(treeverse(10, 3), Some(10 + 15));
/// assert_eq!(treeverse(10, 1), Some(10 + 45)); // from the input each time
/// assert_eq!(treeverse(10, 10), Some(10 + 9)); // nothing twice; the last result is not needed
/// assert_eq!(treeverse(10, 0), None);
/// ```
pub fn treeverse(layers: u32, checkpoints: u64) -> Option<u64> {
    if checkpoints == 0 {
        return None;
    }
    let (n, c) = (u128::from(layers), u128::from(checkpoints));
    // binomial(c + r, c) and binomial(c + r, c + 1), r from 0 on.
    let (mut r, mut reach, mut saved) = (0u128, 1u128, 0u128);
    while reach < n {
        r += 1;
        saved = saved.saturating_add(reach);
        reach = reach.saturating_mul(c + r) / r;
    }
    u64::try_from(n + (r * n).saturating_sub(saved)).ok()
}

/// Checkpoints that fit into a budget in bytes, the input counted as one. The running op's two ends and one gradient
/// take the rest.
pub fn checkpoints_within(budget: u64) -> u64 {
    budget.saturating_sub(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Setting, Status, linear};
    use remat_core::{Bytes, Dealloc, Policy};

    /// The recurrence that the closed form solves: run to a checkpoint, reverse what is beyond, then what is before.
    fn forward_ops(layers: usize, checkpoints: usize) -> Vec<Vec<u64>> {
        let mut fewest = vec![vec![0u64; layers + 1]; checkpoints + 1];
        for (l, forward) in fewest[1].iter_mut().enumerate() {
            *forward = (l * l.saturating_sub(1) / 2) as u64;
        }
        for c in 2..=checkpoints {
            for l in 2..=layers {
                let at = |k: usize| k as u64 + fewest[c - 1][l - k] + fewest[c][k];
                fewest[c][l] = (1..l).map(at).min().unwrap();
            }
        }
        fewest
    }

    #[test]
    fn the_closed_form_of_treeverse_solves_its_recurrence() {
        let fewest = forward_ops(80, 9);
        for (c, row) in fewest.iter().enumerate().skip(1) {
            for (l, forward) in row.iter().enumerate().skip(1) {
                let closed = treeverse(l as u32, c as u64);
                assert_eq!(closed, Some(l as u64 + forward), "{l} layers, {c}");
            }
        }
    }

    #[test]
    fn halving_solves_its_recurrence() {
        fn extra(n: u64) -> u64 {
            match n {
                0 | 1 => 0,
                _ => n.div_ceil(2) + extra(n / 2) + extra(n - n / 2),
            }
        }
        for n in 0..300 {
            assert_eq!(chen_halving(n as u32), 2 * n + extra(n), "{n}");
        }
    }

    #[test]
    fn no_policy_takes_fewer_ops_than_treeverse_with_a_checkpoint_a_byte() {
        for layers in [5, 20, 57] {
            for budget in 3..12 {
                for policy in [Policy::E_STAR, Policy::default(), Policy::LRU] {
                    let setting = Setting {
                        policy: policy.into(),
                        dealloc: Dealloc::Banish,
                        budget: Budget::Bytes(Bytes(budget)),
                        thrash_limit: 1e6,
                        seed: 0,
                        ..Setting::default()
                    };
                    let base = linear::base(layers);
                    let outcome = linear::program(layers).run(&base, &setting).unwrap();
                    assert_eq!(outcome.status, Status::Ok);
                    let best = treeverse(layers, budget).unwrap();
                    assert!(outcome.clock > best, "{layers} layers, {budget} bytes");
                }
            }
        }
    }
}
