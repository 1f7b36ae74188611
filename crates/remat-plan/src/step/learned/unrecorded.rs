//! The ops of a planned step that need no record while the plan is followed.

use super::reads::{Op, Reads, Result};
use remat_core::{Bytes, GuideAction};
use std::cmp::Reverse;

/// Results of ops without records take at most this part of the budget at a time, but for those that are constants
/// anyway.
pub const UNRECORDED_PART: u64 = 4;
/// The same where records may read such results, which are there for longer.
const READ_PART: u64 = 6;

/// The ops that may read the result of one without a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// Ops without records alone.
    Alike,
    /// Also those whose record is forgotten by the time the result goes.
    Forgotten,
}

/// The ops of a step that need no record.
#[derive(Default)]
pub(super) struct Unrecorded {
    /// Their places, rising.
    pub(super) ops: Vec<u32>,
    /// The most that their results take at a time, but for those that are constants anyway; `None` without ops.
    pub(super) most: Option<Bytes>,
}

/// The ops of a step as they are to be chosen from.
struct Choice<'a> {
    reads: &'a Reads,
    readers: Readers,
    spans: &'a [Span],
    /// The ops that the plan does not act on, in the order in which they are given records: those first that make much
    /// and keep it for long, and need few other records.
    candidates: Vec<u32>,
}

/// How long results of an op are there, in ops of the step that are announced by then. The next step's are counted on.
#[derive(Clone, Copy)]
struct Span {
    /// Until the engine has heard that the first result went that is no constant anyway, or until the op before one
    /// that writes over it; [`EVER`] if there is none, and 0 if there is a view, whose end is not known.
    first: usize,
    /// Until the last of them goes; 0 if there is none.
    last: usize,
}

/// Records that one which needs others brings along, about: of the powers of 2, this one left fewest in small models.
const RECORDS: u64 = 16;
/// Of what never goes.
const EVER: usize = usize::MAX;

/// The ops of a step that need no record: the plan neither runs them again nor drops what they make, what reads their
/// results and has a record is forgotten before those go, and they take little at a time.
///
/// Of two such choices it is the one of more ops: readers without records and results of a quarter of the budget, or
/// readers that are forgotten in time and results of a sixth.
pub(super) fn unrecorded(reads: &Reads, actions: &[Vec<GuideAction>], budget: Bytes) -> Unrecorded {
    let spans = spans(reads);
    let choice = |readers| Choice::of(reads, &spans, actions, readers);
    let alike = choice(Readers::Alike).within(budget.0 / UNRECORDED_PART);
    let forgotten = choice(Readers::Forgotten).within(budget.0 / READ_PART);
    if forgotten.ops.len() > alike.ops.len() {
        forgotten
    } else {
        alike
    }
}

fn evictable(results: &[Option<Result>]) -> impl Iterator<Item = &Result> {
    results.iter().flatten().filter(|result| result.evictable)
}

impl<'a> Choice<'a> {
    fn of(
        reads: &'a Reads,
        spans: &'a [Span],
        actions: &[Vec<GuideAction>],
        readers: Readers,
    ) -> Choice<'a> {
        let mut candidates: Vec<bool> = reads.ops.iter().map(|op| op.here).collect();
        for action in actions.iter().flatten() {
            let (GuideAction::Run(op) | GuideAction::RunInPlace(op) | GuideAction::Drop { op, .. }) =
                *action;
            if let Some(candidate) = candidates.get_mut(op as usize) {
                *candidate = false;
            }
        }
        let mut needs_others = vec![false; reads.ops.len()];
        for (op, span) in reads.ops.iter().zip(spans) {
            let same_step = op.readers.iter().map(|&reader| (reader, 0));
            let next_readers = op
                .next_readers
                .iter()
                .map(|&reader| (reader, reads.ops.len()));
            for (reader, later) in same_step.chain(next_readers) {
                let last = spans[reader as usize].last.saturating_add(later);
                needs_others[reader as usize] |= span.first != EVER && last > span.first;
            }
        }
        let weight = |place: u32| {
            let op = &reads.ops[place as usize];
            let weights = evictable(&op.results).map(|result| {
                let events = result.until.saturating_sub(op.event) as u64;
                result.bytes.saturating_mul(events)
            });
            let part = if readers == Readers::Forgotten && needs_others[place as usize] {
                RECORDS
            } else {
                1
            };
            weights.max().unwrap_or(0) / part
        };
        let candidates = (0..).zip(candidates);
        let mut candidates: Vec<u32> = candidates
            .filter_map(|(place, candidate)| candidate.then_some(place))
            .collect();
        candidates.sort_by_cached_key(|&place| Reverse(weight(place)));
        Choice {
            reads,
            readers,
            spans,
            candidates,
        }
    }

    /// Most of the ops whose results take so many bytes.
    fn within(&self, bytes: u64) -> Unrecorded {
        let counts: Vec<usize> = (0..self.candidates.len()).collect();
        // Fewer ops never take more.
        let fit = counts.partition_point(|&count| self.most(&self.but_for(count)) > bytes);
        let chosen = self.but_for(fit);
        let most = self.most(&chosen);
        let places = (0..).zip(chosen);
        let ops: Vec<u32> = places
            .filter_map(|(place, chosen)| chosen.then_some(place))
            .collect();
        Unrecorded {
            most: (!ops.is_empty()).then_some(Bytes(most)),
            ops,
        }
    }

    /// The ops that may go without a record if so many candidates have one.
    ///
    /// A record keeps what it reads alive, if that is a constant, and it is remembered as long as one of its results is
    /// there, or a record that read it. So a result without a record stays longer than the plan has it, unless all
    /// records that read it are forgotten by then. The engine hears of what went as the next op begins; of records that
    /// are forgotten then, the results go at once. Whether autograd writes over a result depends on who keeps it alive
    /// before the op begins, so records that read that one are forgotten an op earlier.
    ///
    /// Ops are visited from the last to the first, as mostly an op is read by later ones. Fewer are chosen from visit
    /// to visit, and records are remembered longer, until nothing changes.
    fn but_for(&self, count: usize) -> Vec<bool> {
        let mut chosen = vec![false; self.reads.ops.len()];
        for &place in &self.candidates[count..] {
            chosen[place as usize] = true;
        }
        let mut forgotten = vec![0; chosen.len()];
        loop {
            let mut settled = true;
            for (place, op) in self.reads.ops.iter().enumerate().rev() {
                let span = self.spans[place];
                let recorded = |reader: &&u32| !chosen[**reader as usize];
                let later = |at: usize| match at.checked_add(self.reads.ops.len()) {
                    Some(later) if at < 2 * self.reads.ops.len() => later,
                    _ => EVER,
                };
                let readers = op.readers.iter().filter(recorded);
                let next_readers = op.next_readers.iter().filter(recorded);
                let read = readers
                    .map(|&reader| forgotten[reader as usize])
                    .chain(next_readers.map(|&reader| later(forgotten[reader as usize])))
                    .max();
                let in_time = |read| {
                    self.readers == Readers::Forgotten && (span.first == EVER || read <= span.first)
                };
                let stays = chosen[place]
                    && read.is_none_or(in_time)
                    && op.writes.iter().all(|&maker| chosen[maker as usize]);
                // Of constants alone no record is remembered.
                let until = if stays || span.last == 0 {
                    0
                } else {
                    span.last.max(read.unwrap_or(0))
                };
                settled &= stays == chosen[place] && until == forgotten[place];
                chosen[place] = stays;
                forgotten[place] = until;
            }
            if settled {
                return chosen;
            }
        }
    }

    /// The most bytes of these ops' results at a time that could be evicted if the ops had records. What stays to the
    /// end of the step is there again when the next one begins.
    fn most(&self, chosen: &[bool]) -> u64 {
        let mut changes = vec![(0u64, 0u64); self.reads.events + 1];
        let mut now = 0u64;
        let ops = self.reads.ops.iter().zip(chosen);
        for (op, _) in ops.filter(|&(_, &chosen)| chosen) {
            for result in evictable(&op.results) {
                changes[op.event].0 += result.bytes;
                changes[result.until].1 += result.bytes;
                if result.until == self.reads.events {
                    now += result.bytes;
                }
            }
        }
        let mut most = now;
        for (more, less) in changes {
            now = now.saturating_add(more).saturating_sub(less);
            most = most.max(now);
        }
        most
    }
}

/// How long the results of each op are there.
fn spans(reads: &Reads) -> Vec<Span> {
    let events: Vec<usize> = reads.ops.iter().map(|op| op.event).collect();
    let announced = |event: usize| events.partition_point(|&op| op < event);
    let until = |result: &Result| match (result.until, result.until_next) {
        (until, _) if until < reads.events => announced(until),
        (_, next) if next < reads.events => reads.ops.len() + announced(next),
        _ => EVER,
    };
    let span = |op: &Op| {
        if op.results.iter().any(Option::is_none) {
            return Span {
                first: 0,
                last: EVER,
            };
        }
        let until = || evictable(&op.results).map(until);
        Span {
            first: until().min().unwrap_or(EVER),
            last: until().max().unwrap_or(0),
        }
    };
    let mut spans: Vec<Span> = reads.ops.iter().map(span).collect();
    for (place, op) in reads.ops.iter().enumerate() {
        for &maker in &op.writes {
            let maker = maker as usize;
            if evictable(&reads.ops[maker].results).next().is_some() {
                spans[maker].first = spans[maker].first.min(place.saturating_sub(1));
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::super::reads::{Op, Reads, Result};
    use super::unrecorded;
    use remat_core::{Bytes, GuideAction};

    const EVENTS: usize = 20;

    /// Ops at these events, each with one result of a byte until another event, or to the end.
    fn step(results: &[(usize, Option<usize>)]) -> Reads {
        let op = |&(event, until): &(usize, Option<usize>)| Op {
            readers: Vec::new(),
            next_readers: Vec::new(),
            writes: Vec::new(),
            event,
            here: true,
            results: vec![Some(Result {
                bytes: 1,
                evictable: true,
                until: until.unwrap_or(EVENTS),
                pinned: false,
                until_next: EVENTS,
            })],
        };
        Reads {
            ops: results.iter().map(op).collect(),
            events: EVENTS,
        }
    }

    /// The ops without records if the plan drops what one makes, within a budget that all fit into.
    fn chosen(reads: &Reads, dropped: u32) -> Vec<u32> {
        chosen_within(reads, dropped, 100)
    }

    fn chosen_within(reads: &Reads, dropped: u32, budget: u64) -> Vec<u32> {
        let drop = GuideAction::Drop {
            op: dropped,
            output: 0,
        };
        unrecorded(reads, &[vec![drop]], Bytes(budget)).ops
    }

    #[test]
    fn a_result_needs_no_record_if_records_that_read_it_are_forgotten_as_it_goes() {
        // Op 1 reads op 0. Ops 2 and 3 come while both results are there.
        let reads = |read: usize, reader: usize| {
            let mut reads = step(&[
                (0, Some(read)),
                (1, Some(reader)),
                (2, Some(3)),
                (8, Some(9)),
            ]);
            reads.ops[0].readers.push(1);
            reads
        };
        assert_eq!(chosen(&reads(10, 7), 1), [0, 2, 3]);
        // The engine hears of both ends as op 3 begins.
        assert_eq!(chosen(&reads(6, 7), 1), [0, 2, 3]);
        assert_eq!(chosen(&reads(7, 9), 1), [2, 3]);
        // What nothing ends, no record prolongs.
        let mut stays = reads(10, EVENTS);
        assert_eq!(chosen(&stays, 1), [2, 3]);
        stays.ops[0].results[0].as_mut().unwrap().until = EVENTS;
        assert_eq!(chosen(&stays, 1), [0, 2, 3]);
    }

    #[test]
    fn results_that_records_read_take_a_sixth_of_the_budget_and_others_a_quarter() {
        // Op 1 reads op 0, whose result is there beside that of op 2 or of op 3.
        let mut reads = step(&[(0, Some(10)), (1, Some(7)), (2, Some(3)), (8, Some(9))]);
        reads.ops[0].readers.push(1);
        assert_eq!(chosen_within(&reads, 1, 12), [0, 2, 3]);
        assert_eq!(chosen_within(&reads, 1, 11), [2, 3]);
        assert_eq!(chosen_within(&reads, 1, 4), [2, 3]);
        assert!(chosen_within(&reads, 1, 3).is_empty());
    }

    #[test]
    fn the_most_that_they_take_is_told() {
        // Ops 0 and 1 are read as they go, op 2 makes a constant, and op 3 stays.
        let mut reads = step(&[(0, Some(4)), (2, Some(6)), (3, Some(6)), (5, None)]);
        reads.ops[2].results[0].as_mut().unwrap().evictable = false;
        let most = |reads: &Reads, dropped| {
            let drop = GuideAction::Drop {
                op: dropped,
                output: 0,
            };
            unrecorded(reads, &[vec![drop]], Bytes(100)).most
        };
        assert_eq!(most(&reads, 3), Some(Bytes(2)));
        // What stays is there as the next step begins.
        assert_eq!(most(&reads, 2), Some(Bytes(3)));
        for op in &mut reads.ops {
            op.here = false;
        }
        assert_eq!(most(&reads, 0), None);
    }

    #[test]
    fn a_record_is_remembered_as_long_as_one_that_read_its_results() {
        // Op 2 reads op 1, which reads op 0. The last result is there when op 3 has begun, and op 0's goes.
        let mut reads = step(&[
            (0, Some(9)),
            (1, Some(3)),
            (2, Some(12)),
            (5, Some(10)),
            (11, Some(13)),
        ]);
        reads.ops[0].readers.push(1);
        reads.ops[1].readers.push(2);
        assert_eq!(chosen(&reads, 2), [3, 4]);
        reads.ops[2].results[0].as_mut().unwrap().until = 7;
        assert_eq!(chosen(&reads, 2), [0, 3, 4]);
    }

    #[test]
    fn what_the_next_step_reads_counts_until_its_end_there() {
        // Op 1 is read by op 0 of the next step, and goes at event 5 there.
        let reads = |reader: usize| {
            let mut reads = step(&[(0, Some(reader)), (1, None), (4, Some(6)), (7, Some(9))]);
            reads.ops[1].next_readers.push(0);
            reads.ops[1].results[0].as_mut().unwrap().until_next = 5;
            reads
        };
        assert_eq!(chosen(&reads(3), 0), [1, 2, 3]);
        assert_eq!(chosen(&reads(8), 0), [2, 3]);
        // A record of op 1 is remembered until then, and so longer than what it reads is there.
        let mut reads = reads(3);
        reads.ops[0].readers.push(1);
        assert_eq!(chosen(&reads, 1), [2, 3]);
    }

    #[test]
    fn a_result_that_is_written_over_ends_there_and_writers_are_like_it() {
        // Op 1 reads op 0, and op 3 writes over it.
        let reads = |reader: usize| {
            let mut reads = step(&[
                (0, Some(12)),
                (1, Some(reader)),
                (4, Some(9)),
                (6, Some(12)),
            ]);
            reads.ops[0].readers.extend([1, 3]);
            reads.ops[3].writes.push(0);
            reads
        };
        assert_eq!(chosen(&reads(3), 1), [0, 2, 3]);
        // Whether autograd adds in place is decided before the op begins.
        assert_eq!(chosen(&reads(5), 1), [2]);
        assert_eq!(chosen(&reads(3), 3), [1, 2]);
        assert_eq!(chosen(&reads(3), 0), [1, 2]);
    }

    #[test]
    fn what_makes_constants_alone_leaves_no_record() {
        // Op 1 reads op 0, makes a constant, and is read by op 2.
        let mut reads = step(&[(0, Some(3)), (1, None), (4, None), (5, None)]);
        reads.ops[0].readers.push(1);
        reads.ops[1].readers.push(2);
        reads.ops[1].here = false;
        assert_eq!(chosen(&reads, 2), [3]);
        reads.ops[1].results[0].as_mut().unwrap().evictable = false;
        assert_eq!(chosen(&reads, 2), [0, 3]);
    }

    #[test]
    fn views_are_read_by_their_like_alone() {
        let mut reads = step(&[(0, Some(12)), (1, None), (3, Some(5)), (6, Some(12))]);
        reads.ops[1].results[0] = None;
        reads.ops[0].readers.push(1);
        assert_eq!(chosen(&reads, 3), [0, 1, 2]);
        // Op 2 reads the view, and so what is viewed.
        reads.ops[0].readers.push(2);
        reads.ops[1].readers.push(2);
        assert_eq!(chosen(&reads, 2), [3]);
    }
}
