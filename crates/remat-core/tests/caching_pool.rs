//! The pool of a caching allocator against a model that marks every page: what has memory, and what was given back.

use proptest::prelude::*;
use remat_core::pool::{CachingPool, PoolError};
use std::collections::BTreeMap;

const PAGE: u64 = 64;
const ALIGNMENT: u64 = 16;

#[derive(Clone, Copy, Debug)]
enum Action {
    Allocate(u64),
    /// One of the taken blocks.
    Free(usize),
    Trim,
    Limit(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        8 => prop_oneof![0..40u64, 0..40 * PAGE].prop_map(Action::Allocate),
        7 => any::<usize>().prop_map(Action::Free),
        1 => Just(Action::Trim),
        1 => (0..60 * PAGE).prop_map(Action::Limit),
    ];
    prop::collection::vec(action, 0..200)
}

/// Pages with memory, and taken blocks by address.
struct Model {
    held: Vec<bool>,
    taken: BTreeMap<u64, u64>,
}

impl Model {
    fn pages(address: u64, bytes: u64) -> std::ops::Range<usize> {
        (address / PAGE) as usize..(address + bytes).div_ceil(PAGE) as usize
    }

    fn covered(&self, page: usize) -> bool {
        let mut blocks = self.taken.iter();
        blocks.any(|(&address, &bytes)| Model::pages(address, bytes).contains(&page))
    }

    /// Gives pages back, which have to be held and free.
    fn give_back(&mut self, address: u64, bytes: u64) {
        assert!(bytes > 0 && address % PAGE == 0 && bytes % PAGE == 0);
        for page in Model::pages(address, bytes) {
            assert!(self.held[page] && !self.covered(page), "page {page}");
            self.held[page] = false;
        }
    }

    fn bytes(&self) -> u64 {
        self.held.iter().filter(|&&held| held).count() as u64 * PAGE
    }

    fn bytes_of_covered(&self) -> u64 {
        (0..self.held.len())
            .filter(|&page| self.covered(page))
            .count() as u64
            * PAGE
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn free_pages_keep_memory_within_the_limit_alone(pages in 1..100u64, actions in actions()) {
        let mut pool = CachingPool::new(pages * PAGE, ALIGNMENT, PAGE).expect("a pool");
        let mut model = Model { held: vec![false; pages as usize], taken: BTreeMap::new() };
        let mut limit = 30 * PAGE;
        for action in actions {
            let mut returned = Vec::new();
            let mut note = |address, bytes| returned.push((address, bytes));
            let mut within = !matches!(action, Action::Limit(_));
            match action {
                Action::Allocate(bytes) => {
                    let found = pool.allocate(bytes, limit, &mut note);
                    let rounded = bytes.max(1).next_multiple_of(ALIGNMENT);
                    if let Some(address) = found {
                        prop_assert_eq!(address % ALIGNMENT, 0);
                        model.taken.insert(address, rounded);
                        model.held[Model::pages(address, rounded)].fill(true);
                    } else {
                        prop_assert!(returned.is_empty());
                        within = false;
                        let mut end = 0;
                        let blocks = model.taken.iter().map(|(&a, &b)| (a, b));
                        for (address, taken) in blocks.chain([(pages * PAGE, 0)]) {
                            prop_assert!(address - end < rounded, "{rounded} bytes fit at {end}");
                            end = address + taken;
                        }
                    }
                }
                Action::Free(which) => {
                    let Some((&address, &bytes)) = model.taken.iter().nth(which % model.taken.len().max(1)) else {
                        continue;
                    };
                    model.taken.remove(&address);
                    prop_assert_eq!(pool.free(address, limit, &mut note), Ok(bytes));
                    let again = pool.free(address, limit, &mut |_, _| unreachable!());
                    prop_assert_eq!(again, Err(PoolError::Free { address }));
                }
                Action::Trim => pool.trim(limit, &mut note),
                Action::Limit(bytes) => limit = bytes,
            }
            let gave_back = !returned.is_empty();
            returned.into_iter().for_each(|(address, bytes)| model.give_back(address, bytes));
            prop_assert_eq!(pool.check(), Ok(()));
            prop_assert_eq!(pool.held(), model.bytes());
            prop_assert_eq!(pool.taken(), model.taken.values().sum::<u64>());
            let least = model.bytes_of_covered().max(limit / PAGE * PAGE);
            if within {
                prop_assert!(pool.held() <= least);
            }
            if gave_back {
                // No more than has to be.
                prop_assert_eq!(pool.held(), least);
            }
        }
        pool.trim(0, &mut |address, bytes| model.give_back(address, bytes));
        prop_assert_eq!(pool.held(), model.bytes_of_covered());
    }
}

#[test]
fn a_block_takes_pages_that_have_memory() {
    let mut pool = CachingPool::new(1 << 20, ALIGNMENT, PAGE).expect("a pool");
    let nothing = &mut |_, _| unreachable!("nothing is given back");
    let blocks: Vec<u64> = (0..5)
        .map(|_| pool.allocate(4 * PAGE, u64::MAX, nothing).expect("a block"))
        .collect();
    assert_eq!(blocks, [0, 256, 512, 768, 1024]);
    // Two holes of four pages each, of which the lower one loses its memory.
    pool.free(blocks[1], u64::MAX, nothing).expect("taken");
    pool.trim(16 * PAGE, &mut |address, bytes| {
        assert_eq!((address, bytes), (256, 256))
    });
    pool.free(blocks[3], u64::MAX, nothing).expect("taken");
    assert_eq!(pool.allocate(3 * PAGE, u64::MAX, nothing), Some(blocks[3]));
    assert_eq!(pool.held(), 16 * PAGE);
}

#[test]
fn absurd_sizes_are_refused() {
    assert!(CachingPool::new(1 << 20, 64, 63).is_err());
    assert!(CachingPool::new(1 << 20, 64, 32).is_err());
    assert!(CachingPool::new(63, 64, 64).is_err());
    let mut pool = CachingPool::new(1 << 20, 64, 4096).expect("a pool");
    for bytes in [(1 << 20) + 1, 1 << 63, u64::MAX] {
        assert_eq!(pool.allocate(bytes, 0, &mut |_, _| unreachable!()), None);
    }
    assert_eq!(pool.held(), 0);
    let whole = pool.allocate(1 << 20, 0, &mut |_, _| unreachable!());
    assert_eq!((whole, pool.held()), (Some(0), 1 << 20)); // what is taken has memory, whatever the limit
}
