//! Chains of any length to time planning with.

use remat_plan::chain::{Chain, ChainError, Description, Stage};

const MIB: f64 = 1_048_576.0;

/// Levels of a network: from one to the next, activations take half the bytes.
const LEVELS: usize = 4;

/// A chain in the form of a deep residual network: so many stages in four levels, times and sizes of each level uneven by a
/// quarter up and down, and a loss that takes next to nothing. The same length always gives the same chain.
pub(super) fn residual(stages: usize) -> Result<Chain, ChainError> {
    Chain::new(Description {
        input_bytes: MIB as u64,
        input_gradient_bytes: Some(0),
        stages: (1..=stages).map(|l| stage(l, stages)).collect(),
        about: Default::default(),
    })
}

fn stage(l: usize, stages: usize) -> Stage {
    if l == stages {
        return loss();
    }
    let level = LEVELS * (l - 1) / stages;
    let bytes = |mib: f64| (mib * MIB / f64::from(1 << level)) as u64;
    Stage {
        forward_time: 1.5 * uneven(l, 1),
        backward_time: 3.0 * uneven(l, 2),
        activation_bytes: bytes(12.0),
        saved_bytes: bytes(60.0 * uneven(l, 3)),
        forward_overhead_bytes: bytes(4.0 * uneven(l, 4)),
        backward_overhead_bytes: bytes(12.0 * uneven(l, 5)),
        ..Stage::default()
    }
}

fn loss() -> Stage {
    Stage {
        forward_time: 0.01,
        backward_time: 0.01,
        activation_bytes: 4,
        saved_bytes: 4096,
        ..Stage::default()
    }
}

/// From 0.75 to 1.25, without a pattern along the stages: fractions of multiples of the golden ratio are spread evenly (Weyl 1916).
fn uneven(l: usize, column: usize) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    let turn = (l * l) as f64 * GOLDEN * GOLDEN.powi(column as i32);
    0.75 + 0.5 * turn.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_its_length_and_its_numbers_their_bounds() {
        for stages in [1, 2, 7, 500] {
            let chain = residual(stages).unwrap();
            assert_eq!(chain.len(), stages);
            assert_eq!(chain, residual(stages).unwrap());
            assert_eq!(chain.stage(stages).activation_bytes, 4);
        }
        let chain = residual(500).unwrap();
        let times = chain.stages()[..499].iter().map(|stage| stage.forward_time);
        let (least, most) = times.fold((9.0f64, 0.0f64), |(least, most), time| {
            (least.min(time), most.max(time))
        });
        assert!((1.125..1.14).contains(&least) && (1.86..1.875).contains(&most));
    }
}
