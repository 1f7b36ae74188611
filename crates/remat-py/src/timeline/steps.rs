//! Steps that are kept in detail, and all steps in a few numbers.

use super::event::Detail;
use super::level::Sum;

/// Kinds of steps of which one is kept.
const MOST_KINDS: usize = 6;

/// Steps that have a line of their own; beyond, two in a row share one, and so on.
const MOST_LINES: usize = 1 << 12;

/// One step, or some in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The first one's number.
    pub(super) number: u64,
    /// How many they are.
    pub(super) count: u64,
    pub(super) began: u64,
    pub(super) ended: u64,
    /// Sums, but for the peak.
    pub(super) sum: Sum,
    /// Steps of one kind run the same ops. The kind of the one with the peak.
    pub(super) kind: u32,
    /// How many ran as planned.
    pub(super) planned: u64,
}

/// Why a step is kept in detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    First,
    Kind,
    Peak,
    Longest,
    Recomputing,
    Last,
}

impl Role {
    pub(super) fn text(self) -> &'static str {
        match self {
            Role::First => "the first",
            Role::Kind => "the first of its kind",
            Role::Peak => "the highest peak",
            Role::Longest => "the longest",
            Role::Recomputing => "the most recomputing",
            Role::Last => "the last",
        }
    }
}

/// A step that is kept in detail.
pub(super) struct Kept {
    pub(super) line: Line,
    pub(super) roles: Vec<Role>,
    pub(super) detail: Detail,
}

impl Kept {
    /// Whether it has a role beside that of the last.
    fn stays(&self) -> bool {
        self.roles.iter().any(|&role| role != Role::Last)
    }
}

/// A number by which a step is the worst.
type Measure = fn(&Line) -> u64;

/// All steps so far.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) lines: Vec<Line>,
    /// Steps that share a line.
    each: u64,
    pub(super) kept: Vec<Kept>,
    pub(super) count: u64,
    /// Hashes of the kinds.
    kinds: Vec<u64>,
}

impl Steps {
    /// The number of a kind of steps, by the hash of its ops. Beyond a number of kinds they share one.
    pub(super) fn kind(&mut self, hash: u64) -> (u32, bool) {
        if let Some(kind) = self.kinds.iter().position(|&known| known == hash) {
            return (kind as u32, false);
        }
        if self.kinds.len() >= 1 << 10 {
            return (self.kinds.len() as u32, false);
        }
        self.kinds.push(hash);
        let new = self.kinds.len() - 1;
        (new as u32, new < MOST_KINDS)
    }

    /// A step ended. Returns buffers for the next one.
    pub(super) fn add(&mut self, line: Line, is_new: bool, detail: Detail) -> Detail {
        self.count += 1;
        self.note(line);
        let mut roles = vec![Role::Last];
        if line.number == 1 {
            roles.push(Role::First);
        } else if is_new {
            roles.push(Role::Kind);
        }
        let most = |measure: Measure, role: Role, kept: &[Kept]| {
            let holder = kept.iter().find(|kept| kept.roles.contains(&role));
            holder.is_none_or(|kept| measure(&line) > measure(&kept.line))
        };
        let measures: [(Measure, Role); 3] = [
            (|line| line.sum.peak.total(), Role::Peak),
            (|line| line.ended - line.began, Role::Longest),
            (|line| line.sum.replayed, Role::Recomputing),
        ];
        for (measure, role) in measures {
            // The first step loads and measures: it is the longest of most runs, and kept anyway.
            let counts = role != Role::Longest || line.number > 1;
            let counts = counts && (role != Role::Recomputing || line.sum.replays > 0);
            if counts && most(measure, role, &self.kept) {
                self.kept
                    .iter_mut()
                    .for_each(|kept| kept.roles.retain(|&other| other != role));
                roles.push(role);
            }
        }
        let mut spare = Detail::default();
        for mut kept in std::mem::take(&mut self.kept) {
            kept.roles.retain(|&role| role != Role::Last);
            if kept.stays() {
                self.kept.push(kept);
            } else {
                spare = kept.detail;
            }
        }
        self.kept.push(Kept {
            line,
            roles,
            detail,
        });
        spare.events.clear();
        spare.blocks.clear();
        spare
    }

    fn note(&mut self, line: Line) {
        self.each = self.each.max(1);
        match self.lines.last_mut() {
            Some(last) if last.count < self.each => merge(last, &line),
            _ => self.lines.push(line),
        }
        if self.lines.len() > MOST_LINES {
            self.each *= 2;
            let lines = std::mem::take(&mut self.lines);
            for pair in lines.chunks(2) {
                let mut line = pair[0];
                pair[1..].iter().for_each(|next| merge(&mut line, next));
                self.lines.push(line);
            }
        }
    }
}

/// Takes a later step into a line.
fn merge(line: &mut Line, next: &Line) {
    line.count += next.count;
    line.ended = next.ended;
    line.planned += next.planned;
    let (sum, other) = (&mut line.sum, &next.sum);
    if other.peak.total() > sum.peak.total() {
        (sum.peak, line.kind) = (other.peak, next.kind);
    }
    sum.ops += other.ops;
    sum.evictions += other.evictions;
    sum.evicted_bytes += other.evicted_bytes;
    sum.replays += other.replays;
    sum.replayed += other.replayed;
}

#[cfg(test)]
mod tests {
    use super::super::level::Level;
    use super::*;

    fn step(number: u64, peak: u64, took: u64) -> Line {
        let peak = Level {
            kinds: [peak, 0, 0, 0, 0, 0],
            workspace: 0,
        };
        Line {
            number,
            count: 1,
            began: number * 1000,
            ended: number * 1000 + took,
            sum: Sum {
                peak,
                ops: 1,
                ..Sum::default()
            },
            kind: 0,
            planned: 0,
        }
    }

    #[test]
    fn the_first_the_last_the_worst_and_one_of_each_kind_are_kept() {
        let mut steps = Steps::default();
        for (number, peak, took, hash) in [
            (1, 5, 99, 1),
            (2, 9, 10, 2),
            (3, 7, 10, 2),
            (4, 7, 50, 2),
            (5, 7, 10, 3),
            (6, 8, 11, 2),
            (7, 8, 12, 2),
        ] {
            let (_, is_new) = steps.kind(hash);
            steps.add(step(number, peak, took), is_new, Detail::default());
        }
        let kept = steps
            .kept
            .iter()
            .map(|kept| (kept.line.number, &kept.roles[..]));
        let expected: Vec<(u64, &[Role])> = vec![
            (1, &[Role::First]),
            (2, &[Role::Kind, Role::Peak]),
            (4, &[Role::Longest]),
            (5, &[Role::Kind]),
            (7, &[Role::Last]),
        ];
        assert_eq!(kept.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn lines_stay_few_and_lose_no_step_and_no_peak() {
        let mut steps = Steps::default();
        let count = 3 * MOST_LINES as u64 + 5;
        for number in 1..=count {
            let peak = if number == 7777 { 1000 } else { number % 7 };
            steps.add(step(number, peak, 10), false, Detail::default());
        }
        assert!(steps.lines.len() <= MOST_LINES);
        assert_eq!(
            steps.lines.iter().map(|line| line.count).sum::<u64>(),
            count
        );
        assert_eq!(
            steps.lines.iter().map(|line| line.sum.ops).sum::<u64>(),
            count
        );
        let peak = |line: &Line| line.sum.peak.total();
        let worst = steps.lines.iter().max_by_key(|line| peak(line));
        assert!(worst.is_some_and(|line| peak(line) == 1000 && line.number <= 7777));
    }
}
