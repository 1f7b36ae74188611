//! The part of a budget that is kept for memory that torch allocates where no op is dispatched.

/// Bytes of the numbers that torch makes tensors of while an op runs.
const NUMBERS: u64 = 64;

/// Bytes kept back of a budget: for values from Python lists, generator states and small buffers of torch's own. The
/// session sees those only when an op first meets them.
pub fn slack(budget: u64) -> u64 {
    let least = NUMBERS.min(budget);
    (budget / 256)
        .clamp(16 << 10, 1 << 20)
        .min(budget / 8)
        .max(least)
}

/// Bytes kept back even of an op that does not fit otherwise.
const LEAST: u64 = 64 << 10;

/// Bytes that an op may have of a budget's slack where it does not fit otherwise.
pub fn lent(budget: u64) -> u64 {
    slack(budget).saturating_sub(LEAST)
}

/// The smallest budget that leaves so many bytes beside its slack.
pub fn with_slack(bytes: u64) -> u64 {
    let mut budget = bytes + slack(bytes);
    while budget - slack(budget) < bytes {
        budget += bytes - (budget - slack(budget));
    }
    budget
}

/// A budget to start anew with where `smallest` bytes are the least for what is known so far, and `budget` was refused:
/// a fifth more, for ops that did not run yet, and up to a third where much was lacking. So a program that is started
/// in far too few bytes runs after a few refusals, and not after one for each op that needs some more.
pub fn with_headroom(smallest: u64, budget: u64) -> u64 {
    let lacking = smallest.saturating_sub(budget);
    let more = lacking.saturating_mul(2).clamp(smallest / 5, smallest / 3);
    smallest.saturating_add(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_with_slack_leaves_what_was_asked_for() {
        for bytes in [0, 1, 4095, 1 << 17, 5 << 20, 3 << 30] {
            let budget = with_slack(bytes);
            assert!(budget - slack(budget) >= bytes, "{bytes}");
        }
    }
}
