//! Sorting by the digits of a key. The crate that does so (`radsort`) allocates its buffer anew in each call, and a
//! move of the search for addresses sorts twice.

/// So many are sorted by digits; of fewer, comparing them is quicker.
const MANY: usize = 128;

/// The bits of a digit at most: the counts of its values stay in the nearest cache.
const DIGIT: u32 = 11;

/// Sorts by a key; what has the same key stays in order. Takes time linear in the length for each digit in which keys
/// can differ, and nothing is allocated once `spare` is as long as the list.
pub(super) fn radix_sort<T: Copy>(list: &mut Vec<T>, spare: &mut Vec<T>, key: impl Fn(&T) -> u64) {
    if list.len() < MANY {
        list.sort_by_key(key);
        return;
    }
    let used = list.iter().fold(0, |used, one| used | key(one));
    if used == 0 {
        return;
    }
    let (low, high) = (used.trailing_zeros(), 64 - used.leading_zeros());
    let digits = (high - low).div_ceil(DIGIT);
    let bits = (high - low).div_ceil(digits);
    let mut counts = [0usize; 1 << DIGIT];
    let counts = &mut counts[..1 << bits];
    for digit in 0..digits {
        let value = |one: &T| (key(one) >> (low + digit * bits)) as usize & ((1 << bits) - 1);
        counts.fill(0);
        for one in list.iter() {
            counts[value(one)] += 1;
        }
        let mut before = 0;
        for count in counts.iter_mut() {
            before += std::mem::replace(count, before);
        }
        spare.clear();
        spare.resize(list.len(), list[0]);
        for one in list.iter() {
            let place = &mut counts[value(one)];
            spare[*place] = *one;
            *place += 1;
        }
        std::mem::swap(list, spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_is_sorted_as_by_comparing(
            keys in prop::collection::vec(any::<u64>(), 0..600),
            shift in 0u32..64,
            zeros in 0u32..64,
        ) {
            let key = |&(key, _): &(u64, usize)| key >> shift << zeros;
            let mut list: Vec<(u64, usize)> = keys.into_iter().zip(0..).collect();
            let mut sorted = list.clone();
            sorted.sort_by_key(key);
            radix_sort(&mut list, &mut Vec::new(), key);
            prop_assert_eq!(list, sorted);
        }
    }
}
