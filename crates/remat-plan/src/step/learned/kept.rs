//! Results that a plan reads after the program let go of them.

use super::events::Translated;
use super::reads::Reads;
use crate::step::plan::step_plan::{Action, StepPlan};
use remat_trace::{Event, TraceOutputKind};
use std::collections::{BTreeSet, HashMap};

/// The storages that each op of a recording reads and makes, by the numbers that plans use.
struct Uses {
    reads: Vec<Vec<u32>>,
    makes: Vec<Vec<u32>>,
}

impl Uses {
    fn of(events: &[Event]) -> Uses {
        let mut uses = Uses {
            reads: Vec::new(),
            makes: Vec::new(),
        };
        let mut storage_of: HashMap<u64, u32> = HashMap::new();
        let mut storages = 0;
        for event in events {
            let (inputs, outputs) = match event {
                Event::Constant { tensor, .. } => {
                    storage_of.insert(*tensor, storages);
                    uses.reads.push(Vec::new());
                    uses.makes.push(vec![storages]);
                    storages += 1;
                    continue;
                }
                Event::Op {
                    inputs, outputs, ..
                } => (inputs, outputs),
                _ => continue,
            };
            let read = inputs.iter().map(|input| storage_of.get(input).copied());
            let read: Vec<Option<u32>> = read.collect();
            let mut makes = Vec::new();
            for output in outputs {
                let storage = match output.kind {
                    TraceOutputKind::Alias { of } => read.get(of).copied().flatten(),
                    TraceOutputKind::Fresh { .. } | TraceOutputKind::InPlace { .. } => {
                        makes.push(storages);
                        storages += 1;
                        Some(storages - 1)
                    }
                };
                if let Some(storage) = storage {
                    storage_of.insert(output.tensor, storage);
                }
            }
            uses.reads.push(read.into_iter().flatten().collect());
            uses.makes.push(makes);
        }
        uses
    }
}

/// The results, by the places of their ops and the outputs, that a run again reads after the last reference to them
/// went, and that were made before.
pub(super) fn kept(plan: &StepPlan, translated: &Translated, reads: &Reads) -> Vec<(u32, u32)> {
    let uses = Uses::of(&translated.events);
    let event = |place: u32| {
        reads
            .ops
            .get(place as usize)
            .map_or(reads.events, |op| op.event)
    };
    // Of each storage the number of the event with which it was made last.
    let mut made = vec![0; translated.storages.len()];
    let mut kept = BTreeSet::new();
    let mut next = 0;
    for action in &plan.steps {
        let (Action::Run(op) | Action::RunInPlace(op)) = *action else {
            continue;
        };
        let now = event(next);
        if translated.ops[op as usize] == Some(next) {
            next += 1;
        } else {
            for &storage in &uses.reads[op as usize] {
                let maker = translated.storages[storage as usize];
                let result = maker.and_then(|(op, output)| reads.result(op, output));
                let outlived = result.is_some_and(|result| {
                    let evictable = result.evictable && !result.pinned;
                    evictable && made[storage as usize] <= result.until && result.until < now
                });
                kept.extend(maker.filter(|_| outlived));
            }
        }
        for &storage in &uses.makes[op as usize] {
            made[storage as usize] = now;
        }
    }
    kept.into_iter().collect()
}
