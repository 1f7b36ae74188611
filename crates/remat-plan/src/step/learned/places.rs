//! Addresses for the blocks of a learned step, in an arena that is in use.
//!
//! Steps follow one another: what a step leaves behind is there when the next one begins, at the same address. So the
//! block of a gradient that is let go of early in a step and made again late in it is one block with two lives.

use super::events::{There, Translated};
use super::releases::releases;
use crate::step::placement::{Block, Blocks, Effort, Ties, blocks, pack};
use crate::step::plan::step_plan::{Action, StepPlan};
use remat_core::{Origin, Places};
use std::collections::{HashMap, HashSet};

/// Overlaps that the search for addresses looks at, at most: a fifth of a second. So many times fewer are looked at
/// where all keeps its address that stays from step to step: mostly there is no room around it.
const MOST_WORK: u64 = 8_000_000;
const LESS_WORK: u64 = 5;

/// Where a block is told to lie that no address was found for: nowhere.
const NO_PLACE: u64 = u64::MAX;

/// An arena that a learned step runs in.
#[derive(Clone, Debug, Default)]
pub struct ArenaInUse {
    /// Its bytes.
    pub bytes: u64,
    /// Sizes and addresses are multiples of this, a power of two.
    pub alignment: u64,
    /// Storages of fewer bytes lie elsewhere.
    pub smallest: u64,
    /// Blocks that are nobody's storage, and stay: address and bytes.
    pub foreign: Vec<(u64, u64)>,
    /// Whether blocks can be moved.
    pub moves: bool,
}

impl ArenaInUse {
    /// The bytes that blocks of others leave.
    pub fn free_bytes(&self) -> u64 {
        let taken = self.foreign.iter().map(|&(_, bytes)| bytes);
        self.bytes.saturating_sub(taken.sum())
    }
}

/// A storage that is there when a step begins, and has a block.
struct Held {
    there: There,
    block: usize,
    stay: Stay,
}

/// How long a block that is there stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    /// From step to step.
    Always,
    /// Until the step lets go of it; a step makes it anew.
    Renewed,
    /// Until this step lets go of it. The next one may have another in another place.
    Once,
}

/// The state of memory when a step ends.
struct Ends {
    /// Of each op's output the storage.
    made: HashMap<(u32, u32), usize>,
    /// The blocks in which something lies.
    left: HashSet<usize>,
}

/// The blocks of a plan, and how those of one step and the next belong together.
struct Cycle {
    blocks: Blocks,
    held: Vec<Held>,
    fellows: Vec<(usize, usize)>,
    twins: Vec<(usize, usize)>,
}

/// Places the blocks of a plan in an arena. `actions` are the plan's steps in the order of a guide: of each op's first
/// run, and of each of the guide's actions.
pub(super) fn places(
    translated: &Translated,
    plan: &StepPlan,
    order: &Order,
    arena: &ArenaInUse,
) -> Places {
    let cycle = Cycle::of(translated, plan, order, arena.smallest);
    let mut best = cycle.pack(arena, plan.seed, Fixed::All);
    if best.bytes > arena.bytes && arena.moves {
        let moved = cycle.pack(arena, plan.seed, Fixed::Immovable);
        if moved.bytes < best.bytes {
            best = moved;
        }
    }
    let within = |block: usize| {
        let end = best.offsets[block].saturating_add(cycle.blocks.blocks[block].bytes);
        if end <= arena.bytes {
            best.offsets[block]
        } else {
            NO_PLACE
        }
    };
    let of = |&step: &usize| {
        let range = cycle.blocks.starts[step]..cycle.blocks.starts[step + 1];
        range.map(within).collect::<Vec<u64>>()
    };
    let runs: Vec<Vec<u64>> = order.runs.iter().map(of).collect();
    let actions: Vec<Vec<u64>> = order.actions.iter().map(of).collect();
    let wanted = cycle.held.iter().filter(|held| held.stay != Stay::Once);
    let there = wanted.map(|held| (held.there.origin, within(held.block)));
    let twins = cycle.twins.iter().flat_map(|&(a, b)| {
        let (a, b) = (within(a), within(b));
        [(a, b), (b, a)]
    });
    Places::new(
        &runs,
        &actions,
        there.filter(|&(_, to)| to != NO_PLACE).collect(),
        twins.collect(),
        best.bytes,
    )
}

/// The steps of a plan in the order of a guide, by their indices.
#[derive(Default)]
pub(super) struct Order {
    /// Of each op its first run.
    pub(super) runs: Vec<usize>,
    /// The guide's actions.
    pub(super) actions: Vec<usize>,
}

/// Which blocks that are there stay at their addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fixed {
    /// All that are there from step to step.
    All,
    /// Those that cannot be moved.
    Immovable,
}

impl Cycle {
    fn of(translated: &Translated, plan: &StepPlan, order: &Order, smallest: u64) -> Cycle {
        let blocks = blocks(&translated.events, &plan.steps, smallest.max(1));
        let mut cycle = Cycle {
            held: Vec::new(),
            fellows: Vec::new(),
            twins: Vec::new(),
            blocks,
        };
        let made = (0..).zip(&translated.storages);
        let ends = Ends {
            made: made.filter_map(|(s, &made)| Some((made?, s))).collect(),
            left: cycle.blocks.at_end.iter().flatten().copied().collect(),
        };
        let all = plan.steps.len() as u32;
        let released = releases(&translated.events);
        let mut there = translated.there.iter().peekable();
        for (step, action) in plan.steps.iter().enumerate() {
            let Some(&next) = there.peek() else { break };
            if *action == Action::Run(next.number) {
                there.next();
                if cycle.blocks.starts[step] < cycle.blocks.starts[step + 1] {
                    let block = cycle.blocks.starts[step];
                    // A plan forgets what nobody reads again; it is there until the program lets go of it.
                    let gone = released.get(&next.number).copied().unwrap_or(u32::MAX);
                    let gone = order.runs.get(gone as usize).map_or(all, |&run| run as u32);
                    let end = &mut cycle.blocks.blocks[block].end;
                    *end = gone.max(*end);
                    cycle.hold(&ends, *next, block, all);
                }
            }
        }
        cycle
    }

    /// Takes in what is there.
    fn hold(&mut self, ends: &Ends, there: There, block: usize, end: u32) {
        let stays = ends.left.contains(&block);
        let stay = match there.origin {
            Origin::Storage(_) if stays => Stay::Always,
            Origin::Storage(_) => Stay::Once,
            Origin::Made { op, output } => {
                let made = ends.made.get(&(op, output));
                match made.and_then(|&storage: &usize| self.blocks.at_end[storage]) {
                    Some(left) if left == block => Stay::Always,
                    Some(left) => {
                        self.join(block, left, end);
                        Stay::Renewed
                    }
                    None => Stay::Renewed,
                }
            }
        };
        self.held.push(Held { there, block, stay });
    }

    /// The second block is the first one when the next step begins.
    fn join(&mut self, first: usize, left: usize, end: u32) {
        let joined = |&(a, b): &(usize, usize)| [a, b].contains(&first) || [a, b].contains(&left);
        if self.fellows.iter().chain(&self.twins).any(joined) {
            return;
        }
        let all = &mut self.blocks.blocks;
        if all[left].bytes != all[first].bytes {
            return;
        }
        if all[first].end <= all[left].start {
            self.fellows.push((first, left));
            return;
        }
        // The old one is still there when the new one is made: they take turns at two addresses.
        for block in [first, left] {
            (all[block].start, all[block].end) = (0, end);
        }
        self.twins.push((first, left));
    }

    fn pack(&self, arena: &ArenaInUse, seed: u64, fixed: Fixed) -> Packed {
        let mut blocks = self.blocks.blocks.clone();
        let end = blocks.iter().map(|block| block.end).max().unwrap_or(0);
        let ours = blocks.len();
        blocks.extend(arena.foreign.iter().map(|&(_, bytes)| Block {
            bytes,
            start: 0,
            end: end.max(1),
        }));
        let mut ties = Ties::none(&blocks);
        for (block, &(address, _)) in (ours..).zip(&arena.foreign) {
            ties.fixed[block] = Some(address);
        }
        for held in &self.held {
            let stays = match held.stay {
                Stay::Always => fixed == Fixed::All || !arena.moves || held.there.fixed,
                Stay::Renewed => false,
                Stay::Once => true,
            };
            if stays {
                ties.fixed[held.block] = held.there.address;
            }
        }
        for &(first, left) in &self.fellows {
            (ties.fellows[first], ties.fellows[left]) = (left as u32, first as u32);
        }
        let most_work = match fixed {
            Fixed::All if arena.moves => MOST_WORK / LESS_WORK,
            _ => MOST_WORK,
        };
        let effort = Effort {
            most_work,
            enough: arena.bytes,
        };
        let packed = pack(&blocks, &ties, arena.alignment, seed, effort);
        Packed {
            bytes: packed.bytes,
            offsets: packed.offsets,
        }
    }
}

struct Packed {
    bytes: u64,
    offsets: Vec<u64>,
}
