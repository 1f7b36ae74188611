//! A list that names the same few things again and again without growing.

/// Appends a name. Before the list would grow, each name is kept once; order is lost then.
#[inline]
pub(crate) fn push_deduplicated<T: Ord>(list: &mut Vec<T>, name: T) {
    if list.len() == list.capacity() {
        list.sort_unstable();
        list.dedup();
        list.reserve(list.len() + 1);
    }
    list.push(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naming_the_same_again_and_again_takes_no_memory() {
        let mut list = Vec::new();
        (0..10_000).for_each(|turn| push_deduplicated(&mut list, turn % 3));
        assert!(list.capacity() < 16, "{}", list.capacity());
        list.sort_unstable();
        list.dedup();
        assert_eq!(list, [0, 1, 2]);
    }
}
