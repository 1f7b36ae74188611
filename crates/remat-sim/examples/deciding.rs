//! Recorded steps inside budgets, decided as a front end's are: lineage is collected, and every order of replays is
//! tried. `remat simulate` follows the DTR paper instead.
//!
//! ```console
//! $ cargo run --release -p remat-sim --example deciding -- dtr-anc 0.9,0.7,0.5,0.45,0.4 traces/gpt.trace.zst
//! ```
//!
//! The budgets are parts of the most that the step holds when nothing is evicted. A line tells how the step ends and
//! what it recomputes; those figures do not depend on the machine. For instructions run it below
//! `valgrind --tool=callgrind`, one budget at a time, and read the inclusive count of `Engine::begin_expecting`.

use remat_core::{
    Bytes, Config, Cost, DeviceId, Engine, Error, Expected, Finished, OpSpec, Output, Replay,
    TensorId, ThrashLimit,
};
use remat_trace::Event;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const HERE: DeviceId = DeviceId(0);
/// A step is given up once it has recomputed for so many times its own cost.
const MOST: f64 = 20.0;

/// An engine that is told a step.
struct Step<'a> {
    events: &'a [Event],
    engine: Engine,
    /// The engine's ids by the trace's.
    tensors: HashMap<u64, TensorId>,
    deciding: Duration,
}

impl<'a> Step<'a> {
    fn new(events: &'a [Event], policy: &str, budget: Option<u64>) -> Result<Step<'a>, String> {
        let engine = Engine::new(Config {
            budgets: vec![budget.map(Bytes)],
            policy: policy.parse().map_err(|error| format!("{error}"))?,
            thrash: ThrashLimit::Never,
            ..Config::default()
        });
        Ok(Step {
            events,
            engine,
            tensors: HashMap::new(),
            deciding: Duration::ZERO,
        })
    }

    /// Tells all events; how the step ended.
    fn run(&mut self, most: f64) -> Result<&'static str, Error> {
        for event in self.events {
            match self.tell(event) {
                Ok(()) => {}
                Err(Error::Budget { .. } | Error::PlanLimit) => return Ok("refused"),
                Err(error) => return Err(error),
            }
            self.engine.collected();
            let counters = self.engine.counters();
            if counters.replayed_cost.0 as f64 > most {
                return Ok("thrash");
            }
        }
        Ok("ok")
    }

    fn tell(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::Constant {
                tensor,
                bytes,
                device,
            } => {
                let constant = self.engine.constant(Bytes(*bytes), DeviceId(*device))?;
                self.tensors.insert(*tensor, constant);
                Ok(())
            }
            Event::Op { .. } => self.op(event),
            Event::Retain { tensor } => self.engine.retain(self.tensors[tensor]),
            Event::Release { tensor } => self.engine.release(self.tensors[tensor]),
            Event::Pin { tensor } => self.engine.pin(self.tensors[tensor]),
            Event::Ensure { tensors } => {
                let tensors: Vec<_> = tensors.iter().map(|tensor| self.tensors[tensor]).collect();
                self.engine.ensure(&tensors)
            }
            Event::Mark { .. } => Ok(()),
        }
    }

    fn op(&mut self, event: &Event) -> Result<(), Error> {
        let Event::Op {
            inputs,
            outputs,
            workspace,
            workspace_device,
            cost,
            replay,
            ..
        } = event
        else {
            return Ok(());
        };
        let read: Vec<_> = inputs.iter().map(|tensor| self.tensors[tensor]).collect();
        let made: Vec<_> = outputs.iter().map(|made| Output::from(made.kind)).collect();
        let replay = if *replay {
            Replay::Allowed
        } else {
            Replay::Forbidden
        };
        let spec = OpSpec {
            inputs: &read,
            outputs: &made,
            workspace: Bytes(*workspace),
            workspace_device: DeviceId(*workspace_device),
            replay,
        };
        let started = Instant::now();
        let op = self
            .engine
            .begin_expecting(&spec, Expected::from(Cost(*cost)))?;
        let report = Finished {
            cost: Cost(*cost),
            bytes: None,
        };
        self.engine.finish(op, &report)?;
        self.deciding += started.elapsed();
        for (output, &tensor) in outputs.iter().zip(self.engine.outputs(op)) {
            self.tensors.insert(output.tensor, tensor);
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [policy, ratios, traces @ ..] = &arguments[..] else {
        return Err("give a policy, parts of the peak, and traces".into());
    };
    println!("| trace | ratio | end | recomputed | evictions | replays | peak / budget | cost of a step, us | deciding, us |");
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for trace in traces {
        let reader = remat_trace::open(trace)?.with_mutations_in_place();
        let events: Vec<Event> = reader.collect::<Result<_, _>>()?;
        let mut free = Step::new(&events, policy, None)?;
        free.run(f64::MAX)?;
        let (peak, cost) = (
            free.engine.peak(HERE).0,
            free.engine.counters().first_cost.0,
        );
        for ratio in ratios.split(',') {
            let part: f64 = ratio.parse()?;
            let budget = (peak as f64 * part) as u64;
            let mut step = Step::new(&events, policy, Some(budget))?;
            let end = step.run(MOST * cost as f64)?;
            let counters = step.engine.counters();
            println!(
                "| {} | {ratio} | {end} | {:.4} | {} | {} | {:.4} | {} | {} |",
                std::path::Path::new(trace)
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .trim_end_matches(".trace.zst"),
                counters.replayed_cost.0 as f64 / cost as f64,
                counters.evictions,
                counters.replays,
                step.engine.peak(HERE).0 as f64 / budget as f64,
                cost / 1000,
                step.deciding.as_micros(),
            );
        }
    }
    Ok(())
}
