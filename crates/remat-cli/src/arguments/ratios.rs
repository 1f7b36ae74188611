//! Budgets as parts of the memory without a limit.

use super::number::positive;
use clap::Args;

/// Budgets of every log.
#[derive(Debug, Args)]
pub(crate) struct Ratios {
    /// Budgets as parts of what each step needs without a limit.
    #[arg(
        long = "ratio",
        value_name = "R",
        value_delimiter = ',',
        value_parser = ratio,
        allow_negative_numbers = true,
        default_value = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0"
    )]
    pub(crate) ratios: Vec<f64>,
}

/// A ratio of 1 is all that a step needs; far above it a budget only has more digits.
const LARGEST: f64 = 1000.0;

pub(super) fn ratio(text: &str) -> Result<f64, String> {
    let ratio = positive(text).filter(|&ratio| ratio <= LARGEST);
    ratio.ok_or_else(|| format!("a ratio is a number above 0, at most {LARGEST}, for example 0.5"))
}
