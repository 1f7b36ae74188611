//! Random traces that are valid by construction.

use proptest::prelude::*;
use remat_trace::{Event, TraceOutput, TraceOutputKind};

/// Numbers from which one event is built; what they mean depends on which tensors are alive.
type Draw = (u8, usize, usize, u64, u8, bool);

/// Traces of up to 60 events.
pub fn valid_traces() -> impl Strategy<Value = Vec<Event>> {
    let draw = (
        any::<u8>(),
        any::<usize>(),
        any::<usize>(),
        0u64..1 << 20,
        any::<u8>(),
        any::<bool>(),
    );
    prop::collection::vec(draw, 0..60).prop_map(|draws| {
        let mut step = Step::default();
        draws.into_iter().map(|draw| step.event(draw)).collect()
    })
}

#[derive(Default)]
struct Step {
    /// Tensors by reference: one with two references is here twice.
    references: Vec<u64>,
    defined: u64,
}

impl Step {
    fn event(&mut self, (choice, first, second, number, device, flag): Draw) -> Event {
        if self.references.is_empty() {
            return Event::Constant {
                tensor: self.define(),
                bytes: number,
                device,
            };
        }
        let tensor = self.references[first % self.references.len()];
        match choice % 8 {
            0 => Event::Constant {
                tensor: self.define(),
                bytes: number,
                device,
            },
            1 => {
                self.references.push(tensor);
                Event::Retain { tensor }
            }
            2 => Event::Release {
                tensor: self.references.swap_remove(first % self.references.len()),
            },
            3 => Event::Pin { tensor },
            4 => Event::Ensure {
                tensors: vec![tensor, self.references[second % self.references.len()]],
            },
            5 => Event::Mark {
                name: format!("mark {number} \u{2603} \"\\\n"),
            },
            _ => {
                let inputs = vec![
                    tensor,
                    self.references[second % self.references.len()],
                    tensor,
                ];
                let mut outputs = Vec::new();
                for kind in [
                    TraceOutputKind::Fresh {
                        bytes: number,
                        device,
                    },
                    TraceOutputKind::Alias { of: second % 3 },
                    TraceOutputKind::InPlace { of: first % 3 },
                ] {
                    // One, two or all three of them.
                    if outputs.is_empty() || (first ^ second) >> outputs.len() & 1 == 1 {
                        outputs.push(TraceOutput {
                            tensor: self.define(),
                            kind,
                        });
                    }
                }
                let workspace = if flag { number } else { 0 };
                let (workspace_device, cost) = (device / 2, number * 3);
                Event::Op {
                    name: "op".into(),
                    inputs,
                    outputs,
                    workspace,
                    workspace_device,
                    cost,
                    replay: choice > 40,
                }
            }
        }
    }

    fn define(&mut self) -> u64 {
        self.defined += 1;
        // Ids need not be dense.
        let tensor = self.defined * 7;
        self.references.push(tensor);
        tensor
    }
}
