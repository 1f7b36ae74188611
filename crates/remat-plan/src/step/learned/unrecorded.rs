//! The ops of a planned step that need no record while the plan is followed.

use super::reads::{Op, Reads, Result};
use remat_core::{Bytes, GuideAction};
use std::cmp::Reverse;

/// Results of ops without records take at most this part of the budget at a time, but for those that are constants
/// anyway.
pub const UNRECORDED_PART: u64 = 4;
/// The same where records may read such results, which are there for longer.
const READ_PART: u64 = 6;
/// About so many records are counted at a moment, to tell how many each op there brings along. An op that brings more
/// along than its share of them, and than [`SHARE`], has one last.
const COUNTED: usize = 1 << 21;
const SHARE: usize = 256;
/// Moments at which the planner chooses among the ops.
const MOMENTS: usize = 256;
/// Of what never goes.
const EVER: usize = usize::MAX;

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

/// How long results of an op are there, in ops of the step that are announced by then. The next step's are counted on.
#[derive(Clone, Copy)]
struct Span {
    /// Until the engine has heard that the first result went that is no constant anyway, or until the op before one
    /// that writes over it; [`EVER`] if there is none, and 0 if there is a view, whose end is not known.
    first: usize,
    /// Until the last of them goes; 0 if there is none.
    last: usize,
}

/// The ops of a step that need no record: the plan neither runs them again nor drops what they make, what reads their
/// results and has a record is forgotten before those go, and they take little at a time.
///
/// Of two such choices it is the one of more ops: readers without records and results of a quarter of the budget, or
/// readers that are forgotten in time and results of a sixth.
pub(super) fn unrecorded(reads: &Reads, actions: &[Vec<GuideAction>], budget: Bytes) -> Unrecorded {
    let alike = chosen(reads, actions, Readers::Alike, budget.0 / UNRECORDED_PART);
    let forgotten = chosen(reads, actions, Readers::Forgotten, budget.0 / READ_PART);
    if forgotten.ops.len() > alike.ops.len() {
        forgotten
    } else {
        alike
    }
}

/// Ops without records that such readers may read, and whose results take so many bytes at most at a time.
fn chosen(reads: &Reads, actions: &[Vec<GuideAction>], readers: Readers, bytes: u64) -> Unrecorded {
    let mut records = Records::of(reads, readers);
    let elsewhere = (0..).zip(&reads.ops).filter(|(_, op)| !op.here);
    let mut first: Vec<u32> = elsewhere.map(|(place, _)| place).collect();
    for action in actions.iter().flatten() {
        let (GuideAction::Run(op) | GuideAction::RunInPlace(op) | GuideAction::Drop { op, .. }) =
            *action;
        first.extend(((op as usize) < reads.ops.len()).then_some(op));
    }
    // Those whose records are remembered longest go first, so that few records are prolonged by later ones.
    first.sort_by_key(|&place| Reverse(records.spans[place as usize].last));
    for place in first {
        records.give(place);
    }
    records.keep_within(bytes);
    let ops: Vec<u32> = (0..)
        .zip(&records.until)
        .filter_map(|(place, until)| until.is_none().then_some(place))
        .collect();
    Unrecorded {
        most: (!ops.is_empty()).then_some(Bytes(records.fullest().1)),
        ops,
    }
}

fn evictable(results: &[Option<Result>]) -> impl Iterator<Item = &Result> {
    results.iter().flatten().filter(|result| result.evictable)
}

/// The ops of a step that have a record, from none on.
///
/// A record keeps what it reads alive, if that is a constant, and it is remembered as long as one of its results is
/// there, or a record that read it. So a result without a record stays longer than the plan has it, unless all records
/// that read it are forgotten by then: otherwise the op that makes it has a record, too. The engine hears of what went
/// as the next op begins; of records that are forgotten then, the results go at once. Whether autograd writes over a
/// result depends on who keeps it alive before the op begins, so records that read that one are forgotten an op
/// earlier. An op that writes over a result with a record has one.
struct Records<'a> {
    reads: &'a Reads,
    readers: Readers,
    spans: Vec<Span>,
    /// By op, the ops whose results it reads, and whether those are of the step before.
    makers: Lists<(u32, bool)>,
    /// By op, those that write into its blocks.
    writers: Lists<u32>,
    /// Of each op with a record, how many ops of the step are announced when it is forgotten; 0 if it makes constants
    /// alone, of which no record is remembered.
    until: Vec<Option<usize>>,
    /// Latest changes of `until`, from the first on: ops, and how long their records were remembered before.
    changes: Vec<(u32, Option<usize>)>,
    /// Ops whose records are to be remembered for so long.
    pending: Vec<(u32, usize)>,
}

impl<'a> Records<'a> {
    fn of(reads: &'a Reads, readers: Readers) -> Records<'a> {
        let (mut makers, mut writers) = (Vec::new(), Vec::new());
        for (place, op) in (0..).zip(&reads.ops) {
            makers.extend(op.readers.iter().map(|&reader| (reader, (place, false))));
            let next_readers = op.next_readers.iter();
            makers.extend(next_readers.map(|&reader| (reader, (place, true))));
            writers.extend(op.writes.iter().map(|&maker| (maker, place)));
        }
        Records {
            reads,
            readers,
            spans: spans(reads),
            makers: Lists::of(makers, reads.ops.len()),
            writers: Lists::of(writers, reads.ops.len()),
            until: vec![None; reads.ops.len()],
            changes: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// An op has a record, and so have those that need one then. Stops after so many changes.
    fn add(&mut self, place: u32, most: usize) {
        self.pending.clear();
        self.pending.push((place, 0));
        let last = self.changes.len().saturating_add(most);
        while let Some((place, read)) = self.pending.pop() {
            if self.changes.len() >= last {
                return;
            }
            let (at, ops) = (place as usize, self.until.len());
            let own = self.spans[at].last;
            let until = if own == 0 { 0 } else { own.max(read) };
            if self.until[at].is_some_and(|before| before >= until) {
                continue;
            }
            self.changes.push((place, self.until[at]));
            self.until[at] = Some(until);
            let later = if until < 2 * ops { until + ops } else { EVER };
            for &(maker, is_before) in self.makers.of_op(place) {
                let read = if is_before { later } else { until };
                let first = self.spans[maker as usize].first;
                let needs_record = match self.until[maker as usize] {
                    Some(until) => until < read,
                    None => self.readers == Readers::Alike || first != EVER && first < read,
                };
                if needs_record {
                    self.pending.push((maker, read));
                }
            }
            let writers = self.writers.of_op(place).iter();
            self.pending.extend(writers.map(|&writer| (writer, 0)));
        }
    }

    /// The same for good.
    fn give(&mut self, place: u32) {
        self.add(place, usize::MAX);
        self.changes.clear();
    }

    /// Takes all changes back.
    fn take_back(&mut self) {
        for (place, before) in self.changes.drain(..).rev() {
            self.until[place as usize] = before;
        }
    }

    /// Adds records until the others' results take so many bytes at most at a time.
    ///
    /// Where they take most, those ops have a record first that free most bytes there for each record that they bring
    /// along. Then the fullest moment is another one: mostly there are one to three. After [`MOMENTS`] of them, all
    /// that is there at one that is still too full has a record.
    fn keep_within(&mut self, bytes: u64) {
        for _ in 0..MOMENTS {
            let (moment, most) = self.fullest();
            if most <= bytes {
                return;
            }
            let mut gains = self.gains(moment);
            gains.sort_by_key(|&(place, gain)| (Reverse(gain), place));
            let mut left = most;
            for (place, _) in gains {
                if left <= bytes {
                    break;
                }
                self.add(place, usize::MAX);
                left = left.saturating_sub(self.freed(moment).0);
                self.changes.clear();
            }
        }
        self.free_all_beyond(bytes);
    }

    /// All ops have a record whose results are there at a moment at which more bytes are.
    fn free_all_beyond(&mut self, bytes: u64) {
        // Of each moment, how many there are up to it.
        let mut full = vec![0u32];
        for now in self.bytes_by_moment() {
            full.push(full[full.len() - 1] + u32::from(now > bytes));
        }
        let last = full[full.len() - 1];
        let is_there = |op: &Op| {
            evictable(&op.results).any(|result| {
                let stays = result.until == self.reads.events && last > 0;
                stays || full[result.until] > full[op.event]
            })
        };
        let ops = (0..).zip(&self.reads.ops).filter(|(_, op)| is_there(op));
        let places: Vec<u32> = ops.map(|(place, _)| place).collect();
        for place in places.into_iter().rev() {
            self.give(place);
        }
    }

    /// The ops without records whose results are there at a moment, and how many 1024ths of a byte are freed there for
    /// each record that they bring along.
    fn gains(&mut self, moment: usize) -> Vec<(u32, u64)> {
        let there =
            |&place: &u32| self.until[place as usize].is_none() && self.bytes_at(place, moment) > 0;
        let there: Vec<u32> = (0..self.until.len() as u32).filter(there).collect();
        let counted = (COUNTED / there.len().max(1)).max(SHARE);
        let mut gain = |place| {
            self.add(place, counted);
            let all = self.changes.len() < counted;
            let (bytes, records) = self.freed(moment);
            self.take_back();
            let gain = bytes.saturating_mul(1024) / records.max(1);
            if all { gain } else { 0 }
        };
        there
            .into_iter()
            .map(|place| (place, gain(place)))
            .collect()
    }

    /// The bytes at a moment that results without records took before the changes, and these records.
    fn freed(&self, moment: usize) -> (u64, u64) {
        let added = self.changes.iter().filter(|(_, before)| before.is_none());
        added.fold((0, 0), |(bytes, records), &(place, _)| {
            let freed = self.bytes_at(place, moment);
            (bytes.saturating_add(freed), records + 1)
        })
    }

    /// The bytes that evictable results of an op take at a moment. What stays to the end of the step is there again
    /// when the next one begins.
    fn bytes_at(&self, place: u32, moment: usize) -> u64 {
        let op = &self.reads.ops[place as usize];
        let bytes = evictable(&op.results).map(|result| {
            let stays = result.until == self.reads.events;
            let there = op.event <= moment && moment < result.until;
            let times = u64::from(stays) + u64::from(there);
            result.bytes.saturating_mul(times)
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// The latest moment at which results of ops without records take most that could be evicted if the ops had
    /// records, and the bytes.
    fn fullest(&self) -> (usize, u64) {
        let moments = self.bytes_by_moment().into_iter().enumerate();
        moments.max_by_key(|&(_, now)| now).unwrap_or_default()
    }

    /// Those bytes at each moment.
    fn bytes_by_moment(&self) -> Vec<u64> {
        let mut changes = vec![(0u64, 0u64); self.reads.events + 1];
        let mut now = 0u64;
        let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        let ops = self.reads.ops.iter().zip(&self.until);
        for (op, _) in ops.filter(|(_, until)| until.is_none()) {
            for result in evictable(&op.results) {
                add(&mut changes[op.event].0, result.bytes);
                add(&mut changes[result.until].1, result.bytes);
                if result.until == self.reads.events {
                    add(&mut now, result.bytes);
                }
            }
        }
        let then = |(more, less)| {
            now = now.saturating_add(more).saturating_sub(less);
            now
        };
        changes.into_iter().map(then).collect()
    }
}

/// A list for each op, one after the other.
struct Lists<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Ord + Copy> Lists<T> {
    /// From pairs of ops, of so many, and items.
    fn of(mut pairs: Vec<(u32, T)>, ops: usize) -> Lists<T> {
        pairs.sort_unstable();
        let start = |op: u32| pairs.partition_point(|&(other, _)| other < op) as u32;
        Lists {
            starts: (0..=ops as u32).map(start).collect(),
            items: pairs.iter().map(|&(_, item)| item).collect(),
        }
    }

    fn of_op(&self, place: u32) -> &[T] {
        let at = place as usize;
        &self.items[self.starts[at] as usize..self.starts[at + 1] as usize]
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
    use super::{MOMENTS, Readers, spans, unrecorded};
    use proptest::prelude::*;
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
    fn ops_that_bring_few_records_along_have_one_first() {
        // Ops 0 and 1 are each gone once the next has read them. What op 2 makes stays beside that of op 3.
        let ends = [1, 2, 12, 12, 12];
        let results: Vec<_> = ends.into_iter().map(Some).enumerate().collect();
        let mut reads = step(&results);
        reads.ops[0].readers.push(1);
        reads.ops[1].readers.push(2);
        let mut chosen = |bytes: u64| {
            reads.ops[2].results[0].as_mut().unwrap().bytes = bytes;
            reads.ops[3].results[0].as_mut().unwrap().bytes = 2;
            chosen_within(&reads, 4, 12)
        };
        assert_eq!(chosen(2), [0, 1, 2]);
        // More bytes make up for more records.
        assert_eq!(chosen(12), [3]);
    }

    #[test]
    fn moments_may_be_too_full_one_after_the_other() {
        // Each result is gone before the next comes, but for those of the last two ops.
        let mut results: Vec<_> = (0..3 * MOMENTS)
            .map(|at| (2 * at, Some(2 * at + 1)))
            .collect();
        let last = 6 * MOMENTS;
        results.extend([(last, Some(last + 1)), (last + 1, Some(last + 2))]);
        let mut reads = step(&results);
        reads.events = last + 4;
        for op in &mut reads.ops[..3 * MOMENTS] {
            op.results[0].as_mut().unwrap().bytes = 7;
        }
        let ops = |bytes| super::chosen(&reads, &[], Readers::Forgotten, bytes).ops;
        assert_eq!(ops(7).len(), reads.ops.len());
        assert_eq!(ops(6), [3 * MOMENTS as u32, 3 * MOMENTS as u32 + 1]);
    }

    #[test]
    fn what_writes_over_a_result_with_a_record_has_one() {
        let mut reads = step(&[(0, Some(9)), (1, Some(9)), (3, Some(9))]);
        reads.ops[0].readers.push(1);
        reads.ops[1].writes.push(0);
        assert_eq!(chosen(&reads, 2), [0, 1]);
        assert_eq!(chosen(&reads, 0), [2]);
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

    prop_compose! {
        /// Ops a few events apart, of which each reads some of the four before it and may write over the last of them.
        fn any_step()(
            ops in prop::collection::vec((1u64..9, 0usize..60, 0usize..16, any::<bool>()), 1..40)
        ) -> Reads {
            let events = 2 * ops.len();
            let mut reads = Reads { ops: Vec::new(), events };
            for (place, (bytes, stays, read, writes)) in ops.into_iter().enumerate() {
                let event = 2 * place;
                let result = Result {
                    bytes,
                    evictable: bytes > 1,
                    until: (event + 1 + stays).min(events),
                    pinned: false,
                    until_next: events,
                };
                let makers = (1..=4.min(place)).filter(|ago| read >> (ago - 1) & 1 == 1);
                let makers: Vec<usize> = makers.map(|ago| place - ago).collect();
                for &maker in &makers {
                    reads.ops[maker].readers.push(place as u32);
                }
                let written = makers.last().filter(|_| writes).map(|&maker| maker as u32);
                reads.ops.push(Op {
                    readers: Vec::new(),
                    next_readers: Vec::new(),
                    writes: written.into_iter().collect(),
                    event,
                    here: true,
                    results: vec![Some(result)],
                });
            }
            reads
        }
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_closed_and_takes_no_more_than_it_may(
            reads in any_step(),
            dropped in 0u32..40,
            budget in 0u64..70,
        ) {
            let dropped = dropped % reads.ops.len() as u32;
            let drop = GuideAction::Drop { op: dropped, output: 0 };
            let chosen = super::chosen(&reads, &[vec![drop]], Readers::Forgotten, budget).ops;
            let recorded = |op: u32| chosen.binary_search(&op).is_err();
            prop_assert!(recorded(dropped));
            let at = |event: usize| {
                let bytes = chosen.iter().map(|&place| {
                    let op = &reads.ops[place as usize];
                    let result = op.results[0].unwrap();
                    let stays = result.until == reads.events;
                    let there = op.event <= event && event < result.until;
                    u64::from(result.evictable) * result.bytes * (u64::from(stays) + u64::from(there))
                });
                bytes.sum::<u64>()
            };
            let most = (0..reads.events).map(at).max().unwrap();
            prop_assert!(most <= budget, "{most} of {budget}");
            // The records of readers, back to front, and whether what they read stays as long.
            let spans = spans(&reads);
            let mut until = vec![0; reads.ops.len()];
            for (place, op) in reads.ops.iter().enumerate().rev() {
                let readers = op.readers.iter().filter(|&&reader| recorded(reader));
                let read = readers.map(|&reader| until[reader as usize]).max().unwrap_or(0);
                if recorded(place as u32) {
                    let own = spans[place].last;
                    until[place] = if own == 0 { 0 } else { own.max(read) };
                } else {
                    prop_assert!(read <= spans[place].first, "{place} is read until {read}");
                    prop_assert!(!op.writes.iter().any(|&maker| recorded(maker)), "{place} writes");
                }
            }
        }
    }
}
