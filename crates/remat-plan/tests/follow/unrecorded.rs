//! Ops without records: the records that read their results are forgotten in time.

use super::{CASES, at, planned};
use remat_core::{GuideAction, Origin, Output, Recorded, Replay, Told};
use std::collections::{HashMap, HashSet};

/// A run of an op, as far as records go.
struct Remembered {
    reads: Vec<usize>,
    makes: Vec<usize>,
}

/// A storage of a program that repeats a step.
#[derive(Clone, Copy, Default)]
struct Made {
    references: u32,
    constant: bool,
    /// The op that made it left no record, where a record would have let it be evicted.
    unrecorded: bool,
}

/// A program that repeats a recorded step, whose ops leave records but for some.
#[derive(Default)]
struct Records {
    storages: Vec<Made>,
    /// Records that are remembered, oldest first.
    records: Vec<Remembered>,
    /// Storages by the tensors of this step, and by the places of the ops that made them in the step before.
    tensors: HashMap<u64, usize>,
    before: HashMap<(u32, u32), usize>,
    /// Storages that went since the last op began.
    gone: Vec<usize>,
}

impl Records {
    /// Forgets the records that nothing can ask for: none of what they made is there, and no other record read it.
    fn collect(&mut self) {
        let storages = &self.storages;
        let mut wanted = vec![false; storages.len()];
        let is_there = |made: &usize| storages[*made].references > 0 && !storages[*made].constant;
        let mut remembered: Vec<Remembered> = Vec::new();
        while let Some(record) = self.records.pop() {
            if record
                .makes
                .iter()
                .any(|made| is_there(made) || wanted[*made])
            {
                for &read in &record.reads {
                    wanted[read] = true;
                }
                remembered.push(record);
            }
        }
        remembered.reverse();
        self.records = remembered;
    }

    fn store(&mut self, made: Made) -> usize {
        self.storages.push(made);
        self.storages.len() - 1
    }

    /// No record holds a result without one.
    fn is_free(&self, storage: usize) {
        let holds = self
            .records
            .iter()
            .any(|record| record.reads.contains(&storage));
        assert!(!(self.storages[storage].unrecorded && holds));
    }

    fn step(&mut self, recorded: &Recorded, without: &HashSet<u32>) {
        let mut made_now = HashMap::new();
        let mut place = 0;
        self.tensors.clear();
        for told in &recorded.events {
            match told {
                &Told::There {
                    tensor,
                    references,
                    pinned,
                    origin,
                    ..
                } => {
                    let left = match origin {
                        Some(Origin::Made { op, output }) => self.before.get(&(op, output)),
                        _ => None,
                    };
                    let there = Made {
                        references,
                        constant: pinned,
                        unrecorded: false,
                    };
                    let storage = left.copied().unwrap_or_else(|| self.store(there));
                    self.tensors.insert(tensor, storage);
                }
                Told::Op {
                    inputs,
                    outputs,
                    replay,
                    ..
                } => {
                    let reads: Vec<usize> =
                        inputs.iter().map(|input| self.tensors[input]).collect();
                    for made in outputs {
                        if let Output::InPlace { of } = made.output {
                            self.is_free(reads[of]);
                        }
                    }
                    self.collect();
                    while let Some(storage) = self.gone.pop() {
                        self.is_free(storage);
                    }
                    let evictable = *replay == Replay::Allowed;
                    let recorded = evictable && !without.contains(&place);
                    let mut makes = Vec::new();
                    for (output, made) in (0..).zip(outputs) {
                        let constant = match made.output {
                            Output::Alias { of } => {
                                self.storages[reads[of]].references += 1;
                                self.tensors.insert(made.tensor, reads[of]);
                                continue;
                            }
                            Output::InPlace { of } => {
                                let over = self.storages[reads[of]];
                                assert!(
                                    !(recorded && over.unrecorded),
                                    "op {place} writes over one"
                                );
                                !evictable || over.constant
                            }
                            Output::Fresh { .. } => !evictable,
                        };
                        let storage = self.store(Made {
                            references: 1,
                            constant,
                            unrecorded: !constant && without.contains(&place),
                        });
                        self.tensors.insert(made.tensor, storage);
                        made_now.insert((place, output), storage);
                        makes.push(storage);
                    }
                    // Of constants alone no record is remembered.
                    if recorded && makes.iter().any(|&made| !self.storages[made].constant) {
                        self.records.push(Remembered { reads, makes });
                    }
                    place += 1;
                }
                Told::Retain(tensor) => self.storages[self.tensors[tensor]].references += 1,
                Told::Release(tensor) => {
                    let storage = self.tensors[tensor];
                    let references = self.storages[storage].references.saturating_sub(1);
                    self.storages[storage].references = references;
                    if references == 0 {
                        self.gone.push(storage);
                    }
                }
                Told::Pin(tensor) => self.storages[self.tensors[tensor]].constant = true,
                _ => {}
            }
        }
        self.before = made_now;
    }
}

/// A record keeps alive what it reads and cannot be made again. Records that read a result without one are forgotten as
/// the next op begins after the program let go of it, and before the op that writes over it is announced. The plan has
/// nothing to do with ops without records.
#[test]
fn records_that_read_results_without_one_are_forgotten_as_those_go() {
    for case in CASES {
        let (events, budget) = at(case);
        let (recorded, _, guide) = planned(&events, budget);
        let without: HashSet<u32> = guide.unrecorded().iter().copied().collect();
        let (some, all) = (without.len(), guide.signatures().len());
        assert!(some > all / 7, "{case:?}: {some} of {all}");
        for action in (0..all).flat_map(|place| guide.before(place)) {
            let (GuideAction::Run(op) | GuideAction::RunInPlace(op) | GuideAction::Drop { op, .. }) =
                action;
            assert!(!without.contains(op), "{case:?}: op {op}");
        }
        let mut records = Records::default();
        for _ in 0..3 {
            records.step(&recorded, &without);
        }
    }
}
