//! A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan 1990) of alarms: buckets by the highest bit in which a time differs
//! from the base. When the base reaches a bucket, the alarms in it move to lower ones, in the order in which they lie
//! in memory.

/// Alarms, all due after the base, or at it while they are being taken.
pub(super) struct RadixHeap {
    base: u64,
    len: usize,
    /// Alarms due at the base.
    now: Vec<u32>,
    /// By the highest bit that differs: times and whom to wake.
    buckets: Vec<Vec<(u64, u32)>>,
    /// A bit for each bucket that holds any.
    occupied: u64,
}

impl Default for RadixHeap {
    fn default() -> RadixHeap {
        RadixHeap {
            base: 0,
            len: 0,
            now: Vec::new(),
            buckets: vec![Vec::new(); 64],
            occupied: 0,
        }
    }
}

impl RadixHeap {
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sets an alarm that is due after the base.
    pub(super) fn push(&mut self, due: u64, who: u32) {
        self.len += 1;
        self.put(due, who);
    }

    fn put(&mut self, due: u64, who: u32) {
        match (due ^ self.base).checked_ilog2() {
            None => self.now.push(who),
            Some(bit) => {
                self.buckets[bit as usize].push((due, who));
                self.occupied |= 1 << bit;
            }
        }
    }

    /// Takes one of the earliest alarms, if due until then, and moves the base to its time; else to `until`, if that is
    /// later.
    pub(super) fn pop(&mut self, until: u64) -> Option<(u64, u32)> {
        while self.now.is_empty() && self.occupied != 0 {
            let bit = self.occupied.trailing_zeros();
            let start = ((self.base >> bit) | 1) << bit;
            if start > until {
                break;
            }
            self.base = start;
            self.occupied &= self.occupied - 1;
            let mut bucket = std::mem::take(&mut self.buckets[bit as usize]);
            for (due, who) in bucket.drain(..) {
                self.put(due, who);
            }
            self.buckets[bit as usize] = bucket;
        }
        if self.now.is_empty() {
            self.base = self.base.max(until);
        } else if self.base <= until {
            self.len -= 1;
            return self.now.pop().map(|who| (self.base, who));
        }
        None
    }

    /// Takes all alarms, in no order, and moves the base.
    pub(super) fn drain(&mut self, base: u64, mut take: impl FnMut(u64, u32)) {
        for who in self.now.drain(..) {
            take(self.base, who);
        }
        for (due, who) in self.buckets.iter_mut().flat_map(|bucket| bucket.drain(..)) {
            take(due, who);
        }
        self.occupied = 0;
        self.len = 0;
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    #[test]
    fn alarms_go_off_when_they_are_due() {
        let mut heap = RadixHeap::default();
        let due = |who: u32| 1 + (mix(u64::from(who)) >> (who % 63));
        for who in 0..5000 {
            heap.push(due(who), who);
        }
        let mut wanted: Vec<_> = (0..5000).map(due).collect();
        wanted.sort_unstable();
        let (mut got, mut now) = (Vec::new(), 1);
        while heap.len() > 0 {
            while let Some((time, who)) = heap.pop(now) {
                assert!(time == due(who) && time <= now && heap.base() == time);
                got.push(time);
            }
            assert_eq!(heap.base(), now);
            now = now.saturating_mul(2);
        }
        assert_eq!(got, wanted);
    }

    #[test]
    fn a_drained_heap_starts_from_any_base() {
        let mut heap = RadixHeap::default();
        for round in 0..50 {
            let base = if round % 2 == 0 { 1000 - round } else { round };
            let mut left = 1000;
            for who in 0..1000 {
                heap.push(heap.base() + 1 + mix(u64::from(who)) % 100_000, who);
            }
            while left > 500 {
                assert!(heap.pop(u64::MAX).is_some());
                left -= 1;
            }
            heap.drain(base, |_, _| left -= 1);
            assert_eq!((left, heap.len(), heap.base()), (0, 0, base));
        }
    }
}
