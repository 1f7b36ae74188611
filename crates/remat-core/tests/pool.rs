//! The memory pool against a model that is obvious: a list of taken ranges, searched from one end to the other.

use proptest::prelude::*;
use remat_core::pool::{Fit, Pool, PoolError, Side};
use std::collections::BTreeMap;

/// Taken blocks by address.
#[derive(Clone)]
struct Model {
    capacity: u64,
    alignment: u64,
    taken: BTreeMap<u64, u64>,
}

impl Model {
    fn rounded(&self, bytes: u64) -> Option<u64> {
        bytes.max(1).checked_next_multiple_of(self.alignment)
    }

    /// Free ranges: address, bytes.
    fn holes(&self) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut end = 0;
        let stop = (self.capacity, 0);
        for (address, bytes) in self.taken.iter().map(|(&a, &b)| (a, b)).chain([stop]) {
            if address > end {
                holes.push((end, address - end));
            }
            end = address + bytes;
        }
        holes
    }

    fn allocate(&mut self, bytes: u64, fit: Fit, side: Side) -> Option<u64> {
        let bytes = self.rounded(bytes)?;
        let mut holes = self.holes();
        holes.retain(|hole| hole.1 >= bytes);
        if side == Side::High {
            holes.reverse();
        }
        let &(address, size) = match fit {
            Fit::First => holes.first()?,
            Fit::Best => holes.iter().min_by_key(|hole| hole.1)?,
        };
        let address = if side == Side::High {
            address + size - bytes
        } else {
            address
        };
        self.taken.insert(address, bytes);
        Some(address)
    }

    fn allocate_at(&mut self, address: u64, bytes: u64) -> bool {
        let Some(bytes) = self
            .rounded(bytes)
            .filter(|_| address % self.alignment == 0)
        else {
            return false;
        };
        let fits = |hole: &(u64, u64)| {
            hole.0 <= address && address - hole.0 <= hole.1 && bytes <= hole.1 - (address - hole.0)
        };
        let found = self.holes().iter().any(fits);
        if found {
            self.taken.insert(address, bytes);
        }
        found
    }

    fn blocks(&self) -> Vec<(u64, u64, bool)> {
        let holes = self.holes().into_iter().map(|(a, b)| (a, b, false));
        let taken = self.taken.iter().map(|(&a, &b)| (a, b, true));
        let mut all: Vec<_> = holes.chain(taken).collect();
        all.sort_unstable();
        all
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Allocate(u64, Fit, Side),
    AllocateAt(u64, u64),
    /// One of the taken blocks.
    Free(usize),
    /// Whatever lies there.
    FreeAt(u64),
    /// Moves the end.
    Resize(u64),
}

fn actions() -> impl Strategy<Value = (u64, u64, Vec<Action>)> {
    (0u32..4, 1u64..64).prop_flat_map(|(shift, units)| {
        let alignment = 1u64 << (2 * shift);
        let capacity = alignment * units + (units * 7) % alignment;
        let bytes = prop_oneof![4 => 0..capacity / 3 + 2, 1 => Just(1 << 63), 1 => Just(u64::MAX)];
        let fit = prop_oneof![Just(Fit::First), Just(Fit::Best)];
        let side = prop_oneof![Just(Side::Low), Just(Side::High)];
        let action = prop_oneof![
            6 => (bytes.clone(), fit, side).prop_map(|(bytes, fit, side)| Action::Allocate(bytes, fit, side)),
            1 => (0..units, bytes).prop_map(move |(unit, bytes)| Action::AllocateAt(unit * alignment, bytes)),
            1 => (0..capacity + 9, 0..9u64).prop_map(|(address, bytes)| Action::AllocateAt(address, bytes)),
            5 => any::<usize>().prop_map(Action::Free),
            1 => (0..capacity + 9).prop_map(Action::FreeAt),
            1 => (0..2 * capacity).prop_map(Action::Resize),
        ];
        (Just(capacity), Just(alignment), prop::collection::vec(action, 0..200))
    })
}

fn act(pool: &mut Pool, model: &mut Model, action: Action) {
    match action {
        Action::Allocate(bytes, fit, end) => {
            assert_eq!(
                pool.allocate(bytes, fit, end),
                model.allocate(bytes, fit, end)
            );
        }
        Action::AllocateAt(address, bytes) => {
            let done = pool.allocate_at(address, bytes);
            assert_eq!(done.is_ok(), model.allocate_at(address, bytes), "{done:?}");
        }
        Action::Free(which) if !model.taken.is_empty() => {
            let (&address, &bytes) = model
                .taken
                .iter()
                .nth(which % model.taken.len())
                .expect("a block");
            model.taken.remove(&address);
            assert_eq!(pool.free(address), Ok(bytes));
            assert_eq!(pool.free(address), Err(PoolError::Free { address }));
        }
        Action::Free(_) => {}
        Action::Resize(end) => {
            let end = end / model.alignment * model.alignment;
            let top = model
                .taken
                .iter()
                .last()
                .map_or(0, |(address, bytes)| address + bytes);
            assert_eq!(pool.set_capacity(end).is_ok(), top <= end);
            if top <= end {
                model.capacity = end;
            }
        }
        Action::FreeAt(address) => {
            assert_eq!(pool.free(address).ok(), model.taken.remove(&address));
        }
    }
}

fn compare(pool: &Pool, model: &Model) {
    assert_eq!(pool.check(), Ok(()));
    assert_eq!(pool.blocks().collect::<Vec<_>>(), model.blocks());
    let holes = model.holes();
    assert_eq!(
        pool.free_bytes(),
        holes.iter().map(|hole| hole.1).sum::<u64>()
    );
    assert_eq!(
        pool.largest_free(),
        holes.iter().map(|hole| hole.1).max().unwrap_or(0)
    );
    for (&address, &bytes) in &model.taken {
        let ends_here = holes.iter().find(|hole| hole.0 + hole.1 == address);
        let begins_here = holes.iter().find(|hole| hole.0 == address + bytes);
        let beside = [ends_here, begins_here].map(|hole| hole.map_or(0, |hole| hole.1));
        assert_eq!(pool.neighbours(address), Some((beside[0], beside[1])));
        assert_eq!(pool.size_of(address), Some(bytes));
    }
}

fn both(capacity: u64, alignment: u64) -> (Pool, Model) {
    let pool = Pool::new(capacity, alignment).expect("a pool");
    let model = Model {
        capacity: pool.capacity(),
        alignment,
        taken: BTreeMap::new(),
    };
    (pool, model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 6 / 5, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_does_as_the_model((capacity, alignment, actions) in actions()) {
        let (mut pool, mut model) = both(capacity, alignment);
        let mut most = 0;
        for action in actions {
            act(&mut pool, &mut model, action);
            compare(&pool, &model);
            most = most.max(pool.capacity() - pool.free_bytes());
            assert_eq!(pool.high_water(), most);
        }
    }

    /// A journal's undo: what was taken is freed and what was freed is taken again, newest first.
    #[test]
    fn undone_changes_leave_no_trace((capacity, alignment, actions) in actions(), from in 0usize..200) {
        let (mut pool, mut model) = both(capacity, alignment);
        let (before, after) = actions.split_at(from.min(actions.len()));
        before.iter().for_each(|&action| act(&mut pool, &mut model, action));
        let untouched = (pool.clone(), model.clone());
        let mut undo = Vec::new();
        let moves = |action: &&Action| !matches!(action, Action::Resize(_));
        let after: Vec<Action> = after.iter().filter(moves).copied().collect();
        for &action in &after {
            let was = model.taken.clone();
            act(&mut pool, &mut model, action);
            undo.push((was, model.taken.clone()));
        }
        for (was, is) in undo.into_iter().rev() {
            let gone = is.iter().find(|(address, _)| !was.contains_key(address));
            let back = was.iter().find(|(address, _)| !is.contains_key(address));
            if let Some((&address, &bytes)) = gone {
                assert_eq!(pool.free(address), Ok(bytes));
            }
            if let Some((&address, &bytes)) = back {
                assert_eq!(pool.allocate_at(address, bytes), Ok(()));
            }
        }
        compare(&pool, &untouched.1);
        // And it decides as the one that was left alone.
        let (mut other, mut model) = untouched;
        for &action in &after {
            act(&mut other, &mut model.clone(), action);
            act(&mut pool, &mut model, action);
        }
    }
}

#[test]
fn absurd_arenas_are_refused_in_one_line() {
    for (capacity, alignment) in [
        (64, 0),
        (64, 3),
        (64, 48),
        (0, 64),
        (63, 64),
        (1 << 63, 64),
        (u64::MAX, 1),
        (8, 1 << 63),
    ] {
        let error = Pool::new(capacity, alignment).expect_err("no pool");
        let text = error.to_string();
        assert!(!text.contains('\n') && text.len() > 20, "{text}");
        let named = match error {
            PoolError::Alignment { .. } => alignment,
            _ => capacity,
        };
        assert!(
            text.contains(&named.to_string()),
            "{text} does not name {named}"
        );
    }
    let whole = Pool::new(i64::MAX as u64, 1).expect("the largest");
    assert_eq!(whole.largest_free(), i64::MAX as u64);
}

#[test]
fn each_wrong_free_is_named() {
    let mut pool = Pool::new(1024, 64).expect("a pool");
    assert_eq!(pool.allocate(256, Fit::First, Side::Low), Some(0));
    assert_eq!(
        pool.free(64),
        Err(PoolError::Inside {
            address: 64,
            block: 0
        })
    );
    assert_eq!(pool.free(512), Err(PoolError::Free { address: 512 }));
    assert_eq!(
        pool.free(4096),
        Err(PoolError::Outside {
            address: 4096,
            capacity: 1024
        })
    );
    assert_eq!(
        pool.allocate_at(100, 64),
        Err(PoolError::Misaligned {
            address: 100,
            alignment: 64
        })
    );
    assert_eq!(
        pool.allocate_at(192, 128),
        Err(PoolError::Taken {
            address: 192,
            bytes: 128
        })
    );
    for address in [64u64, 512, 4096] {
        let text = pool.free(address).expect_err("wrong").to_string();
        assert!(text.contains(&format!("{address:#x}")), "{text}");
    }
    assert_eq!(pool.free(0), Ok(256));
    assert_eq!(pool.check(), Ok(()));
}
