//! The cut at the fullest moment: which storages it holds, and which are made again after it.
//!
//! The price of a byte rises until what is held fits. What is made again is made right before its next use.

use super::network::{Network, Prices, Window};
use super::rng::Rng;
use crate::step::model::step::NONE;
use crate::step::timeline::moment::Moment;
use crate::step::timeline::schedule::Schedule;
use std::collections::BinaryHeap;

/// Prices that a cut tries.
const PRICES: u32 = 12;
/// Two prices whose ratio is below this count as one.
const NEAR: f64 = 1.05;

/// The weights of the runs of a cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    /// Of a run that is made earlier, instead of one more: its part of the cost.
    pub(crate) shift: f64,
    /// Costs are multiplied by up to this much more or less.
    pub(crate) noise: f64,
}

/// The moment in question.
#[derive(Clone, Copy, Debug)]
struct Peak {
    /// The run during which the most bytes are in memory.
    run: Moment,
    /// Bytes over the budget.
    excess: u64,
}

/// Makes cuts.
#[derive(Debug)]
pub(crate) struct Cutter {
    network: Network,
    /// The price of the latest cut, in nanoseconds a byte; 0 before the first one.
    price: f64,
}

impl Cutter {
    pub(crate) fn new(schedule: &Schedule<'_>) -> Cutter {
        Cutter {
            network: Network::new(schedule.step),
            price: 0.0,
        }
    }

    /// Makes runs again that lower memory at the fullest moment to the budget, if that can be. Returns whether the
    /// schedule changed.
    pub(crate) fn cut(
        &mut self,
        schedule: &mut Schedule<'_>,
        budget: u64,
        weights: Weights,
        rng: &mut Rng,
    ) -> bool {
        let Some(Peak { run, excess }) = fullest(schedule, budget) else {
            return false;
        };
        let window = Window { run, until: NONE };
        self.network.gather(schedule, window, &[], |op| {
            cost(schedule, op, run, weights, rng)
        });
        if self.network.is_empty() {
            return false;
        }
        let again = self.choose(excess);
        insert(schedule, run, &again, weights)
    }

    /// The ops to run again, for the lowest price at which what is held fits.
    fn choose(&mut self, excess: u64) -> Vec<u32> {
        let network = &mut self.network;
        let droppable = network.droppable();
        let room = droppable.saturating_sub(excess);
        // The price of the cut before is near this one's.
        let fair = network.all_costs() / droppable.max(1) as f64;
        let mut price = fair;
        if self.price > 0.0 {
            price = self.price.clamp(fair / 16.0, fair * 16.0);
        }
        let (mut low, mut high) = (0.0f64, f64::INFINITY);
        let mut found = None;
        for _ in 0..PRICES {
            let choice = network.choose(Prices {
                byte: price,
                ..Prices::default()
            });
            let held = network.held(&choice);
            if held <= room {
                high = price;
                found = Some(choice);
                if held as f64 > 0.98 * room as f64 {
                    break;
                }
            } else {
                low = price;
            }
            if found.is_some() && high < NEAR * low {
                break;
            }
            price = between(low, high);
        }
        let choice = match found {
            Some(choice) => {
                self.price = high;
                choice
            }
            // All that can be made again.
            None => network.choose(Prices {
                byte: 1e18,
                ..Prices::default()
            }),
        };
        network.again(&choice)
    }
}

/// A price between two, or beyond the one that is known.
pub(super) fn between(low: f64, high: f64) -> f64 {
    if low == 0.0 {
        high / 4.0
    } else if high.is_infinite() {
        low * 4.0
    } else {
        (low * high).sqrt()
    }
}

/// The fullest moment, if it exceeds the budget.
fn fullest(schedule: &mut Schedule<'_>, budget: u64) -> Option<Peak> {
    let peak = schedule.peak();
    let excess = peak.checked_sub(budget).filter(|&excess| excess > 0)?;
    let slot = schedule.fullest_slot();
    let mut fullest = (0, Moment::first(slot));
    schedule.walk(slot, |run, bytes| {
        if bytes > fullest.0 {
            fullest = (bytes, run);
        }
    });
    Some(Peak {
        run: fullest.1,
        excess,
    })
}

/// The price of running an op again after the moment.
fn cost(schedule: &Schedule<'_>, op: u32, run: Moment, weights: Weights, rng: &mut Rng) -> f64 {
    if !schedule.may_run(op, run.slot() + 1) {
        return f64::INFINITY;
    }
    let runs = schedule.runs.of(op);
    let later = runs.last().is_some_and(|&slot| slot > run.slot());
    let cost = schedule.step.ops[op as usize].cost as f64 + 1.0;
    let noise = 1.0 + weights.noise * (2.0 * rng.unit() - 1.0);
    cost * noise * if later { weights.shift } else { 1.0 }
}

/// Inserts each run right before the next use of what it makes, the last op first. What was written into since it was
/// last made is made again beside it.
fn insert(schedule: &mut Schedule<'_>, peak: Moment, again: &[u32], weights: Weights) -> bool {
    let mark = schedule.mark();
    let mut waiting: BinaryHeap<(u32, Option<u32>)> = again.iter().map(|&op| (op, None)).collect();
    while let Some((op, given)) = waiting.pop() {
        let step = schedule.step;
        let slot = match given {
            Some(slot) => slot,
            None => {
                let made = step.makes.of(op as usize).iter();
                let next = made.filter_map(|&storage| schedule.next_read(storage, peak));
                let Some(next) = next.min() else { continue };
                next.slot().min(step.ops[op as usize].until)
            }
        };
        if !schedule.may_run(op, slot) || schedule.has(op, slot) || slot <= peak.slot() {
            continue;
        }
        if weights.shift < 1.0 {
            let runs = schedule.runs.of(op);
            let place = runs.partition_point(|&other| other <= slot);
            if let Some(&slot) = runs.get(place) {
                schedule.remove(op, slot);
            }
        }
        schedule.add(op, slot);
        let run = Moment::new(slot, op);
        for &read in step.reads.of(op as usize) {
            if schedule.is_overwritten(read, run) {
                let producer = step.storages[read as usize].producer;
                waiting.push((producer, Some(slot)));
            }
        }
    }
    mend(schedule);
    schedule.mark() > mark
}

/// Makes again what an op wrote into since it was last made, right before it is read. Some cannot be: then the schedule
/// stays broken.
pub(super) fn mend(schedule: &mut Schedule<'_>) {
    let mut broken = schedule.broken_storages();
    while let Some(storage) = broken.pop() {
        let record = schedule.step.storages[storage as usize];
        let kills = schedule.step.kills.of(storage as usize);
        let late = schedule.lives(storage).lives.iter().find_map(|life| {
            let inside = |killed: &Moment| life.start < *killed && *killed < life.end;
            let mut kills = kills.iter().map(|&killer| Moment::first(killer));
            kills.find(inside)
        });
        let read = late.and_then(|killed| schedule.next_use(storage, killed));
        let Some(slot) = read.map(Moment::slot) else {
            continue;
        };
        if !schedule.may_be_made(storage, slot) || schedule.has(record.producer, slot) {
            continue;
        }
        schedule.add(record.producer, slot);
        if broken.is_empty() {
            broken = schedule.broken_storages();
        }
    }
}
