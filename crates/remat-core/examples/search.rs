//! Time of an eviction: the search among many beside the exhaustive scan, which pick the same victims.
//!
//! ```console
//! $ cargo run --release -p remat-core --example search
//! ```
//!
//! Arguments: the largest number of candidates (1000000), policies (`dtr-eq,dtr-local,lru`). One thread.
//!
//! The program trains on samples: forward over a new one (64 ops that read the result before them and often another
//! one), backward over an older one drawn at random, which reads its results from the last to the first, brings back
//! those that were evicted, and lets them go. Sizes and costs are spread over three orders of magnitude. So between
//! two evictions candidates are made, accessed, locked, dropped and brought back, components grow and shrink and the
//! clock advances. The budget holds the candidates that are asked for and half of what the program holds; measuring
//! starts once as many were evicted.
//!
//! A search's time is that of finding the next victim by valid scores. An eviction's time is that of the call that
//! makes room: numerators that changed, searches, evictions. "In all" is the whole run per eviction, in which the
//! engine is also told of the ops. Both engines get the same events, and their victims are compared.

use remat_core::*;
use std::error::Error;
use std::time::{Duration, Instant};

const DEVICE: DeviceId = DeviceId(0);

/// Ops forward over a sample.
const DEPTH: u64 = 64;

/// Mean of [`Random::spread`].
const MEAN: u64 = 153;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let largest: u64 = arguments
        .next()
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let policies = arguments
        .next()
        .unwrap_or_else(|| "dtr-eq,dtr-local,lru".into());
    println!(
        "| policy | candidates | search, ns | scan, ns | ratio | eviction, ns | by scan, ns | ratio | in all, ns | by scan, ns | ratio |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for policy in policies.split(',') {
        let mut candidates = 100;
        while candidates <= largest {
            row(policy.parse()?, candidates)?;
            candidates *= 10;
        }
    }
    Ok(())
}

/// Measures with so many candidates.
fn row(policy: Policy, candidates: u64) -> Result<(), remat_core::Error> {
    let evictions = (400_000_000 / candidates).clamp(400, 100_000);
    let fast = measure(policy, candidates, 0, 100_000)?;
    let scan = measure(policy, candidates, usize::MAX, evictions)?;
    let shared = scan.victims.len().min(fast.victims.len());
    assert!(
        fast.victims[..shared] == scan.victims[..shared],
        "other victims"
    );
    print!("| {policy} | {:.0} ", fast.candidates);
    for (fast, scan) in fast.times.into_iter().zip(scan.times) {
        print!("| {fast:.0} | {scan:.0} | {:.1} ", scan / fast);
    }
    println!("|");
    Ok(())
}

struct Measured {
    victims: Vec<StorageId>,
    /// Mean number of candidates that a search chose from.
    candidates: f64,
    /// Nanoseconds a search, an eviction with its search, an eviction with all between it and the next.
    times: [f64; 3],
}

fn measure(
    policy: Policy,
    candidates: u64,
    many: usize,
    evictions: u64,
) -> Result<Measured, remat_core::Error> {
    let mut training = Training::new(policy, candidates)?;
    training.engine.search_exhaustively_below(0);
    while training.samples.len() < training.held {
        training.forward()?;
    }
    while training.engine.counters().evictions < candidates {
        training.step()?;
    }
    training.engine.search_exhaustively_below(many);
    training.victims.clear();
    training.time = Duration::ZERO;
    let before = training.engine.counters();
    let started = Instant::now();
    while training.engine.counters().evictions - before.evictions < evictions {
        training.step()?;
    }
    let all = started.elapsed();
    let after = training.engine.counters();
    let counted = (after.evictions - before.evictions) as f64;
    let evicting = training.time;
    Ok(Measured {
        victims: std::mem::take(&mut training.victims),
        candidates: (after.score_evaluations - before.score_evaluations) as f64 / counted,
        times: [
            measure_searches(&mut training, evictions)?,
            evicting.as_nanos() as f64 / counted,
            all.as_nanos() as f64 / counted,
        ],
    })
}

/// Nanoseconds a search, over so many evictions at least.
fn measure_searches(training: &mut Training, evictions: u64) -> Result<f64, remat_core::Error> {
    training.timed = Timed::Searches;
    training.time = Duration::ZERO;
    let before = training.engine.counters().evictions;
    while training.engine.counters().evictions - before < evictions {
        training.step()?;
    }
    let evictions = training.engine.counters().evictions - before;
    Ok(training.time.as_nanos() as f64 / evictions as f64)
}

/// The part of a run that is timed.
enum Timed {
    Searches,
    Evictions,
}

/// The results that a sample's forward pass left, and the bytes of each.
struct Sample {
    input: TensorId,
    results: Vec<(TensorId, u64)>,
}

struct Training {
    engine: Engine,
    random: Random,
    budget: Bytes,
    samples: Vec<Sample>,
    /// Samples held at a time.
    held: usize,
    victims: Vec<StorageId>,
    timed: Timed,
    time: Duration,
}

impl Training {
    fn new(policy: Policy, candidates: u64) -> Result<Training, remat_core::Error> {
        let config = Config {
            budgets: vec![None],
            policy,
            ..Config::default()
        };
        Ok(Training {
            engine: Engine::new(config),
            random: Random(1),
            budget: Bytes(candidates * MEAN),
            samples: Vec::new(),
            held: (2 * candidates).div_ceil(DEPTH) as usize,
            victims: Vec::new(),
            timed: Timed::Evictions,
            time: Duration::ZERO,
        })
    }

    fn step(&mut self) -> Result<(), remat_core::Error> {
        self.forward()?;
        self.backward()
    }

    fn forward(&mut self) -> Result<(), remat_core::Error> {
        let input = self.engine.constant(Bytes(0), DEVICE)?;
        let mut results = vec![(input, 0)];
        for _ in 0..DEPTH {
            let (before, _) = results[results.len() - 1];
            let (other, _) = results[self.random.below(results.len() as u64) as usize];
            let inputs = [before, other];
            let count = 1 + self.random.below(2) as usize;
            let bytes = self.random.spread();
            results.push((self.op(&inputs[..count], bytes)?, bytes));
        }
        results.remove(0);
        self.samples.push(Sample { input, results });
        Ok(())
    }

    fn backward(&mut self) -> Result<(), remat_core::Error> {
        let drawn = self.random.below(self.samples.len() as u64) as usize;
        let sample = self.samples.swap_remove(drawn);
        let mut gradient = sample.input;
        for (result, bytes) in sample.results.into_iter().rev() {
            let next = self.op(&[result, gradient], bytes)?;
            self.engine.release(gradient)?;
            self.engine.release(result)?;
            gradient = next;
        }
        self.engine.release(gradient)?;
        self.engine.collected();
        Ok(())
    }

    /// Runs an op with all the room it wants, then goes back inside the budget.
    fn op(&mut self, inputs: &[TensorId], bytes: u64) -> Result<TensorId, remat_core::Error> {
        let cost = Cost(self.random.spread());
        let outputs = [Output::Fresh {
            bytes: Bytes(bytes),
            device: DEVICE,
        }];
        let spec = OpSpec {
            inputs,
            outputs: &outputs,
            workspace: Bytes(0),
            workspace_device: DEVICE,
            replay: Replay::Allowed,
        };
        let op = self.engine.begin_expecting(&spec, cost)?;
        self.engine.finish(op, &Finished { cost, bytes: None })?;
        let result = self.engine.outputs(op)[0];
        match self.timed {
            Timed::Evictions if self.engine.memory(DEVICE) > self.budget => {
                let started = Instant::now();
                self.engine.set_budget(DEVICE, Some(self.budget))?;
                self.time += started.elapsed();
                self.note_victims();
                self.engine.set_budget(DEVICE, None)?;
            }
            Timed::Evictions => {}
            Timed::Searches => self.search_and_evict()?,
        }
        Ok(result)
    }

    fn note_victims(&mut self) {
        for step in self.engine.steps() {
            if let Step::Evict(victim) = *step {
                self.victims.push(victim);
            }
        }
    }

    /// Goes back inside the budget one victim at a time.
    fn search_and_evict(&mut self) -> Result<(), remat_core::Error> {
        while self.engine.memory(DEVICE) > self.budget {
            self.engine.prepare_search(DEVICE);
            let started = Instant::now();
            let victim = self.engine.next_victim(DEVICE);
            self.time += started.elapsed();
            let less = self.engine.memory(DEVICE).0 - 1;
            self.engine.set_budget(DEVICE, Some(Bytes(less)))?;
            assert!(self.engine.steps().first().copied() == victim.map(Step::Evict));
            self.engine.set_budget(DEVICE, None)?;
        }
        Ok(())
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// From 1 to about 1000, all orders of magnitude alike.
    fn spread(&mut self) -> u64 {
        let exponent = self.below(10);
        (1 << exponent) + self.below(1 << exponent)
    }
}
