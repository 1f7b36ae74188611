//! A pool over more addresses than there may be memory: what a caching allocator keeps, and what it gives back.

use super::{NIL, Pool, PoolError};

/// A pool whose pages take memory from when a block first covers them until they are given back. Freed blocks keep
/// theirs for the next ones, as far as all pages together stay within a limit. So no block needs to be moved for the
/// memory to stay within the limit: where free pages lie too far apart for a block, it gets other addresses, and free
/// pages elsewhere are given back.
///
/// A block lies where the fewest of its pages lack memory, at either end of one of the 32 smallest free blocks that
/// hold it; of equals in the smallest one. Pages are given back in a round through the free blocks by address, which
/// goes on where the last one ended.
///
/// Taking a block takes O(log n) among n blocks for each place that is looked at, and a 64th of a step for each of its
/// pages there. Freeing one takes O(log n). Where pages have to be given back, blocks without any are passed too
/// (`cargo run --release -p remat-core --example caching_pool`).
///
/// ```
/// use remat_core::pool::CachingPool;
///
/// let mut pool = CachingPool::new(1 << 30, 64, 4096)?;
/// let mut given_back = Vec::new();
/// let mut note = |address, bytes| given_back.push((address, bytes));
/// let first = pool.allocate(40_000, 65_536, &mut note);
/// assert_eq!((first, pool.held()), (Some(0), 40_960));
/// pool.free(0, 65_536, &mut note)?;
/// assert_eq!(pool.held(), 40_960); // kept for the next block
/// pool.allocate(65_536, 65_536, &mut note);
/// assert_eq!(pool.held(), 65_536);
/// pool.free(0, 8192, &mut note)?; // the limit has fallen meanwhile
/// assert_eq!(given_back, [(8192, 57_344)]);
/// # Ok::<(), remat_core::pool::PoolError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CachingPool {
    pool: Pool,
    /// Bytes of a page, as a power of two.
    shift: u32,
    /// A bit for each page that takes memory, up to the highest that ever did.
    pages: Vec<u64>,
    held: u64,
    /// The address from which on pages are given back next.
    hand: u64,
}

/// Free blocks in which a place is looked for.
const CANDIDATES: usize = 32;

impl CachingPool {
    /// A pool without blocks over the addresses `0 .. capacity`, none of which takes memory yet. Blocks begin at
    /// multiples of `alignment`. A page has `page` bytes.
    ///
    /// # Errors
    /// As [`Pool::new`], and [`PoolError::Alignment`] unless `page` is a power of two and no less than `alignment`.
    pub fn new(capacity: u64, alignment: u64, page: u64) -> Result<CachingPool, PoolError> {
        if !page.is_power_of_two() || page < alignment {
            return Err(PoolError::Alignment { alignment: page });
        }
        Ok(CachingPool {
            pool: Pool::new(capacity & !(page - 1), alignment)?,
            shift: page.trailing_zeros(),
            pages: Vec::new(),
            held: 0,
            hand: 0,
        })
    }

    /// Takes a block of so many bytes, and gives its address; `None` if no free block is large enough. If pages take
    /// more than `limit` bytes of memory then, `give_back` is told the address and bytes of free pages beyond it: their
    /// contents are lost.
    pub fn allocate(
        &mut self,
        bytes: u64,
        limit: u64,
        give_back: &mut impl FnMut(u64, u64),
    ) -> Option<u64> {
        let bytes = self.pool.rounded(bytes)?;
        let address = self.place(bytes)?;
        let taken = self.pool.allocate_at(address, bytes);
        debug_assert_eq!(taken, Ok(()), "a place in a free block");
        self.hold(address, address + bytes);
        self.trim(limit, give_back);
        Some(address)
    }

    /// Gives the block at an address back; returns its bytes. Its pages are kept within the limit, as by
    /// [`allocate`](Self::allocate).
    ///
    /// # Errors
    /// As [`Pool::free`].
    pub fn free(
        &mut self,
        address: u64,
        limit: u64,
        give_back: &mut impl FnMut(u64, u64),
    ) -> Result<u64, PoolError> {
        let bytes = self.pool.free(address)?;
        self.trim(limit, give_back);
        Ok(bytes)
    }

    /// Gives free pages back until no more than `limit` bytes take memory, or no page is free.
    pub fn trim(&mut self, limit: u64, give_back: &mut impl FnMut(u64, u64)) {
        let mut excess = self.held.saturating_sub(limit >> self.shift);
        if excess == 0 {
            return;
        }
        let first = self.pool.slot_around(self.hand).unwrap_or(self.pool.lowest);
        let mut slot = first;
        while excess > 0 {
            let block = *self.pool.block(slot);
            if !block.taken {
                let pages = block.address.next_multiple_of(1 << self.shift) >> self.shift;
                let end = (block.address + block.bytes) >> self.shift;
                excess -= self.give_back(pages, end, excess, give_back);
            }
            self.hand = block.address + block.bytes;
            slot = match block.above {
                NIL => self.pool.lowest,
                above => above,
            };
            if slot == first {
                return;
            }
        }
    }

    /// Bytes of the pages that take memory.
    pub fn held(&self) -> u64 {
        self.held << self.shift
    }

    /// Bytes of the blocks that are taken.
    pub fn taken(&self) -> u64 {
        self.pool.capacity() - self.pool.free_bytes()
    }

    /// Whether all that the pool relies on holds: what [`Pool::check`] checks, every page of a taken block is held, and
    /// the count of pages is right. Takes O(n log n), and a step for each page.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.pool.check()?;
        let held: u64 = self
            .pages
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum();
        if held != self.held {
            return Err(format!("{held} pages are held, counted are {}", self.held));
        }
        for (address, bytes, taken) in self.pool.blocks() {
            let pages = address >> self.shift..(address + bytes).div_ceil(1 << self.shift);
            if let Some(lost) = pages.into_iter().find(|&page| taken && !self.is_held(page)) {
                return Err(format!(
                    "page {lost} of the block at {address:#x} is not held"
                ));
            }
        }
        Ok(())
    }

    /// Where a block of so many bytes, in whole units of the alignment, lacks the fewest pages.
    fn place(&self, bytes: u64) -> Option<u64> {
        let mut best = None;
        let mut next = self.pool.by_size.ceiling((bytes, 0));
        for _ in 0..CANDIDATES {
            let Some(slot) = next else { break };
            if self.better(slot, bytes, &mut best) {
                break;
            }
            let (size, address) = self.pool.by_size.key(slot);
            next = self.pool.by_size.ceiling((size, address + 1));
        }
        // The largest one holds the addresses that were never used.
        let largest = next.and_then(|_| self.pool.by_size.floor((u64::MAX, u64::MAX)));
        largest.map(|slot| self.better(slot, bytes, &mut best));
        best.map(|(_, address)| address)
    }

    /// Compares the places at the ends of a free block with the best one so far, pages that it lacks and address;
    /// whether none can be better.
    fn better(&self, slot: u32, bytes: u64, best: &mut Option<(u64, u64)>) -> bool {
        let block = self.pool.block(slot);
        let high = block.address + block.bytes - bytes;
        // The end of all addresses is as good as any, and far away.
        let ends = if block.above == NIL { 1 } else { 2 };
        for address in [block.address, high].into_iter().take(ends) {
            let lacking = self.lacking(address, address + bytes);
            if best.is_none_or(|(least, _)| lacking < least) {
                *best = Some((lacking, address));
            }
            if lacking == 0 {
                return true;
            }
        }
        false
    }

    /// How many pages of these addresses take no memory.
    fn lacking(&self, from: u64, to: u64) -> u64 {
        let (first, end) = (from >> self.shift, to.div_ceil(1 << self.shift));
        let words = first / 64..=(end - 1) / 64;
        let known = |word: u64| self.pages.get(word as usize).copied().unwrap_or(0);
        let missing =
            |word: u64| u64::from((part_of(word, first, end) & !known(word)).count_ones());
        words.map(missing).sum()
    }

    /// Whether the page of a number takes memory.
    fn is_held(&self, page: u64) -> bool {
        let word = self.pages.get((page / 64) as usize);
        word.is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Marks the pages of these addresses.
    fn hold(&mut self, from: u64, to: u64) {
        let (first, end) = (from >> self.shift, to.div_ceil(1 << self.shift));
        let words = end.div_ceil(64) as usize;
        if self.pages.len() < words {
            self.pages.resize(words, 0);
        }
        for word in first / 64..=(end - 1) / 64 {
            let pages = part_of(word, first, end);
            let before = &mut self.pages[word as usize];
            self.held += u64::from((pages & !*before).count_ones());
            *before |= pages;
        }
    }

    /// Gives back the highest `most` held pages among those from `first` to `end`, the last one excluded; returns how
    /// many.
    fn give_back(
        &mut self,
        first: u64,
        end: u64,
        most: u64,
        told: &mut impl FnMut(u64, u64),
    ) -> u64 {
        let end = end.min(64 * self.pages.len() as u64);
        let (mut given, mut low, mut high) = (0, end, end);
        let mut word = end.div_ceil(64);
        while word * 64 > first && given < most {
            word -= 1;
            let mut pages = self.pages[word as usize] & part_of(word, first, end);
            while pages != 0 && given < most {
                let bit = 63 - pages.leading_zeros();
                let page = 64 * word + u64::from(bit);
                if page + 1 != low {
                    self.tell(low, high, told);
                    high = page + 1;
                }
                low = page;
                pages &= !(1 << bit);
                self.pages[word as usize] &= !(1 << bit);
                given += 1;
            }
        }
        self.tell(low, high, told);
        self.held -= given;
        given
    }

    fn tell(&self, low: u64, high: u64, told: &mut impl FnMut(u64, u64)) {
        if low < high {
            told(low << self.shift, (high - low) << self.shift);
        }
    }
}

/// The bits of a word that stand for pages from `first` to `end`, the last one excluded.
fn part_of(word: u64, first: u64, end: u64) -> u64 {
    let below = |page: u64| match page.saturating_sub(64 * word) {
        bits @ 0..64 => (1_u64 << bits) - 1,
        _ => u64::MAX,
    };
    below(end) & !below(first)
}
