//! When a program lets go of what was there before its step.

use remat_trace::{Event, TraceOutputKind};
use std::collections::HashMap;

/// A storage, and how often the program refers to it.
struct Held {
    number: u32,
    references: u64,
}

/// Of the storages that are there when a step begins, by their ops in plans, how many ops of the step were called when
/// the last reference went. Those that stay are left out.
pub(super) fn releases(events: &[Event]) -> HashMap<u32, u32> {
    let mut held: Vec<Held> = Vec::new();
    // By tensor.
    let mut of: HashMap<u64, usize> = HashMap::new();
    let mut gone = HashMap::new();
    let (mut number, mut called) = (0, 0);
    for event in events {
        match event {
            Event::Constant { tensor, .. } => {
                hold(&mut held, &mut of, *tensor, number);
                number += 1;
            }
            Event::Op { name, outputs, .. } if name == super::events::THERE => {
                for output in outputs {
                    hold(&mut held, &mut of, output.tensor, number);
                }
                number += 1;
            }
            Event::Op {
                inputs, outputs, ..
            } => {
                for output in outputs {
                    if let TraceOutputKind::Alias { of: input } = output.kind {
                        if let Some(&storage) = inputs.get(input).and_then(|input| of.get(input)) {
                            held[storage].references += 1;
                            of.insert(output.tensor, storage);
                        }
                    }
                }
                number += 1;
                called += 1;
            }
            Event::Retain { tensor } => {
                if let Some(&storage) = of.get(tensor) {
                    held[storage].references += 1;
                }
            }
            Event::Release { tensor } => {
                if let Some(&storage) = of.get(tensor) {
                    let storage = &mut held[storage];
                    storage.references = storage.references.saturating_sub(1);
                    if storage.references == 0 {
                        gone.insert(storage.number, called);
                    }
                }
            }
            _ => {}
        }
    }
    gone
}

fn hold(held: &mut Vec<Held>, of: &mut HashMap<u64, usize>, tensor: u64, number: u32) {
    of.insert(tensor, held.len());
    held.push(Held {
        number,
        references: 1,
    });
}
