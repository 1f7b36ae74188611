//! A lower bound on the time of all schedules within a budget whose first runs are in program order, and which, like
//! the planner's own, make again neither pinned results nor storages with a view that cannot be made again with them.
//!
//! While an op runs for the first time, memory holds what it reads and makes, and whatever else fits. Of what first
//! runs read up to a later moment, each storage is in memory then or is made again in between, from storages that are
//! in memory or made again in turn. With a price for each byte that is held, the cheapest choice is a minimum cut, and
//! its cost less the price of the room is a bound at any price (Lagrangian relaxation). Runs between two moments and
//! runs after the second are different runs, so the bounds of a chain of moments add up.
//!
//! A storage that is held at the second moment must have been there before: held at the first, or made again in
//! between. A price for each such storage, paid by who holds it and to who has it there, ties the moments together:
//! the sum stays a bound at any prices. Better ones are found step by step (subgradients; Held and Karp 1971).

use super::cut::between;
use super::network::{Choice, Network, Prices, Window};
use crate::step::model::step::NONE;
use crate::step::timeline::moment::Moment;
use crate::step::timeline::schedule::Schedule;

/// Moments that are looked at before a plan is known: the fullest of so many equal parts of the step.
const PARTS: usize = 16;
/// The same once a plan is known, of steps of so many ops or fewer.
const FINE_PARTS: usize = 64;
const FINE_OPS: usize = 4000;
/// Prices that are tried at each moment.
const PRICES: u32 = 16;
/// The part of a byte's price that it moves by where a storage's price moves by its scale.
const BYTE_SCALE: f64 = 0.1;
/// Steps towards better prices.
const STEPS: u32 = 80;

/// Bounds of one step.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    plain: Schedule<'a>,
    budget: u64,
    network: Network,
    /// The slots of the best chain of moments, and the price of a byte at each.
    chain: Vec<(u32, f64)>,
    /// Nanoseconds of runs again.
    best: f64,
}

impl<'a> Bounds<'a> {
    /// The bound of the best chain of moments; `None` if no schedule fits.
    pub(super) fn new(plain: &Schedule<'a>, budget: u64) -> Option<Bounds<'a>> {
        Bounds::of_parts(plain, budget, PARTS, &mut || true)
    }

    /// The same of the fullest moments of so many parts, as long as it goes on.
    fn of_parts(
        plain: &Schedule<'a>,
        budget: u64,
        parts: usize,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Option<Bounds<'a>> {
        let mut bounds = Bounds {
            plain: plain.clone(),
            budget,
            network: Network::new(plain.step),
            chain: Vec::new(),
            best: 0.0,
        };
        let crests = bounds.crests(parts);
        // From each crest on, the best chain: its bound, its next crest, and the price of a byte.
        let mut best = vec![(0.0f64, crests.len(), 0.0f64); crests.len() + 1];
        for from in (0..crests.len()).rev() {
            if !goes_on() {
                return None;
            }
            for to in from + 1..=crests.len() {
                let run = Moment::first(crests[from]);
                let until = crests.get(to).copied().unwrap_or(NONE);
                let (own, price) = bounds.within(Window { run, until })?;
                if own + best[to].0 > best[from].0 {
                    best[from] = (own + best[to].0, to, price);
                }
            }
        }
        bounds.best = best[0].0;
        let mut at = 0;
        while at < crests.len() {
            bounds.chain.push((crests[at], best[at].2));
            at = best[at].1;
        }
        Some(bounds)
    }

    /// The bound so far, in nanoseconds of runs again.
    pub(super) fn ns(&self) -> u64 {
        self.best as u64
    }

    /// The fullest slot of each part of the step, if it exceeds the budget.
    fn crests(&mut self, parts: usize) -> Vec<u32> {
        let (plain, budget) = (&mut self.plain, self.budget);
        let slots = 0..plain.runs.slots();
        let over: Vec<u32> = slots.filter(|&slot| plain.peak_of(slot) > budget).collect();
        let parts = over.chunks(over.len().div_ceil(parts).max(1));
        let mut fullest = |part: &[u32]| {
            let slots = part.iter().copied();
            slots.max_by_key(|&slot| (plain.peak_of(slot), slot))
        };
        parts.filter_map(&mut fullest).collect()
    }

    /// The bound by the first run of an op, and what is read up to a slot; with the best price of a byte.
    fn within(&mut self, window: Window) -> Option<(f64, f64)> {
        let room = gather(&mut self.plain, &mut self.network, window, &[], self.budget)?;
        let network = &mut self.network;
        if network.is_empty() {
            return Some((0.0, 0.0));
        }
        let (mut low, mut high) = (0.0f64, f64::INFINITY);
        let mut price = network.all_costs() / network.droppable().max(1) as f64;
        let mut best = (0.0f64, 0.0f64);
        for _ in 0..PRICES {
            let choice = network.choose(Prices {
                byte: price,
                ..Prices::default()
            });
            let bound = choice.least - price * room as f64;
            if bound > best.0 {
                best = (bound, price);
            }
            if network.held(&choice) > room {
                low = price;
            } else {
                high = price;
            }
            price = between(low, high);
        }
        Some(best)
    }

    /// Looks at more moments. Their pairs are as many as their square, so long steps get fewer.
    fn refine(&mut self, goes_on: &mut dyn FnMut() -> bool) {
        let ops = self.plain.step.ops.len().max(FINE_OPS);
        let parts = FINE_PARTS as f64 * (FINE_OPS as f64 / ops as f64).sqrt();
        if parts as usize <= PARTS {
            return;
        }
        let finer = Bounds::of_parts(&self.plain, self.budget, parts as usize, goes_on);
        if let Some(finer) = finer.filter(|finer| finer.best > self.best) {
            *self = finer;
        }
    }

    /// Looks at more moments, and ties those of the chain together, as long as it goes on. `most` is the cost of a
    /// known schedule.
    pub(super) fn tighten(&mut self, most: f64, mut goes_on: impl FnMut() -> bool) {
        if self.best >= most * 0.9999 {
            return;
        }
        self.refine(&mut goes_on);
        let Some(mut tied) = self.tied() else {
            return;
        };
        let mut reach = 1.0;
        let (mut since, mut own) = (0, f64::NEG_INFINITY);
        for _ in 0..STEPS {
            if self.best >= most * 0.9999 || !goes_on() {
                return;
            }
            let (bound, slopes) = tied.value();
            self.best = self.best.max(bound);
            if bound > own {
                (own, since) = (bound, 0);
            } else {
                since += 1;
                if since > 4 {
                    (reach, since) = (reach * 0.6, 0);
                }
            }
            tied.step(&slopes, reach * (most - bound).max(0.0));
        }
    }

    /// The moments of the chain, each with what the next one may hold. `None` for a chain of one.
    fn tied(&mut self) -> Option<Tied> {
        if self.chain.len() < 2 {
            return None;
        }
        let mut moments: Vec<Tie> = Vec::new();
        let mut until = NONE;
        let mut asked: Vec<u32> = Vec::new();
        for &(slot, price) in self.chain.iter().rev() {
            let run = Moment::first(slot);
            // What is made only later cannot be asked for.
            let step = self.plain.step;
            asked.retain(|&storage| step.storages[storage as usize].producer < slot);
            let mut network = Network::new(step);
            let window = Window { run, until };
            let room = gather(&mut self.plain, &mut network, window, &asked, self.budget)?;
            asked = network.storages().to_vec();
            until = slot;
            moments.push(Tie {
                byte: price,
                first_byte: price,
                room: room as f64,
                holding: vec![0.0; network.storages().len()],
                before: vec![NONE; network.storages().len()],
                network,
            });
        }
        moments.reverse();
        for at in 1..moments.len() {
            let (before, after) = moments.split_at_mut(at);
            let (before, after) = (&before[at - 1].network, &mut after[0]);
            for (place, &storage) in after.network.storages().iter().enumerate() {
                after.before[place] = before.asked_at(storage).unwrap_or(NONE);
            }
        }
        Some(Tied { moments })
    }
}

/// Gathers the network of a window of the step in which every op runs once. Returns the room for what is held.
fn gather(
    plain: &mut Schedule<'_>,
    network: &mut Network,
    window: Window,
    asked: &[u32],
    budget: u64,
) -> Option<u64> {
    let slot = window.run.slot();
    let peak = plain.peak_of(slot);
    let step = plain.step;
    network.gather(plain, window, asked, |op| {
        if plain.may_run(op, slot + 1) {
            step.ops[op as usize].cost as f64
        } else {
            f64::INFINITY
        }
    });
    network.hold_all();
    budget.checked_sub(peak - network.droppable())
}

/// A moment of a chain.
struct Tie {
    network: Network,
    /// The price of a byte that is held, and the bytes for which there is room.
    byte: f64,
    first_byte: f64,
    room: f64,
    /// The price of each storage that is held, paid to the moment before.
    holding: Vec<f64>,
    /// Its place there, or `NONE` where it costs nothing.
    before: Vec<u32>,
}

/// Moments that are tied by prices.
struct Tied {
    moments: Vec<Tie>,
}

/// The direction in which the bound rises: bytes above the room at each moment, and for each of its storages whether it
/// is held there and was not there before (1), or the other way round (-1).
struct Slopes {
    bytes: Vec<f64>,
    storages: Vec<Vec<f64>>,
}

impl Tied {
    /// The bound at the present prices.
    fn value(&mut self) -> (f64, Slopes) {
        let mut bound = 0.0;
        let mut slopes = Slopes {
            bytes: Vec::new(),
            storages: Vec::new(),
        };
        let mut choices: Vec<Choice> = Vec::new();
        for at in 0..self.moments.len() {
            let lacking = self.lacking(at);
            let moment = &mut self.moments[at];
            let choice = moment.network.choose(Prices {
                byte: moment.byte,
                holding: &moment.holding,
                lacking: &lacking,
            });
            bound += choice.least - moment.byte * moment.room - lacking.iter().sum::<f64>();
            let held = moment.network.held(&choice) as f64;
            slopes.bytes.push(held - moment.room);
            choices.push(choice);
        }
        for (at, moment) in self.moments.iter().enumerate() {
            let held = |place: usize| moment.network.is_held(&choices[at], place as u32);
            let there = |before: u32| {
                let network = &self.moments[at - 1].network;
                network.is_there(&choices[at - 1], before)
            };
            let slope = |(place, &before): (usize, &u32)| match before {
                NONE => 0.0,
                before => f64::from(held(place)) - f64::from(there(before)),
            };
            let each = moment.before.iter().enumerate().map(slope);
            slopes.storages.push(each.collect());
        }
        (bound, slopes)
    }

    /// The prices of storages that the moment after one asks for, by their places in it.
    fn lacking(&self, at: usize) -> Vec<f64> {
        let mut lacking = vec![0.0; self.moments[at].network.storages().len()];
        if let Some(after) = self.moments.get(at + 1) {
            for (&price, &before) in after.holding.iter().zip(&after.before) {
                if before != NONE {
                    lacking[before as usize] = price;
                }
            }
        }
        lacking
    }

    /// Moves the prices along the slopes, so far that the bound would rise by so much if it were a plane. Each price
    /// moves in proportion to its scale: a byte's own price, and what holding a storage costs at the moment before.
    fn step(&mut self, slopes: &Slopes, rise: f64) {
        let mut square = 0.0;
        for at in 0..self.moments.len() {
            square += (slopes.bytes[at] * self.byte_scale(at)).powi(2);
            let storages = slopes.storages[at].iter().enumerate();
            let scaled = storages.filter(|&(_, &slope)| slope != 0.0);
            square += scaled
                .map(|(place, slope)| (slope * self.scale(at, place)).powi(2))
                .sum::<f64>();
        }
        if square <= 0.0 {
            return;
        }
        let far = rise / square;
        for at in 0..self.moments.len() {
            for (place, &slope) in slopes.storages[at].iter().enumerate() {
                if slope != 0.0 {
                    let by = far * slope * self.scale(at, place).powi(2);
                    let holding = &mut self.moments[at].holding[place];
                    *holding = (*holding + by).max(0.0);
                }
            }
            let by = far * slopes.bytes[at] * self.byte_scale(at).powi(2);
            let byte = &mut self.moments[at].byte;
            *byte = (*byte + by).max(0.0);
        }
    }

    fn byte_scale(&self, at: usize) -> f64 {
        BYTE_SCALE * self.moments[at].first_byte
    }

    fn scale(&self, at: usize, place: usize) -> f64 {
        let before = &self.moments[at - 1];
        before.first_byte * before.network.bytes_of(self.moments[at].before[place]) as f64
    }
}
