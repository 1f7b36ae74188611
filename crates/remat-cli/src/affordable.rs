//! The strategies that a chain is planned by where none is named: tables grow with a power of the stages.

use remat_plan::chain::Strategy;

/// A strategy, and why a chain was not planned by it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeftOut {
    pub(crate) strategy: Strategy,
    pub(crate) reason: String,
}

/// Stages for which the tables of this strategy take some seconds; `None` where it has none.
pub(crate) fn longest(strategy: Strategy) -> Option<usize> {
    match strategy {
        // L^3 / 6 steps a slot.
        Strategy::Persistent | Strategy::Revolve => Some(400),
        // L^4 / 24 steps a slot.
        Strategy::Floating => Some(100),
        // Two to six times as much.
        Strategy::Free => Some(70),
        Strategy::Periodic(_)
        | Strategy::ChenSqrt
        | Strategy::ChenGreedy
        | Strategy::Treeverse
        | Strategy::None => None,
    }
}

/// The strategies that were named, each once; where none was, all that so many stages allow, and those that they do
/// not.
pub(crate) fn strategies(named: &[Strategy], stages: usize) -> (Vec<Strategy>, Vec<LeftOut>) {
    if !named.is_empty() {
        let first = |&(at, strategy): &(usize, &Strategy)| !named[..at].contains(strategy);
        let once = named.iter().enumerate().filter(first);
        return (once.map(|(_, strategy)| *strategy).collect(), Vec::new());
    }
    let (mut wanted, mut out) = (Vec::new(), Vec::new());
    for strategy in Strategy::ALL {
        match longest(strategy) {
            Some(longest) if stages > longest => out.push(LeftOut {
                strategy,
                reason: format!(
                    "{stages} stages; planned up to {longest} if not asked for by --strategy {strategy}"
                ),
            }),
            _ => wanted.push(strategy),
        }
    }
    (wanted, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_planned_is_told_and_what_is_named_is_planned() {
        let (wanted, out) = strategies(&[], 7);
        assert_eq!((wanted.len(), out), (9, vec![]));
        let (wanted, out) = strategies(&[], 339);
        let left: Vec<Strategy> = out.iter().map(|left| left.strategy).collect();
        assert_eq!(
            (wanted.len(), left),
            (7, vec![Strategy::Floating, Strategy::Free])
        );
        assert!(out[0].reason.contains("339 stages") && out[0].reason.contains("100"));
        let named = [Strategy::Free, Strategy::None, Strategy::Free];
        let (wanted, out) = strategies(&named, 339);
        assert_eq!((wanted, out), (named[..2].to_vec(), vec![]));
    }
}
