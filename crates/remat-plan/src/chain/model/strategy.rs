//! Strategies by name.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// A way of planning a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The optimum of plans that keep what they kept until its backward operation (theorem 4.8).
    Persistent,
    /// The optimum of plans in which the last kept activation may move on (theorem 4.7): never worse than `persistent`.
    Floating,
    /// `floating`, and a saved set may be kept without its input, which is made again right before the set's backward
    /// operation: the optimum of such plans, never worse than `floating`.
    Free,
    /// The optimum of plans that keep activations only, and save a stage right before its backward operation.
    Revolve,
    /// So many segments of equal length, each but the last computed twice; or as many as do best.
    Periodic(Option<NonZeroUsize>),
    /// Segments of `ceil(sqrt(L))` stages (Chen et al. 2016, section 4.1).
    ChenSqrt,
    /// Segments of about equal bytes (Chen et al. 2016, algorithm 3).
    ChenGreedy,
    /// Griewank's binomial checkpointing: as many checkpoints as fit, set as if all stages were alike.
    Treeverse,
    /// Everything is kept.
    None,
}

impl Strategy {
    /// One of each, as they are listed.
    pub const ALL: [Strategy; 9] = [
        Strategy::Persistent,
        Strategy::Floating,
        Strategy::Free,
        Strategy::Revolve,
        Strategy::Periodic(None),
        Strategy::ChenSqrt,
        Strategy::ChenGreedy,
        Strategy::Treeverse,
        Strategy::None,
    ];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Strategy::Persistent => "persistent",
            Strategy::Floating => "floating",
            Strategy::Free => "free",
            Strategy::Revolve => "revolve",
            Strategy::Periodic(Some(segments)) => return write!(f, "periodic:{segments}"),
            Strategy::Periodic(None) => "periodic",
            Strategy::ChenSqrt => "chen-sqrt",
            Strategy::ChenGreedy => "chen-greedy",
            Strategy::Treeverse => "treeverse",
            Strategy::None => "none",
        };
        f.pad(name)
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Strategy, String> {
        let text = text.trim();
        if let Some(count) = text.strip_prefix("periodic:") {
            return match count.parse() {
                Ok(segments) => Ok(Strategy::Periodic(Some(segments))),
                Err(_) => Err(format!(
                    "{count:?} is no number of segments; wanted is at least 1, for example periodic:4"
                )),
            };
        }
        let known = Strategy::ALL.into_iter();
        known
            .clone()
            .find(|strategy| strategy.to_string() == text)
            .ok_or_else(|| {
                let names: Vec<String> = known.map(|strategy| strategy.to_string()).collect();
                format!(
                    "no strategy is called {text:?}; known are {}, periodic:K",
                    names.join(", ")
                )
            })
    }
}

/// How finely memory is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// In so many equal parts.
    Slots(NonZeroUsize),
    /// In bytes.
    Exact,
}

impl Default for Resolution {
    /// 500 slots, as in the paper.
    fn default() -> Self {
        NonZeroUsize::new(500).map_or(Resolution::Exact, Resolution::Slots)
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resolution::Slots(count) => write!(f, "{count}"),
            Resolution::Exact => write!(f, "exact"),
        }
    }
}

impl FromStr for Resolution {
    type Err = String;

    fn from_str(text: &str) -> Result<Resolution, String> {
        const MOST: usize = 1_000_000;
        match text.trim() {
            "exact" => Ok(Resolution::Exact),
            number => match number.parse::<NonZeroUsize>() {
                Ok(count) if count.get() <= MOST => Ok(Resolution::Slots(count)),
                _ => Err(format!(
                    "{text:?} is no number of slots; wanted is 1 to {MOST}, or exact"
                )),
            },
        }
    }
}
