//! One run of a program inside a budget.

use crate::drive::{self, Telling, Unsound};
use crate::recorded::{Adopted, Mutations};
use crate::selective::Drops;
use crate::{Base, Eviction, Program};
use remat_core::{
    Arena, Bytes, Config, Cost, Counters, Dealloc, DeviceId, Engine, Error, Lineage, Memory, Moves,
    Policy, ReplayOrder, ThrashLimit,
};
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The setting of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The policy or plan that makes room.
    pub policy: Eviction,
    /// The treatment of a storage that loses its last reference; [`Eviction::Selective`] is always eager.
    pub dealloc: Dealloc,
    /// The bytes of device 0.
    pub budget: Budget,
    /// The run ends as [`Thrash`](Status::Thrash) once recomputing has cost more than this many times [`Base::cost`].
    pub thrash_limit: f64,
    /// Seed of the policy `random`.
    pub seed: u64,
    /// Whether the budget's bytes are a count or an arena with addresses.
    pub memory: Memory,
    /// Where ops write that change a tensor.
    pub mutations: Mutations,
    /// How the engine is set; plans are always followed by one that is set as in training.
    pub engine: EngineSetting,
    /// The fate of plans that the recorded run adopted; [`Eviction::Selective`] follows none.
    pub adopted: Adopted,
}

/// How the engine of a run is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineSetting {
    /// As in the DTR paper: lineage is kept for ever, and replays follow the paper's order only.
    #[default]
    Paper,
    /// As in training: lineage is forgotten that nothing needs, and other orders of replay are tried.
    Training,
}

impl EngineSetting {
    /// `paper` or `training`.
    pub fn name(self) -> &'static str {
        match self {
            EngineSetting::Paper => "paper",
            EngineSetting::Training => "training",
        }
    }
}

impl Default for Setting {
    /// `dtr-eq` in the step's whole memory, bytes counted, and as much time for recomputing as the step takes.
    fn default() -> Self {
        Setting {
            policy: Eviction::default(),
            dealloc: Dealloc::Eager,
            budget: Budget::Ratio(1.0),
            thrash_limit: 1.0,
            seed: 0,
            memory: Memory::Fungible,
            mutations: Mutations::Recorded,
            engine: EngineSetting::Paper,
            adopted: Adopted::Ignored,
        }
    }
}

impl Setting {
    /// The engine's setting, with the policy and deallocation that [`Setting::policy`] comes down to.
    pub(crate) fn config(&self, base: &Base, policy: Policy, dealloc: Dealloc) -> Config {
        let limit = Cost(scaled(base.cost.0, self.thrash_limit));
        let (lineage, order) = match (self.engine, self.adopted) {
            (EngineSetting::Paper, Adopted::Ignored) => (Lineage::Keep, ReplayOrder::Dtr),
            _ => (Lineage::Collect, ReplayOrder::Fit),
        };
        Config {
            memory: self.memory,
            stopwatch: matches!(self.memory, Memory::Arena(_)).then_some(nanoseconds),
            lineage,
            order,
            ..drive::config(
                policy,
                dealloc,
                Some(self.budget.bytes(base)),
                ThrashLimit::Total(limit),
                self.seed,
            )
        }
    }
}

/// A budget as the caller states it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// This many times [`Base::memory`], rounded down.
    Ratio(f64),
    /// This many bytes.
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

/// The outcome of a run. For a run that did not end [`Ok`](Status::Ok), the figures are those at the moment it ended.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The budget in bytes.
    pub budget: Bytes,
    /// The virtual clock at the end, in nanoseconds: 1, plus the cost of all ops run, plus the time of copies where an
    /// arena's blocks are [moved](Moves). The engine's own clock does not count copies.
    pub clock: u64,
    /// Highest memory of device 0.
    pub peak: Bytes,
    /// Evictions, replays, their cost, and the work of deciding. For [`Eviction::Selective`] the evictions are the
    /// storages that its plan dropped.
    pub counters: Counters,
    /// Wall time of the simulation.
    pub wall: Duration,
    /// Nanoseconds of it that searches for victims took; counted in arenas only.
    pub search_time: u64,
}

impl Outcome {
    /// The compute overhead: the clock over the cost without a limit (DTR section 4.2).
    pub fn overhead(&self, base: &Base) -> f64 {
        self.clock as f64 / base.cost.0.max(1) as f64
    }

    /// The mean and the largest fragmentation rate of an arena (Coop section 4.2): the part of it that is free right
    /// after a block was taken that needed an eviction. 0 if no block did.
    pub fn fragmentation(&self) -> (f64, f64) {
        let budget = self.budget.0.max(1) as f64;
        let shortages = self.counters.shortages.max(1) as f64;
        let mean = self.counters.free_after as f64 / shortages / budget;
        (mean, self.counters.most_free_after as f64 / budget)
    }

    /// The mean search latency of an arena, in nanoseconds a block that needed an eviction (Coop section 4.2).
    pub fn search_latency(&self) -> f64 {
        self.search_time as f64 / self.counters.shortages.max(1) as f64
    }
}

impl Program {
    /// Replays the step inside a budget. [`Eviction::Selective`] drops nothing of a step without attention;
    /// [`check_attention`](Program::check_attention) finds out.
    ///
    /// # Errors
    /// [`Unsound`] if the events contradict one another. A budget that cannot be met is an [`Outcome`].
    pub fn run(&self, base: &Base, setting: &Setting) -> Result<Outcome, Unsound> {
        let started = Instant::now();
        let (policy, dealloc) = match setting.policy {
            Eviction::Online(policy) => (policy, setting.dealloc),
            Eviction::Selective => (Policy::LRU, Dealloc::Eager),
        };
        let config = setting.config(base, policy, dealloc);
        let (engine, end) = match setting.policy {
            Eviction::Online(_) => {
                let telling = Telling {
                    mutations: setting.mutations,
                    adopted: setting.adopted,
                };
                online(self, config, telling)?
            }
            Eviction::Selective => planned(self, config, setting.mutations)?,
        };
        Ok(Outcome {
            status: end.status,
            budget: setting.budget.bytes(base),
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

/// Nanoseconds that copies of an arena's moved blocks take.
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

/// The end of a run.
pub(crate) struct Side {
    status: Status,
    pub(crate) clock: u64,
    pub(crate) peak: Bytes,
    pub(crate) counters: Counters,
}

impl Side {
    pub(crate) fn of(engine: &Engine, status: Status) -> Side {
        Side {
            status,
            clock: engine.clock(),
            peak: engine.peak(DeviceId(0)),
            counters: engine.counters(),
        }
    }
}

fn online(program: &Program, config: Config, telling: Telling) -> Result<(Engine, Side), Unsound> {
    let (engine, stopped) = drive::watched(program.recorded(), config, telling, |_, _| {})?;
    let status = match stopped {
        None => Status::Ok,
        Some((_, Error::Budget { .. })) => Status::Oom,
        Some(_) => Status::Thrash,
    };
    let refused = engine.refused().filter(|_| status != Status::Ok);
    let end = match refused {
        None => Side::of(&engine, status),
        Some(at) => Side {
            status,
            clock: at.clock,
            peak: at.peak,
            counters: at.counters,
        },
    };
    Ok((engine, end))
}

/// Runs the step by its plan. A budget in which the engine has to evict anything else counts as too small.
fn planned(
    program: &Program,
    config: Config,
    mutations: Mutations,
) -> Result<(Engine, Side), Unsound> {
    let drops = program.drops().ok();
    let instructions = drops.map_or(&program.recorded().instructions, |drops| {
        &drops.instructions
    });
    let dropped = |event| drops.map_or(0, |drops: &Drops| drops.among(event));
    let mut engine = Engine::new(config);
    let telling = Telling {
        mutations,
        ..Telling::default()
    };
    for (event, &instruction) in instructions.iter().enumerate() {
        let before = Side::of(&engine, Status::Oom);
        let told = drive::tell(
            &mut engine,
            program.recorded(),
            instruction,
            telling,
            &mut |_| {},
        );
        let status = match told {
            Ok(()) if engine.counters().evictions == 0 => continue,
            Ok(()) | Err(Error::Budget { .. }) => Status::Oom,
            Err(Error::Thrash { .. }) => Status::Thrash,
            Err(error) => return Err(Unsound { event, error }),
        };
        let mut end = Side { status, ..before };
        end.counters.evictions = dropped(event);
        return Ok((engine, end));
    }
    let mut end = Side::of(&engine, Status::Ok);
    end.counters.evictions = dropped(instructions.len());
    Ok((engine, end))
}

/// Nanoseconds since the first call.
fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// `value * ratio`, rounded down; 0 for a ratio that is not above 0, and at most 2^63 - 1.
pub(crate) fn scaled(value: u64, ratio: f64) -> u64 {
    ((value as f64 * ratio) as u64).min(i64::MAX as u64)
}
