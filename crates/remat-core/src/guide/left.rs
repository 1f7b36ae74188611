//! Periods that were left while they were recorded, as loops amid a step are. Each time they stay away for longer.

/// So many are remembered.
const MOST: usize = 64;
/// For so many ops they stay away at most: a longer step than half of that is not found anyway.
const LONGEST: u64 = 1 << 21;

#[derive(Clone, Copy)]
struct Period {
    hash: u64,
    /// How often it was left.
    times: u32,
    /// The op from which on it may be found again; `None` if it may already.
    until: Option<u64>,
}

/// The periods, the one left last at the end.
#[derive(Default)]
pub(super) struct Left {
    periods: Vec<Period>,
    /// The first op with which one of them may be found again.
    first: Option<u64>,
}

impl Left {
    /// A period of so many ops was left before this op, and stays away. The first time it may be found again at once,
    /// then after twice as many ops as it has, and after twice as many each time.
    pub(super) fn note(&mut self, hash: u64, ops: u64, op: u64) {
        let before = self.periods.iter().position(|period| period.hash == hash);
        let times = before.map_or(0, |at| self.periods.remove(at).times);
        let waits = match times {
            0 => 0,
            times => ops.saturating_mul(1 << times.min(32)).min(LONGEST),
        };
        self.periods.push(Period {
            hash,
            times: times + 1,
            until: Some(op.saturating_add(waits)),
        });
        self.update();
    }

    /// One that may be found again from the op of this number on, and could not before.
    #[inline]
    pub(super) fn take_returned(&mut self, op: u64) -> Option<u64> {
        if self.first.is_none_or(|first| first > op) {
            return None;
        }
        let is_back = |period: &&mut Period| period.until.is_some_and(|until| until <= op);
        let hash = self.periods.iter_mut().find(is_back).map(|period| {
            period.until = None;
            period.hash
        });
        if self.periods.len() > MOST && self.periods[0].until.is_none() {
            self.periods.remove(0);
        }
        self.update();
        hash
    }

    pub(super) fn is_away(&self, hash: u64) -> bool {
        let of_hash = self.periods.iter().find(|period| period.hash == hash);
        of_hash.is_some_and(|period| period.until.is_some())
    }

    /// How many are away.
    pub(super) fn away(&self) -> usize {
        let away = self.periods.iter().filter(|period| period.until.is_some());
        away.count()
    }

    /// A period was recorded.
    pub(super) fn forget(&mut self, hash: u64) {
        self.periods.retain(|period| period.hash != hash);
        self.update();
    }

    fn update(&mut self) {
        self.first = self.periods.iter().filter_map(|period| period.until).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_stays_away_for_longer_each_time_until_it_is_recorded() {
        let mut left = Left::default();
        let stays = |left: &mut Left| {
            left.note(7, 10, 1000);
            assert_eq!(left.away(), 1);
            let back = (1000..2000).find(|&op| left.take_returned(op) == Some(7));
            assert_eq!((left.away(), left.take_returned(2000)), (0, None));
            back.map(|op| op - 1000)
        };
        let each: Vec<_> = (0..4).map(|_| stays(&mut left)).collect();
        assert_eq!(each, [Some(0), Some(20), Some(40), Some(80)]);
        left.forget(7);
        assert_eq!(stays(&mut left), Some(0));
    }

    #[test]
    fn no_more_than_so_many_are_remembered_once_they_are_back() {
        let mut left = Left::default();
        for hash in 0..4 * MOST as u64 {
            left.note(hash, 10, hash);
            assert_eq!(left.take_returned(hash), Some(hash));
        }
        assert_eq!(left.periods.len(), MOST);
    }
}
