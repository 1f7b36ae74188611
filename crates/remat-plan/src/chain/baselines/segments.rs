//! Segments of plans of one pass: periodic, and those of Chen et al. 2016.

use crate::chain::model::chain::Chain;

/// Starts of so many segments of equal length; the last also has the stages that are left over and the loss, as in
/// PyTorch's `checkpoint_sequential`.
pub(crate) fn periodic(stages: usize, segments: usize) -> Vec<usize> {
    let layers = (stages - 1).max(1);
    let segments = segments.clamp(1, layers);
    let length = layers / segments;
    (0..segments).map(|k| k * length + 1).collect()
}

/// Numbers of segments that `periodic` tries: 1 to `2 sqrt(L)`.
pub(crate) fn counts(stages: usize) -> std::ops::RangeInclusive<usize> {
    let layers = (stages - 1).max(1);
    1..=((2.0 * (layers as f64).sqrt()).ceil() as usize).min(layers)
}

/// Starts of segments of `ceil(sqrt(L))` stages (Chen et al. 2016, section 4.1).
pub(crate) fn square_root(stages: usize) -> Vec<usize> {
    let layers = (stages - 1).max(1);
    let length = (layers as f64).sqrt().ceil() as usize;
    (1..=layers).step_by(length).collect()
}

/// Starts of segments that are closed once their saved sets take more than so many bytes (Chen et al. 2016, algorithm
/// 3).
pub(crate) fn greedy(chain: &Chain, bytes: u64) -> Vec<usize> {
    let mut starts = vec![1];
    let mut held = 0;
    for l in 1..chain.len() {
        held += chain.stage(l).saved_bytes;
        if held > bytes {
            starts.push(l + 1);
            held = 0;
        }
    }
    starts
}

/// Bytes that a segment may hold, to try: from the largest saved set to all of them, each a few percent above the last.
pub(crate) fn allowances(chain: &Chain) -> Vec<u64> {
    const STEPS: i32 = 100;
    let saved = || chain.stages().iter().map(|stage| stage.saved_bytes);
    let (least, most) = (saved().max().unwrap_or(0), saved().sum::<u64>());
    let ratio = most as f64 / least.max(1) as f64;
    let between = |k| least as f64 * ratio.powf(f64::from(k) / f64::from(STEPS));
    let mut allowances: Vec<u64> = (0..STEPS).map(|k| between(k) as u64).collect();
    allowances.extend([0, most]);
    allowances.sort_unstable();
    allowances.dedup();
    allowances
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::model::sequence::{Op, segmented};

    #[test]
    fn segments_are_as_those_of_pytorch() {
        assert_eq!(periodic(11, 3), [1, 4, 7]); // 3, 3, 4 layers, and the loss
        assert_eq!(periodic(11, 99), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(periodic(1, 2), [1]);
        assert_eq!(square_root(11), [1, 5, 9]);
    }

    #[test]
    fn all_but_the_last_segment_are_computed_twice() {
        let text: Vec<String> = segmented(4, &[1, 3]).iter().map(Op::to_string).collect();
        assert_eq!(
            text.join(" "),
            "Fck1 Fnone2 Fall3 Fall4 B4 B3 Fall1 Fall2 B2 B1"
        );
    }
}
