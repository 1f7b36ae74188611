//! All sequences of a small chain, searched state by state (Dijkstra): the least time by definition.

use remat_plan::chain::Chain;
use std::collections::{BinaryHeap, HashMap};

/// Which sequences count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rules {
    /// Table 1, and what `Fck` or `Fall` kept stays until its backward operation, with nothing done below it
    /// (definition 4.1).
    Persistent,
    /// As `Persistent`, and a stage is saved only when its backward operation is next.
    Revolve,
    /// All of table 1: activations are given up by `Fnone` only.
    Table,
    /// All, and whatever is stored may be dropped at any time at no cost; a saved set leaves its activation behind if
    /// wanted.
    Dropping,
    /// As `Dropping`, but the input of a saved set, once dropped, is made again right before the set's backward
    /// operation: until then no forward operation below the set runs.
    DroppingUntilRead,
    /// As `Dropping`, but the input of a saved set stays as long as the set.
    DroppingWithInputs,
}

/// Stored values: bit sets of activations by themselves and of saved sets, and the gradient; and the stages whose
/// input is kept for good, if that matters.
type State = (u32, u32, usize, u32);

/// The least makespan within the budget; `None` if there is none. Times must be whole numbers.
pub(crate) fn least(chain: &Chain, budget: u64, rules: Rules) -> Option<u64> {
    let n = chain.len();
    let bytes = |(activations, saved, gradient, _): State| {
        let left = (gradient + 1..=n).map(|l| chain.stage(l).parameter_gradient_bytes);
        let mut sum = chain.gradient(gradient) + left.sum::<u64>();
        for l in 0..=n {
            if activations >> l & 1 == 1 {
                sum += chain.activation(l);
            }
            if l > 0 && saved >> l & 1 == 1 {
                sum += chain.stage(l).saved_bytes;
            }
        }
        sum
    };
    let lasting = matches!(rules, Rules::Persistent | Rules::Revolve);
    let start: State = (1, 0, n, 0);
    let mut known: HashMap<State, u64> = HashMap::from([(start, 0)]);
    let mut queue = BinaryHeap::from([(std::cmp::Reverse(0u64), start)]);
    if bytes(start) > budget {
        return None;
    }
    while let Some((std::cmp::Reverse(time), state)) = queue.pop() {
        if known[&state] < time {
            continue;
        }
        let (activations, saved, gradient, kept) = state;
        if gradient == 0 {
            return Some(time);
        }
        let mut reach = |state: State, during: u64, cost: f64| {
            let time = time + cost as u64;
            if during <= budget && known.get(&state).is_none_or(|&known| time < known) {
                known.insert(state, time);
                queue.push((std::cmp::Reverse(time), state));
            }
        };
        for l in 1..=n {
            let stage = chain.stage(l);
            let alone = activations >> (l - 1) & 1 == 1;
            let within = l > 1 && saved >> (l - 1) & 1 == 1;
            if (!alone && !within) || kept >> (l + 1) != 0 {
                continue;
            }
            let there = activations | saved;
            let input_dropped = |q: usize| saved >> q & 1 == 1 && there >> (q - 1) & 1 == 0;
            if rules == Rules::DroppingUntilRead && (l + 1..gradient).any(input_dropped) {
                continue;
            }
            let keeping = kept | u32::from(lasting) << l;
            let (f, of) = (stage.forward_time, stage.forward_overhead_bytes);
            let saving = stage.saving_overhead_bytes.unwrap_or(of);
            let used = rules == Rules::DroppingWithInputs && saved >> l & 1 == 1;
            if l < n && activations >> l & 1 == 0 {
                let made = (activations | 1 << l, saved, gradient, keeping);
                reach(made, bytes(made) + of, f);
                if alone && !used && kept >> l & 1 == 0 {
                    let moved = (made.0 & !(1 << (l - 1)), saved, gradient, kept);
                    reach(moved, bytes(made) + of, f);
                }
            }
            if saved >> l & 1 == 0 && (rules != Rules::Revolve || gradient == l) {
                let made = (activations, saved | 1 << l, gradient, keeping);
                reach(made, bytes(made) + saving, f);
            }
            if saved >> l & 1 == 1 && gradient == l {
                let alone = activations & !(1 << (l - 1));
                let after = (alone, saved & !(1 << l), l - 1, kept & !(1 << l));
                let more = chain.gradient(l - 1) + stage.parameter_gradient_bytes;
                let during = bytes(state) - stage.released_bytes + more;
                let during = during + stage.backward_overhead_bytes;
                reach(after, during, stage.backward_time);
            }
        }
        if lasting || rules == Rules::Table {
            continue;
        }
        for l in 0..=n {
            let used = rules == Rules::DroppingWithInputs && saved >> (l + 1) & 1 == 1;
            if activations >> l & 1 == 1 && !used {
                reach((activations & !(1 << l), saved, gradient, 0), 0, 0.0);
            }
            if l > 0 && saved >> l & 1 == 1 {
                let rest = saved & !(1 << l);
                let left = (activations | 1 << l, rest, gradient, 0);
                reach(left, bytes(left), 0.0);
                if !used {
                    reach((activations, rest, gradient, 0), 0, 0.0);
                }
            }
        }
    }
    None
}
