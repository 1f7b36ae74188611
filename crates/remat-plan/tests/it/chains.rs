//! Chains to plan.

use remat_plan::chain::{Chain, Description, Stage};

/// Stages by (forward time, backward time, activation, saved set, overheads forward and backward).
pub(crate) type Row = (f64, f64, u64, u64, u64, u64);

pub(crate) fn chain(input_bytes: u64, rows: &[Row]) -> Chain {
    let stage =
        |&(forward_time, backward_time, activation, saved, forward, backward): &Row| Stage {
            name: String::new(),
            forward_time,
            backward_time,
            activation_bytes: activation,
            saved_bytes: saved,
            gradient_bytes: None,
            forward_overhead_bytes: forward,
            backward_overhead_bytes: backward,
            ..Stage::default()
        };
    Chain::new(Description {
        input_bytes,
        input_gradient_bytes: None,
        stages: rows.iter().map(stage).collect(),
        about: serde_json::Value::Null,
    })
    .unwrap()
}

/// Sizes beyond the paper, by stage: overhead of saving, bytes of the saved set that are released early, gradients of
/// parameters.
pub(crate) type Beyond = (Option<u64>, u64, u64);

/// The same chain with more said of it; the last entry holds for the stages that follow.
pub(crate) fn beyond(chain: &Chain, rows: &[Beyond]) -> Chain {
    let mut description = chain.description().clone();
    for (index, stage) in description.stages.iter_mut().enumerate() {
        let (saving, released, gradients) = rows[index.min(rows.len() - 1)];
        stage.saving_overhead_bytes = saving;
        stage.released_bytes = released.min(stage.saved_bytes);
        stage.parameter_gradient_bytes = gradients;
    }
    Chain::new(description).unwrap()
}

/// Table 2 of the paper, in units of 10 kB.
pub(crate) fn toy() -> Chain {
    chain(
        763,
        &[
            (1.60, 3.05, 954, 954, 0, 2001),
            (2.20, 4.48, 1068, 1068, 0, 2764),
            (2.44, 5.09, 1106, 1108, 0, 3099),
            (2.51, 4.93, 1068, 1066, 0, 3099),
            (2.10, 4.21, 954, 954, 0, 2764),
            (1.43, 3.34, 763, 763, 0, 1908),
            (0.0, 0.0, 0, 0, 0, 0),
        ],
    )
}

/// Figure 4 of the paper: a chain of `n + 2` stages and the loss, of which no persistent plan is optimal within 15
/// bytes.
pub(crate) fn counterexample(n: usize) -> Chain {
    let stages = n + 2;
    let row = |l: usize| {
        let time = match l {
            1 => n as f64 - 2.0,
            2 => 2.0,
            _ => 0.0,
        };
        let size = match l {
            1 => 1,
            _ if l == stages => 4,
            _ if l == stages + 1 => 0,
            _ => 3,
        };
        (time, 0.0, size, size, 0, 0)
    };
    chain(0, &(1..=stages + 1).map(row).collect::<Vec<_>>())
}

/// Figure 3 of the paper: a step within `3 V` bytes takes at most `4 V` and the backward times if and only if the
/// numbers, which add up to `2 V`, have a part that adds up to `V`.
pub(crate) fn partition(numbers: &[u64]) -> (Chain, u64) {
    let half = numbers.iter().sum::<u64>() / 2;
    let row = |x: u64| (x as f64, 1.0, x, x, 0, 0);
    let mut rows: Vec<Row> = numbers.iter().flat_map(|&x| [row(x), row(0)]).collect();
    rows.extend([row(half), row(0)]);
    (chain(0, &rows), half)
}
