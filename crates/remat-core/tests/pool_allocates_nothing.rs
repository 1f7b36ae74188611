//! In the steady state pools take no memory from the heap.

use remat_core::pool::{CachingPool, Fit, Pool, Side};

mod heap;

/// Takes 1000 blocks from both ends, frees every third, fills the holes, and frees all.
fn cycle(pool: &mut Pool, addresses: &mut Vec<u64>) {
    for index in 0..1000u64 {
        let side = if index % 2 == 0 {
            Side::Low
        } else {
            Side::High
        };
        addresses.extend(pool.allocate(64 + index * 37 % 4096, Fit::First, side));
    }
    for index in (0..addresses.len()).step_by(3) {
        pool.free(addresses[index]).expect("taken");
    }
    for index in (0..addresses.len()).step_by(3) {
        addresses[index] = pool.allocate(64, Fit::Best, Side::Low).expect("a hole");
    }
    for address in addresses.drain(..) {
        pool.free(address).expect("taken");
    }
}

#[test]
fn a_cycle_that_ran_before_allocates_nothing() {
    let mut pool = Pool::new(16 << 20, 64).expect("a pool");
    let mut addresses = Vec::new();
    let before = heap::allocations();
    cycle(&mut pool, &mut addresses);
    let first = heap::allocations();
    assert!(first > before, "the tables have to come from somewhere");
    for _ in 0..3 {
        cycle(&mut pool, &mut addresses);
    }
    assert_eq!(heap::allocations(), first);
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn a_caching_pool_gives_back_and_takes_again_without_the_heap() {
    let mut pool = CachingPool::new(1 << 40, 64, 4096).expect("a pool");
    let mut addresses = Vec::with_capacity(1000);
    let mut returned = 0;
    let mut cycle = || {
        let mut note = |_, bytes| returned += bytes;
        for index in 0..1000u64 {
            let bytes = 64 + index * 7919 % 65_536;
            addresses.push(pool.allocate(bytes, 16 << 20, &mut note).expect("a block"));
            if index % 3 == 2 {
                let address = addresses.swap_remove((index * 31) as usize % addresses.len());
                pool.free(address, 16 << 20, &mut note).expect("taken");
            }
        }
        for address in addresses.drain(..) {
            pool.free(address, 16 << 20, &mut note).expect("taken");
        }
    };
    cycle();
    let first = heap::allocations();
    (0..3).for_each(|_| cycle());
    assert_eq!(heap::allocations(), first);
    assert!(returned > 0);
}
