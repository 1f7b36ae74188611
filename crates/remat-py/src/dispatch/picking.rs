//! Calls that pick numbers by a mask: what they make grows with the mask's entries, of which each call may have others.
//!
//! Two calls through Python tell which results grow. From then on a call with any other count is known by them.

use std::sync::Arc;

use remat_core::{Bytes, Output};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::families::Alike;
use super::forms::{Known, LIMIT};
use crate::call::signature::{Predicted, Signature};

/// The largest call of each kind, by the words that its calls have in common.
#[derive(Default)]
pub(super) struct Picking(FxHashMap<Vec<u64>, Largest>);

struct Largest {
    known: Arc<Known>,
    /// Its entries.
    entries: u64,
    /// The finding of a second call; `None` before it.
    told: Option<Told>,
}

enum Told {
    /// For each output whether it grows as the entries do. Others stay as they are.
    Grows(SmallVec<[bool; 1]>),
    /// An output does neither.
    Neither,
}

impl Picking {
    /// Takes in a form that became known through Python, with so many entries. `words` are those of the call but for
    /// their count.
    pub(super) fn learn(&mut self, words: Vec<u64>, entries: u64, known: &Arc<Known>) {
        if entries == 0 {
            return; // nothing follows for others
        }
        if self.0.len() >= LIMIT {
            self.0.clear();
        }
        let new = |told| Largest {
            known: known.clone(),
            entries,
            told,
        };
        let Some(largest) = self.0.get_mut(&words) else {
            self.0.insert(words, new(None));
            return;
        };
        if largest.entries == entries {
            return;
        }
        if largest.told.is_none() {
            let first = (largest.entries, &*largest.known);
            largest.told = Some(Told::by(first, (entries, known)));
        }
        if entries > largest.entries {
            *largest = new(largest.told.take());
        }
    }

    /// A call with so many entries is told this of its form by one that differs in their count alone, if there is one.
    pub(super) fn find(&self, words: &[u64], entries: u64) -> Option<Alike> {
        let Largest {
            known,
            entries: most,
            told: Some(Told::Grows(grows)),
        } = self.0.get(words)?
        else {
            return None;
        };
        let share = |bytes: u64| {
            let exact = u128::from(bytes) * u128::from(entries);
            u64::try_from(exact.div_ceil(u128::from(*most))).ok()
        };
        let mut outputs = known.outputs.clone();
        let mut predicted = known.signature.outputs.clone();
        let results = known.form.results.iter();
        for (result, predicted) in results.zip(&mut predicted) {
            let output =
                result.and_then(|k| Some((outputs.get_mut(k as usize)?, grows.get(k as usize)?)));
            if let Some((Output::Fresh { bytes, .. }, true)) = output {
                *bytes = Bytes(share(bytes.0)?);
                if let Predicted::Fresh { bytes: told, .. } = predicted {
                    *told = *bytes;
                }
            }
        }
        let workspace = known.signature.workspace;
        let signature = Signature {
            outputs: predicted,
            // A part of it may not grow: less than what was measured is not relied on.
            workspace: Bytes(workspace.0.max(share(workspace.0)?)),
            calls: 0,
            cost: 0,
            ..known.signature
        };
        Some(Alike {
            known: known.clone(),
            outputs,
            signature,
        })
    }
}

impl Told {
    /// The finding of two calls of one kind, each with its entries.
    fn by(first: (u64, &Known), second: (u64, &Known)) -> Told {
        let sizes = |known: &Known| -> SmallVec<[u64; 1]> {
            let each = known.outputs.iter().map(|output| match *output {
                Output::Fresh { bytes, .. } => bytes.0,
                _ => 0,
            });
            each.collect()
        };
        let (a, b) = (sizes(first.1), sizes(second.1));
        let grows = |(&a, &b): (&u64, &u64)| {
            let in_step =
                u128::from(a) * u128::from(second.0) == u128::from(b) * u128::from(first.0);
            match (a == b, in_step) {
                (true, _) => Some(false),
                (false, true) => Some(true),
                (false, false) => None,
            }
        };
        let told: Option<_> = a.iter().zip(&b).map(grows).collect();
        match told {
            Some(grows) if a.len() == b.len() => Told::Grows(grows),
            _ => Told::Neither,
        }
    }
}
