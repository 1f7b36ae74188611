//! A timing wheel (Varghese, Lauck 1987): alarms in buckets by the digits of their times. An alarm moves down a level each time
//! the base reaches its bucket: at most 11 times, from where it began mostly two or three, and always along with its neighbours.

/// Bits of a digit.
const BITS: u32 = 6;
const DIGITS: usize = 1 << BITS;
const LEVELS: usize = 64_usize.div_ceil(BITS as usize);

/// Alarms in a chunk.
const CHUNK: usize = 20;

/// No chunk.
const NONE: u32 = u32::MAX;

/// Alarms of a bucket; every chunk but its first is full.
#[derive(Clone, Copy)]
struct Chunk {
    due: [u64; CHUNK],
    who: [u32; CHUNK],
    len: u32,
    next: u32,
}

/// Alarms, all due after the base, or at it while they are being taken.
pub(crate) struct Wheel {
    base: u64,
    len: usize,
    /// The first chunk of each bucket.
    heads: Vec<u32>,
    chunks: Vec<Chunk>,
    /// The first chunk in no bucket.
    free: u32,
    /// For each level, a bit for each bucket that holds any.
    occupied: [u64; LEVELS],
    /// A bit for each level with such a bucket.
    levels: u32,
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel {
            base: 0,
            len: 0,
            heads: vec![NONE; LEVELS * DIGITS],
            chunks: Vec::new(),
            free: NONE,
            occupied: [0; LEVELS],
            levels: 0,
        }
    }
}

impl Wheel {
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets an alarm that is due after the base.
    pub(crate) fn insert(&mut self, who: u32, due: u64) {
        self.len += 1;
        self.put(who, due);
    }

    fn put(&mut self, who: u32, due: u64) {
        let apart = due ^ self.base;
        let level = (63 - (apart | 1).leading_zeros()) / BITS;
        let digit = (due >> (level * BITS)) as usize % DIGITS;
        let head = &mut self.heads[level as usize * DIGITS + digit];
        if *head == NONE || self.chunks[*head as usize].len as usize == CHUNK {
            let empty = Chunk {
                due: [0; CHUNK],
                who: [0; CHUNK],
                len: 0,
                next: *head,
            };
            if self.free == NONE {
                *head = self.chunks.len() as u32;
                self.chunks.push(empty);
            } else {
                *head = self.free;
                let chunk = &mut self.chunks[self.free as usize];
                self.free = chunk.next;
                chunk.len = 0;
                chunk.next = empty.next;
            }
            self.occupied[level as usize] |= 1 << digit;
            self.levels |= 1 << level;
        }
        let chunk = &mut self.chunks[*head as usize];
        let place = chunk.len as usize;
        chunk.due[place] = due;
        chunk.who[place] = who;
        chunk.len += 1;
    }

    /// Takes one of the earliest alarms, if due until then, and moves the base to its time; else to `until`, if that is later.
    pub(crate) fn pop(&mut self, until: u64) -> Option<(u32, u64)> {
        while self.levels != 0 {
            let level = self.levels.trailing_zeros();
            let digit = self.occupied[level as usize].trailing_zeros();
            let shift = level * BITS;
            let start = ((self.base >> shift) & !(DIGITS as u64 - 1) | u64::from(digit)) << shift;
            if start > until {
                break;
            }
            self.base = start;
            let bucket = level as usize * DIGITS + digit as usize;
            if level == 0 {
                return Some(self.take(bucket));
            }
            self.each(bucket, |wheel, who, due| wheel.put(who, due));
        }
        self.base = self.base.max(until);
        None
    }

    /// Takes an alarm from a bucket.
    fn take(&mut self, bucket: usize) -> (u32, u64) {
        self.len -= 1;
        let head = self.heads[bucket];
        let chunk = &mut self.chunks[head as usize];
        chunk.len -= 1;
        let place = chunk.len as usize;
        let alarm = (chunk.who[place], chunk.due[place]);
        if place == 0 {
            self.heads[bucket] = chunk.next;
            chunk.next = self.free;
            self.free = head;
            if self.heads[bucket] == NONE {
                self.empty(bucket);
            }
        }
        alarm
    }

    fn empty(&mut self, bucket: usize) {
        let level = bucket / DIGITS;
        self.heads[bucket] = NONE;
        self.occupied[level] &= !(1 << (bucket % DIGITS));
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Empties a bucket.
    fn each(&mut self, bucket: usize, mut tell: impl FnMut(&mut Wheel, u32, u64)) {
        let mut head = self.heads[bucket];
        self.empty(bucket);
        while head != NONE {
            let index = head as usize;
            for place in 0..self.chunks[index].len as usize {
                let chunk = &self.chunks[index];
                let (who, due) = (chunk.who[place], chunk.due[place]);
                tell(self, who, due);
            }
            let next = std::mem::replace(&mut self.chunks[index].next, self.free);
            self.free = std::mem::replace(&mut head, next);
        }
    }

    /// Takes all alarms and starts over from a base.
    pub(crate) fn drain(&mut self, base: u64, mut tell: impl FnMut(u32, u64)) {
        while self.levels != 0 {
            let level = self.levels.trailing_zeros() as usize;
            let bucket = level * DIGITS + self.occupied[level].trailing_zeros() as usize;
            self.each(bucket, |_, who, due| tell(who, due));
        }
        self.base = base;
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    #[test]
    fn alarms_go_off_when_they_are_due() {
        let mut wheel = Wheel::default();
        let due = |who: u32| 1 + (mix(u64::from(who)) >> (who % 63));
        for who in 0..5000 {
            wheel.insert(who, due(who));
        }
        let mut wanted: Vec<_> = (0..5000).map(due).collect();
        wanted.sort_unstable();
        let (mut got, mut now) = (Vec::new(), 1);
        while wheel.len() > 0 {
            while let Some((who, time)) = wheel.pop(now) {
                assert!(time == due(who) && time <= now && wheel.base() == time);
                got.push(time);
            }
            assert_eq!(wheel.base(), now);
            now = now.saturating_mul(2);
        }
        assert_eq!(got, wanted);
    }

    #[test]
    fn chunks_are_used_again() {
        let mut wheel = Wheel::default();
        for round in 0..50 {
            let base = wheel.base();
            for who in 0..1000 {
                wheel.insert(who, base + 1 + mix(u64::from(who + round)) % 100_000);
            }
            let mut left = 1000;
            if round % 2 == 0 {
                wheel.drain(base + 100_000, |_, _| left -= 1);
            }
            while wheel.pop(base + 100_000).is_some() {
                left -= 1;
            }
            assert_eq!(left, 0);
        }
        assert!(wheel.chunks.len() < 1000, "{}", wheel.chunks.len());
    }
}
