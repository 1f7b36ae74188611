//! The conversion from a log's instructions to events.

use crate::dtr::Instruction;
use crate::{Event, Problem, TraceOutput, TraceOutputKind};
use std::collections::{HashMap, HashSet, VecDeque};

/// Turns the instructions of a log into events, one by one.
#[derive(Debug, Default)]
pub struct FromDtr {
    started: bool,
    mutations: Mutations,
    names: HashMap<String, Named>,
    /// Names and tensors given out so far.
    named: u64,
    defined: u64,
    awaited: Option<Awaited>,
}

/// The tensor that a name stands for.
#[derive(Clone, Copy, Debug)]
struct Named {
    tensor: u64,
    /// Size of the storage that the tensor views.
    storage_bytes: u64,
    /// The number of names that appeared before this one.
    order: u64,
}

/// Where a log's mutations write.
#[derive(Clone, Copy, Debug, Default)]
enum Mutations {
    /// Into a copy, as in the authors' simulator (DTR appendix C.6).
    #[default]
    Copied,
    /// Into the block of the tensor that they change (Coop section 3.5).
    InPlace,
}

/// An instruction whose `MEMORY` and `ALIAS` instructions are still to come.
#[derive(Debug)]
struct Awaited {
    /// `None` for a constant.
    call: Option<Call>,
    results: Vec<AwaitedResult>,
}

#[derive(Debug)]
struct Call {
    op: String,
    args: Vec<Named>,
    cost: u64,
}

#[derive(Debug)]
struct AwaitedResult {
    name: String,
    bytes: Option<u64>,
    /// Outer `None`: its `ALIAS` has not come yet. Inner `None`: it has a storage of its own.
    alias: Option<Option<usize>>,
}

impl Awaited {
    fn constant(name: &str) -> Awaited {
        let own_storage = AwaitedResult {
            name: name.to_owned(),
            bytes: None,
            alias: Some(None),
        };
        Awaited {
            call: None,
            results: vec![own_storage],
        }
    }

    fn call(call: Call, results: &[String]) -> Awaited {
        let results = results.iter().map(|name| AwaitedResult {
            name: name.clone(),
            bytes: None,
            alias: None,
        });
        Awaited {
            call: Some(call),
            results: results.collect(),
        }
    }
}

impl AwaitedResult {
    fn is_complete(&self) -> bool {
        self.bytes.is_some() && self.alias.is_some()
    }
}

impl FromDtr {
    /// A converter that turns `MUTATE` into an op that writes in place (Coop section 3.5, figure 3), instead of one
    /// that writes into a copy.
    pub fn in_place() -> Self {
        FromDtr {
            mutations: Mutations::InPlace,
            ..FromDtr::default()
        }
    }

    /// Takes the next instruction and appends the events that are now complete to `events`.
    ///
    /// # Errors
    /// The instruction contradicts those before it. After an error the converter's events have no meaning.
    pub fn push(
        &mut self,
        instruction: &Instruction,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Problem> {
        if !self.started {
            self.started = matches!(instruction, Instruction::Annotate { annotation } if annotation == "START");
            return Ok(());
        }
        match instruction {
            Instruction::Memory { name, bytes } => {
                self.awaited_result(name, "MEMORY")?.bytes = Some(*bytes);
                self.complete(events)
            }
            Instruction::Alias { name, of } => {
                self.awaited_result(name, "ALIAS")?.alias = Some(*of);
                self.complete(events)
            }
            _ => {
                self.nothing_awaited()?;
                self.push_first(instruction, events)
            }
        }
    }

    /// Ends the log: pins every tensor that is still referenced, in order of first appearance.
    ///
    /// # Errors
    /// The log has no `START`, or stops within an instruction.
    pub fn finish(&mut self, events: &mut VecDeque<Event>) -> Result<(), Problem> {
        if !self.started {
            let what = "the log has no START; \
                        put {\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"} before the step";
            return Err(Problem::Instruction(what.into()));
        }
        if self.awaited.is_some() {
            return Err(Problem::Truncated(
                "MEMORY or ALIAS of the last instruction is missing",
            ));
        }
        let mut outputs: Vec<Named> = self.names.drain().map(|(_, named)| named).collect();
        outputs.sort_by_key(|named| named.order);
        let mut pinned = HashSet::new();
        let firsts = outputs
            .into_iter()
            .filter(|named| pinned.insert(named.tensor));
        events.extend(firsts.map(|named| Event::Pin {
            tensor: named.tensor,
        }));
        Ok(())
    }

    /// Takes an instruction that begins a group.
    fn push_first(
        &mut self,
        instruction: &Instruction,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Problem> {
        match instruction {
            Instruction::Annotate { annotation } => events.push_back(Event::Mark {
                name: annotation.clone(),
            }),
            Instruction::Constant { name } => self.awaited = Some(Awaited::constant(name)),
            Instruction::Call {
                op,
                args,
                results,
                cost,
            } => {
                let args = args.iter().map(|name| self.named(name));
                let call = Call {
                    op: op.clone(),
                    args: args.collect::<Result<_, _>>()?,
                    cost: *cost,
                };
                self.awaited = Some(Awaited::call(call, results));
                self.complete(events)?;
            }
            Instruction::Mutate {
                op,
                args,
                mutated,
                cost,
            } => self.mutate(op, args, mutated, *cost, events)?,
            Instruction::Copy { target, source } => self.copy(target, source, events)?,
            Instruction::CopyFrom { target, source } => self.copy_from(target, source, events)?,
            Instruction::Release { name } => {
                // The authors' simulator ignores unknown names as well.
                if let Some(named) = self.names.remove(name) {
                    events.push_back(Event::Release {
                        tensor: named.tensor,
                    });
                }
            }
            // `push` handles both before it calls this function.
            Instruction::Memory { .. } | Instruction::Alias { .. } => {}
        }
        Ok(())
    }

    fn copy(
        &mut self,
        target: &str,
        source: &str,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Problem> {
        let source = self.named(source)?;
        self.name(target, source.tensor, source.storage_bytes)?;
        events.push_back(Event::Retain {
            tensor: source.tensor,
        });
        Ok(())
    }

    fn copy_from(
        &mut self,
        target: &str,
        source: &str,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Problem> {
        let old = self.named(target)?;
        let new = self.named(source)?;
        if old.tensor != new.tensor {
            self.names.insert(
                target.to_owned(),
                Named {
                    order: old.order,
                    ..new
                },
            );
            events.push_back(Event::Release { tensor: old.tensor });
            events.push_back(Event::Retain { tensor: new.tensor });
        }
        Ok(())
    }

    fn mutate(
        &mut self,
        op: &str,
        args: &[String],
        mutated: &[usize],
        cost: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Problem> {
        let inputs = args
            .iter()
            .map(|name| self.named(name))
            .collect::<Result<Vec<_>, _>>()?;
        let mut outputs = Vec::new();
        let mut releases = Vec::new();
        for (position, &index) in mutated.iter().enumerate() {
            let Some(name) = args.get(index) else {
                return Err(no_such_argument("MUTATE", index, args.len()));
            };
            if mutated[..position]
                .iter()
                .any(|&earlier| args[earlier] == *name)
            {
                return Err(Problem::Instruction(format!(
                    "MUTATE changes {name:?} twice"
                )));
            }
            let old = inputs[index];
            let tensor = self.new_tensor();
            self.names.insert(name.clone(), Named { tensor, ..old });
            let kind = match self.mutations {
                Mutations::InPlace => TraceOutputKind::InPlace { of: index },
                Mutations::Copied => TraceOutputKind::Fresh {
                    bytes: old.storage_bytes,
                    device: 0,
                },
            };
            outputs.push(TraceOutput { tensor, kind });
            releases.push(Event::Release { tensor: old.tensor });
        }
        events.push_back(op_event(op.to_owned(), &inputs, outputs, cost));
        events.extend(releases);
        Ok(())
    }

    /// Turns the awaited instruction into an event once its last `MEMORY` or `ALIAS` has come.
    fn complete(&mut self, events: &mut VecDeque<Event>) -> Result<(), Problem> {
        let awaited = self.awaited.as_ref();
        if !awaited.is_some_and(|a| a.results.iter().all(AwaitedResult::is_complete)) {
            return Ok(());
        }
        let Some(Awaited { call, results }) = self.awaited.take() else {
            return Ok(());
        };
        let args = call.as_ref().map_or(&[][..], |call| &call.args);
        let mut outputs = Vec::new();
        for result in results {
            let (kind, storage_bytes) = match result.alias.flatten() {
                None => {
                    let bytes = result.bytes.unwrap_or(0);
                    (TraceOutputKind::Fresh { bytes, device: 0 }, bytes)
                }
                Some(of) => {
                    let viewed = args
                        .get(of)
                        .ok_or_else(|| no_such_argument("ALIAS", of, args.len()))?;
                    (TraceOutputKind::Alias { of }, viewed.storage_bytes)
                }
            };
            let tensor = self.new_tensor();
            self.name(&result.name, tensor, storage_bytes)?;
            outputs.push(TraceOutput { tensor, kind });
        }
        if let Some(call) = call {
            events.push_back(op_event(call.op, &call.args, outputs, call.cost));
        } else if let Some(&constant) = outputs.first() {
            // A constant awaits exactly one storage of its own.
            if let TraceOutputKind::Fresh { bytes, device } = constant.kind {
                let tensor = constant.tensor;
                events.push_back(Event::Constant {
                    tensor,
                    bytes,
                    device,
                });
            }
        }
        Ok(())
    }

    fn awaited_result(
        &mut self,
        name: &str,
        instruction: &str,
    ) -> Result<&mut AwaitedResult, Problem> {
        let results = self
            .awaited
            .iter_mut()
            .flat_map(|awaited| &mut awaited.results);
        results
            .into_iter()
            .find(|result| result.name == name)
            .ok_or_else(|| {
                let what = format!(
                    "{instruction} of {name:?}, which the CALL or CONSTANT before it does not make"
                );
                Problem::Instruction(what)
            })
    }

    fn nothing_awaited(&self) -> Result<(), Problem> {
        let Some(awaited) = &self.awaited else {
            return Ok(());
        };
        let names = awaited
            .results
            .iter()
            .filter(|result| !result.is_complete());
        let name = names
            .map(|result| result.name.as_str())
            .next()
            .unwrap_or_default();
        Err(Problem::Instruction(format!(
            "MEMORY or ALIAS of {name:?} is missing before this instruction"
        )))
    }

    fn named(&self, name: &str) -> Result<Named, Problem> {
        let unknown = || {
            Problem::Instruction(format!(
                "{name:?} is used but not defined by any line before"
            ))
        };
        self.names.get(name).copied().ok_or_else(unknown)
    }

    fn name(&mut self, name: &str, tensor: u64, storage_bytes: u64) -> Result<(), Problem> {
        let named = Named {
            tensor,
            storage_bytes,
            order: self.named,
        };
        self.named += 1;
        match self.names.insert(name.to_owned(), named) {
            None => Ok(()),
            Some(_) => Err(Problem::Instruction(format!(
                "{name:?} is defined a second time before its release"
            ))),
        }
    }

    fn new_tensor(&mut self) -> u64 {
        self.defined += 1;
        self.defined - 1
    }
}

fn no_such_argument(instruction: &str, index: usize, args: usize) -> Problem {
    Problem::Instruction(format!(
        "{instruction} names argument {index} (counted from 0), but the call has {args}"
    ))
}

fn op_event(name: String, inputs: &[Named], outputs: Vec<TraceOutput>, cost: u64) -> Event {
    let inputs = inputs.iter().map(|named| named.tensor).collect();
    Event::Op {
        name,
        inputs,
        outputs,
        workspace: 0,
        workspace_device: 0,
        cost,
        replay: true,
    }
}
