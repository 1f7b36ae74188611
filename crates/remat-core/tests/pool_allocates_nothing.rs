//! In the steady state the pool takes no memory from the heap.

use remat_core::pool::{Fit, Pool, Side};

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
