//! Seeded draws, and the hash that they are made by.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, so that a rollback restores it for the price of a word.
///
/// ```
/// let mut draws = remat_core::Draws(7);
/// assert_ne!(draws.next(), draws.next());
/// assert_eq!(remat_core::Draws(7).next(), remat_core::Draws(7).next());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws(
    /// The state, at first the seed.
    pub u64,
);

impl Draws {
    /// The next draw.
    #[allow(clippy::should_implement_trait)] // Draws never end.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// A bijection of words that leaves no visible pattern.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_splitmix64() {
        let mut draws = Draws(1_234_567);
        assert_eq!(draws.next(), 6_457_827_717_110_365_317);
        assert_eq!(draws.next(), 3_203_168_211_198_807_973);
    }
}
