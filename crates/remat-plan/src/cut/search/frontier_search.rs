//! Searches for choices that take less memory than the minimum cut, in as little time as possible.
//!
//! First candidates are minimum cuts in which memory has a price and bans are lifted for the time of their ops
//! (`lagrangian.rs`). Further ones also keep the values that cross the borders of segments, as periodic checkpointing
//! does. Then the best of them are changed node by node. The memory of each choice is found by laying out its step.
//! No part of the search depends on a budget, so that the best choice within a larger budget is never slower.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::{Choice, Problem};
use crate::cut::graph::ban_rules::Nearest;
use crate::cut::search::frontier::Frontier;
use crate::cut::search::lagrangian::priced;
use crate::cut::search::partition::cheapest;
use crate::cut::search::snapshot::snapshots;
use std::ops::ControlFlow;

/// A callback that is told which part of the work is done, from 0 to 1; the search stops where it breaks.
pub type Progress<'a> = dyn FnMut(f64) -> ControlFlow<()> + 'a;

/// The most nodes and edges that are looked at: some seconds.
const WORK: u64 = 400_000_000;
/// The fewest and the most steps that are laid out.
const STEPS: (u64, u64) = (200, 40_000);
/// The most free nodes for which all choices are tried.
const FEW: usize = 12;
/// The number of pieces of the forward pass when two choices are mixed, the rounds of mixing, and the part of the
/// range of peaks by which two choices must differ.
const PIECES: usize = 24;
const ROUNDS: usize = 3;
const NEAR: u64 = 64;
/// Random changes each time that others find nothing new.
const CHANCES: usize = 500;
/// The numbers of segments that are tried.
const SEGMENTS: [usize; 12] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96];

/// A search under way.
pub(crate) struct Search<'a, 'b> {
    problem: &'a Problem<'a>,
    progress: &'a mut Progress<'b>,
    frontier: Frontier,
    /// Number of steps laid out or cuts made, and the most of them.
    done: u64,
    most: u64,
    random: u64,
}

/// The minimum cut, and the best choices found.
pub(crate) struct Found {
    pub(crate) cheapest: Choice,
    pub(crate) frontier: Frontier,
    /// All choices were tried.
    pub(crate) exhaustive: bool,
}

/// Searches. Takes time in proportion to the size of the graph where that is large, and some seconds at most where it
/// is not.
pub(crate) fn search(
    problem: &Problem<'_>,
    progress: &mut Progress<'_>,
) -> Result<Found, CutError> {
    search_all_below(FEW, problem, progress)
}

/// Searches; tries all choices where no more than `few` nodes are free.
pub(crate) fn search_all_below(
    few: usize,
    problem: &Problem<'_>,
    progress: &mut Progress<'_>,
) -> Result<Found, CutError> {
    let cheapest = cheapest(problem, Nearest::Backward)?;
    let size = problem.graph.len() as u64 * 4;
    let mut search = Search {
        problem,
        progress,
        frontier: Frontier::default(),
        done: 0,
        random: 1,
        most: (WORK / size.max(1)).clamp(STEPS.0, STEPS.1),
    };
    search.frontier.insert(cheapest.clone());
    let free = search.free();
    let exhaustive = free.len() <= few;
    if exhaustive {
        search.exhaustively(&free)?;
    } else {
        search.by_price()?;
        search.by_segments()?;
        search.between()?;
        search.node_by_node()?;
    }
    Ok(Found {
        cheapest,
        frontier: search.frontier,
        exhaustive,
    })
}

impl Search<'_, '_> {
    /// Lays out the step that saves these nodes.
    fn consider(&mut self, saved: Vec<bool>) -> Result<(), CutError> {
        if let Some(choice) = self.problem.choice(saved) {
            self.frontier.insert(choice);
        }
        self.tick()
    }

    fn tick(&mut self) -> Result<(), CutError> {
        self.done += 1;
        match (self.progress)((self.done as f64 / self.most as f64).min(1.0)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CutError::Interrupted),
        }
    }

    /// Nodes that can be saved or recomputed, and that the backward pass may read.
    fn free(&self) -> Vec<usize> {
        let problem = self.problem;
        let mut read = problem.phases.needed.clone();
        for id in (0..read.len())
            .rev()
            .filter(|&id| problem.phases.forward[id])
        {
            let mut users = problem.graph.users.of(id).iter().map(|&user| user as usize);
            read[id] |= users
                .any(|user| read[user] && !problem.fixed[user] && problem.phases.forward[user]);
        }
        let free = |&id: &usize| read[id] && !problem.fixed[id] && problem.graph.nodes[id].savable;
        (0..read.len()).filter(free).collect()
    }

    fn exhaustively(&mut self, free: &[usize]) -> Result<(), CutError> {
        self.most = 1 << free.len();
        for choice in 0..1usize << free.len() {
            let mut saved = vec![false; self.problem.graph.len()];
            for (bit, &id) in free.iter().enumerate() {
                saved[id] = choice >> bit & 1 == 1;
            }
            self.consider(saved)?;
        }
        Ok(())
    }

    /// A price of memory at which it matters about as much as time.
    fn middle_price(&self) -> f64 {
        let nodes = &self.problem.graph.nodes;
        let cost: u64 = nodes.iter().map(|node| node.cost).sum();
        let bytes: u64 = nodes.iter().map(|node| node.bytes).sum();
        cost.max(1) as f64 / bytes.max(1) as f64
    }

    fn by_price(&mut self) -> Result<(), CutError> {
        let middle = self.middle_price();
        let few = if self.most < 1000 { 3 } else { 1 };
        for snapshot in snapshots(self.problem, 4) {
            for exponent in (-14..=14).step_by(few) {
                let price = middle * f64::from(exponent).exp2();
                let saved = priced(self.problem, &snapshot.held, price, None)?;
                self.consider(saved)?;
            }
        }
        Ok(())
    }

    /// Keeps the values that cross the borders of so many segments of the forward pass, and prices the rest.
    fn by_segments(&mut self) -> Result<(), CutError> {
        let middle = self.middle_price();
        let held: Vec<u64> = (self.problem.graph.nodes.iter())
            .map(|node| node.bytes)
            .collect();
        let ops = self
            .problem
            .always_forward
            .iter()
            .filter(|&&runs| runs)
            .count();
        for segments in SEGMENTS.into_iter().filter(|&segments| segments < ops) {
            let keep = self.crossing(segments);
            for exponent in [-10, -5, -2, 0, 2, 5, 10] {
                let price = middle * f64::from(exponent).exp2();
                if let Ok(saved) = priced(self.problem, &held, price, Some(&keep)) {
                    let kept = saved.iter().zip(&keep);
                    self.consider(kept.map(|(&saved, &keep)| saved || keep).collect())?;
                }
                if self.done * 3 > self.most {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether each node is made in one of so many segments of the forward pass, alike in bytes, and read in another.
    fn crossing(&self, segments: usize) -> Vec<bool> {
        let problem = self.problem;
        let nodes = &problem.graph.nodes;
        let runs = |id: usize| problem.always_forward[id] && !nodes[id].input;
        let bytes = |id: usize| if runs(id) { nodes[id].bytes } else { 0 };
        let whole: u64 = (0..nodes.len()).map(bytes).sum();
        let mut before = 0u128;
        let segment: Vec<u128> = (0..nodes.len())
            .map(|id| {
                before += u128::from(bytes(id));
                before * segments as u128 / u128::from(whole + 1)
            })
            .collect();
        let crosses = |id: usize| {
            let mut users = problem.graph.users.of(id).iter().map(|&user| user as usize);
            let elsewhere = |user: usize| runs(user) && segment[user] != segment[id];
            runs(id) && nodes[id].savable && users.any(elsewhere)
        };
        (0..nodes.len()).map(crosses).collect()
    }

    /// Mixes two choices that follow one another: one up to some place of the forward pass, the other from there on.
    /// Prices alone change all layers at once where layers are alike.
    fn between(&mut self) -> Result<(), CutError> {
        let forward: Vec<usize> = (0..self.problem.graph.len())
            .filter(|&id| self.problem.phases.forward[id])
            .collect();
        for _ in 0..ROUNDS {
            let choices: Vec<Choice> = self.frontier.choices().cloned().collect();
            let peak = |choice: Option<&Choice>| choice.map_or(0, |choice| choice.peak);
            let near = (peak(choices.last()) - peak(choices.first())) / NEAR;
            let apart = |pair: &&[Choice]| pair[1].peak - pair[0].peak > near;
            for pair in choices.windows(2).filter(apart) {
                let (one, other) = (self.marked(&pair[0]), self.marked(&pair[1]));
                for piece in 1..PIECES {
                    let place = forward[piece * forward.len() / PIECES];
                    for (first, second) in [(&one, &other), (&other, &one)] {
                        self.consider([&first[..place], &second[place..]].concat())?;
                    }
                    if self.done * 2 > self.most {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Changes the best choices by one node, from saved to recomputed or back. Where that finds nothing new and there
    /// is time left, it changes two nodes, then three at random.
    fn node_by_node(&mut self) -> Result<(), CutError> {
        while self.done < self.most {
            if let Some(choice) = self.open(1) {
                self.singly(&choice)?;
            } else if let Some(choice) = self.open(2) {
                self.in_pairs(&choice)?;
            } else {
                self.at_random()?;
                if !self.frontier.is_open(1) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A choice around which so many changes have not been tried.
    fn open(&mut self, changes: usize) -> Option<Choice> {
        let turn = self.turn();
        self.frontier.explore(changes, turn)
    }

    /// The next of a sequence of numbers that looks random and is always the same.
    fn turn(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.random >> 33
    }

    fn singly(&mut self, choice: &Choice) -> Result<(), CutError> {
        for id in self.changeable(choice) {
            self.change(choice, &[id])?;
        }
        Ok(())
    }

    fn in_pairs(&mut self, choice: &Choice) -> Result<(), CutError> {
        let nodes = self.changeable(choice);
        for (k, &one) in nodes.iter().enumerate() {
            for &other in &nodes[..k] {
                self.change(choice, &[one, other])?;
            }
        }
        Ok(())
    }

    fn at_random(&mut self) -> Result<(), CutError> {
        for _ in 0..CHANCES {
            let turn = self.turn();
            let choice = self.frontier.any(turn).clone();
            let nodes = self.changeable(&choice);
            if nodes.len() < 3 {
                return Ok(());
            }
            let three = [(); 3].map(|()| nodes[self.turn() as usize % nodes.len()]);
            self.change(&choice, &three)?;
        }
        Ok(())
    }

    /// Considers a choice with some nodes changed, if there is time left.
    fn change(&mut self, choice: &Choice, nodes: &[usize]) -> Result<(), CutError> {
        if self.done >= self.most {
            return Ok(());
        }
        let mut saved = self.marked(choice);
        for &id in nodes {
            saved[id] = !saved[id];
        }
        self.consider(saved)
    }

    fn marked(&self, choice: &Choice) -> Vec<bool> {
        let mut saved = vec![false; self.problem.graph.len()];
        for &id in &choice.run.read {
            saved[id as usize] = true;
        }
        saved
    }

    /// Nodes that could be saved instead of recomputed or the other way round, the largest first.
    fn changeable(&self, choice: &Choice) -> Vec<usize> {
        let problem = self.problem;
        let free = |&id: &usize| !problem.fixed[id] && problem.graph.nodes[id].savable;
        let all = choice.run.read.iter().chain(&choice.run.recomputed);
        let mut nodes: Vec<usize> = all.map(|&id| id as usize).filter(free).collect();
        nodes.sort_by_key(|&id| (std::cmp::Reverse(problem.graph.nodes[id].bytes), id));
        nodes
    }
}
