//! One run of a program inside a budget.

use crate::program::Instruction;
use crate::selective::Drops;
use crate::{Base, Eviction, Mutations, Program};
use remat_core::{
    Arena, Bytes, Config, Cost, Counters, Dealloc, Engine, Error, Finished, Lineage, Memory, Moves,
    OpId, Policy, PoolId, ReplayOrder, Step, ThrashLimit,
};
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a run is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// What is evicted.
    pub policy: Eviction,
    /// What happens when the last reference to a storage goes; [`Eviction::Selective`] is always eager.
    pub dealloc: Dealloc,
    /// How many bytes there are in pool 0.
    pub budget: Budget,
    /// The run is given up once more than this many times [`Base::cost`] was recomputed.
    pub thrash_limit: f64,
    /// Seed of the policy `random`.
    pub seed: u64,
    /// What the bytes of the budget are: a count, or an arena with addresses.
    pub memory: Memory,
    /// What ops do that change a tensor.
    pub mutations: Mutations,
}

impl Default for Setting {
    /// `dtr-eq` in all that the step needs, as much recomputed as the step costs, bytes counted.
    fn default() -> Self {
        Setting {
            policy: Eviction::default(),
            dealloc: Dealloc::Eager,
            budget: Budget::Ratio(1.0),
            thrash_limit: 1.0,
            seed: 0,
            memory: Memory::Fungible,
            mutations: Mutations::Recorded,
        }
    }
}

/// A budget, as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// This many times [`Base::memory`], rounded down.
    Ratio(f64),
    /// So many bytes.
    Bytes(Bytes),
}

impl Budget {
    /// The budget in bytes; at most 2^63 - 1.
    ///
    /// ```
    /// use remat_core::{Bytes, Cost};
    /// use remat_sim::{Base, Budget};
    ///
    /// let base = Base { memory: Bytes(101), cost: Cost(1), constants: Bytes(0), bottleneck: Bytes(0) };
    /// assert_eq!(Budget::Ratio(0.5).bytes(&base), Bytes(50));
    /// assert_eq!(Budget::Bytes(Bytes(7)).bytes(&base), Bytes(7));
    /// ```
    pub fn bytes(&self, base: &Base) -> Bytes {
        match *self {
            Budget::Ratio(ratio) => Bytes(scaled(base.memory.0, ratio)),
            Budget::Bytes(bytes) => bytes,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The program came to its end inside the budget.
    Ok,
    /// The budget could not be met.
    Oom,
    /// More was recomputed than the limit allows.
    Thrash,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Status::Ok => "ok",
            Status::Oom => "oom",
            Status::Thrash => "thrash",
        })
    }
}

/// What a run came to. Of one that did not end [`Ok`](Status::Ok), as things stood where it was given up.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The budget in bytes.
    pub budget: Bytes,
    /// The virtual clock at the end: 1 and the cost of all ops run, in nanoseconds; and the time of copies where an arena's blocks are
    /// [moved](Moves), which the engine's clock does not count.
    pub clock: u64,
    /// Highest memory of pool 0.
    pub peak: Bytes,
    /// Evictions, replays, their cost, and the work of deciding. Evictions of [`Eviction::Selective`] are the storages that its plan
    /// dropped.
    pub counters: Counters,
    /// Time that the simulation took.
    pub wall: Duration,
    /// Of that, nanoseconds spent looking for what to evict; only of arenas.
    pub search_time: u64,
}

impl Outcome {
    /// The clock over the cost without a limit; of a run that was given up, as far as it got.
    pub fn overhead(&self, base: &Base) -> f64 {
        self.clock as f64 / base.cost.0.max(1) as f64
    }

    /// Of an arena, the part of it that is free once a block was taken that was not to be had without evicting: the mean over all such
    /// blocks, and the most. 0 where there was none.
    pub fn fragmentation(&self) -> (f64, f64) {
        let budget = self.budget.0.max(1) as f64;
        let shortages = self.counters.shortages.max(1) as f64;
        let mean = self.counters.free_after as f64 / shortages / budget;
        (mean, self.counters.most_free_after as f64 / budget)
    }

    /// Of an arena, nanoseconds of searches for a block that was not to be had without evicting, mean.
    pub fn search_latency(&self) -> f64 {
        self.search_time as f64 / self.counters.shortages.max(1) as f64
    }
}

/// The events contradict one another; readers of traces find such faults before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsound {
    /// The event, counted from 0, remarks not counted.
    pub event: usize,
    /// What the engine says.
    pub error: Error,
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "event {} cannot be replayed: {}; check the trace with `remat trace check`",
            self.event, self.error
        )
    }
}

impl std::error::Error for Unsound {}

impl Program {
    /// Replays the step inside a budget. [`Eviction::Selective`] drops nothing of a step without attention
    /// ([`check_attention`](Program::check_attention) tells).
    ///
    /// # Errors
    /// [`Unsound`] if the events contradict one another. A budget that cannot be met is an [`Outcome`].
    pub fn run(&self, base: &Base, setting: &Setting) -> Result<Outcome, Unsound> {
        let started = Instant::now();
        let budget = setting.budget.bytes(base);
        let limit = Cost(scaled(base.cost.0, setting.thrash_limit));
        let (policy, dealloc) = match setting.policy {
            Eviction::Online(policy) => (policy, setting.dealloc),
            Eviction::Selective => (Policy::LRU, Dealloc::Eager),
        };
        let config = Config {
            memory: setting.memory,
            stopwatch: matches!(setting.memory, Memory::Arena(_)).then_some(nanoseconds),
            ..config(
                policy,
                dealloc,
                Some(budget),
                ThrashLimit::Total(limit),
                setting.seed,
            )
        };
        let (engine, end) = match setting.policy {
            Eviction::Online(_) => online(self, config, setting.mutations)?,
            Eviction::Selective => planned(self, config, setting.mutations)?,
        };
        Ok(Outcome {
            status: end.status,
            budget,
            clock: end
                .clock
                .saturating_add(copying(setting.memory, &end.counters)),
            peak: end.peak,
            counters: end.counters,
            wall: started.elapsed(),
            search_time: engine.search_time(),
        })
    }
}

/// Nanoseconds of copies: blocks of an arena that were moved.
fn copying(memory: Memory, counters: &Counters) -> u64 {
    match memory {
        Memory::Arena(Arena {
            moves: Moves::Copied {
                bytes_per_microsecond,
            },
            ..
        }) => counters.moved_bytes.saturating_mul(1000) / u64::from(bytes_per_microsecond.get()),
        _ => 0,
    }
}

/// Where a run ended or was given up.
struct End {
    status: Status,
    clock: u64,
    peak: Bytes,
    counters: Counters,
}

impl End {
    fn of(engine: &Engine, status: Status) -> End {
        End {
            status,
            clock: engine.clock(),
            peak: engine.peak(PoolId(0)),
            counters: engine.counters(),
        }
    }
}

fn online(
    program: &Program,
    config: Config,
    mutations: Mutations,
) -> Result<(Engine, End), Unsound> {
    let (engine, stopped) = watched(program, config, mutations, |_| {})?;
    let status = match stopped {
        None => Status::Ok,
        Some((_, Error::Budget { .. })) => Status::Oom,
        Some(_) => Status::Thrash,
    };
    let refused = engine.refused().filter(|_| status != Status::Ok);
    let end = match refused {
        None => End::of(&engine, status),
        Some(at) => End {
            status,
            clock: at.clock,
            peak: at.peak,
            counters: at.counters,
        },
    };
    Ok((engine, end))
}

/// Runs the step as its plan has it. What fits only if something else is evicted does not fit.
fn planned(
    program: &Program,
    config: Config,
    mutations: Mutations,
) -> Result<(Engine, End), Unsound> {
    let drops = program.drops().ok();
    let instructions = drops.map_or(&program.instructions, |drops| &drops.instructions);
    let dropped = |event| drops.map_or(0, |drops: &Drops| drops.among(event));
    let mut engine = Engine::new(config);
    for (event, &instruction) in instructions.iter().enumerate() {
        let before = End::of(&engine, Status::Oom);
        let told = tell(&mut engine, program, instruction, mutations, &mut |_| {});
        let status = match told {
            Ok(()) if engine.counters().evictions == 0 => continue,
            Ok(()) | Err(Error::Budget { .. }) => Status::Oom,
            Err(Error::Thrash { .. }) => Status::Thrash,
            Err(error) => return Err(Unsound { event, error }),
        };
        let mut end = End { status, ..before };
        end.counters.evictions = dropped(event);
        return Ok((engine, end));
    }
    let mut end = End::of(&engine, Status::Ok);
    end.counters.evictions = dropped(instructions.len());
    Ok((engine, end))
}

/// Since this was first asked for.
fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// DTR's own ways: lineage for ever, no order of replays but the paper's.
pub(crate) fn config(
    policy: Policy,
    dealloc: Dealloc,
    budget: Option<Bytes>,
    thrash: ThrashLimit,
    seed: u64,
) -> Config {
    Config {
        budgets: vec![budget],
        policy,
        dealloc,
        lineage: Lineage::Keep,
        order: ReplayOrder::Dtr,
        thrash,
        seed,
        memory: Memory::Fungible,
        stopwatch: None,
    }
}

/// Tells a fresh engine the program; hands back the engine, and where and why it refused if it did.
pub(crate) fn replay(
    program: &Program,
    config: Config,
) -> Result<(Engine, Option<(usize, Error)>), Unsound> {
    watched(program, config, Mutations::Recorded, |_| {})
}

/// What can be seen of a run while it goes on.
pub(crate) enum Seen<'a> {
    /// Steps performed, in order.
    Steps(&'a [Step]),
    /// An op ran for the first time.
    Ran(OpId),
}

/// [`replay`] that shows every step.
pub(crate) fn watched(
    program: &Program,
    config: Config,
    mutations: Mutations,
    mut watch: impl FnMut(Seen<'_>),
) -> Result<(Engine, Option<(usize, Error)>), Unsound> {
    let mut engine = Engine::new(config);
    for (event, &instruction) in program.instructions.iter().enumerate() {
        match tell(&mut engine, program, instruction, mutations, &mut watch) {
            Ok(()) => {}
            Err(error @ (Error::Budget { .. } | Error::Thrash { .. })) => {
                return Ok((engine, Some((event, error))))
            }
            Err(error) => return Err(Unsound { event, error }),
        }
    }
    Ok((engine, None))
}

fn tell(
    engine: &mut Engine,
    program: &Program,
    instruction: Instruction,
    mutations: Mutations,
    watch: &mut impl FnMut(Seen<'_>),
) -> Result<(), Error> {
    match instruction {
        Instruction::Constant { bytes, pool } => engine.constant(bytes, pool).map(drop),
        Instruction::Op(op) => {
            let (spec, expected) = program.op(op, mutations);
            let id = engine.begin_expecting(&spec, expected)?;
            watch(Seen::Steps(engine.steps()));
            watch(Seen::Ran(id));
            let cost = expected.cost;
            engine.finish(id, &Finished { cost, bytes: None })
        }
        Instruction::Retain(tensor) => engine.retain(tensor),
        Instruction::Release(tensor) => engine.release(tensor),
        Instruction::Pin(tensor) => engine.pin(tensor),
        Instruction::Ensure { from, to } => engine.ensure(program.tensors(from, to)),
        Instruction::Bring(tensor) => engine.ensure(&[tensor]),
    }?;
    watch(Seen::Steps(engine.steps()));
    Ok(())
}

/// `value * ratio`, rounded down; nothing for what is not above 0, and at most 2^63 - 1.
fn scaled(value: u64, ratio: f64) -> u64 {
    ((value as f64 * ratio) as u64).min(i64::MAX as u64)
}
