//! Bytes as numbers on an axis.

use super::axis::{Axis, Scale};

const UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("bytes", 1),
];

/// What bytes are counted in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit(&'static str, u64);

impl Unit {
    /// The largest unit of which there is one, or bytes.
    pub(super) fn of(bytes: u64) -> Unit {
        let fits = UNITS.iter().find(|(_, unit)| bytes >= *unit);
        fits.map_or(Unit("bytes", 1), |&(name, unit)| Unit(name, unit))
    }

    /// So many bytes in this unit.
    pub(super) fn count(self, bytes: u64) -> f64 {
        bytes as f64 / self.1 as f64
    }

    /// An axis of memory around these bytes; logarithmic, as the smallest budgets are small parts of the largest.
    pub(super) fn axis(self, label: &str, bytes: impl IntoIterator<Item = u64>) -> Axis {
        let counts = bytes.into_iter().map(|bytes| self.count(bytes));
        Axis::around(&format!("{label} ({})", self.0), counts, Scale::Log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_largest_of_which_there_is_one() {
        assert_eq!(Unit::of(0), Unit("bytes", 1));
        assert_eq!(Unit::of(1023), Unit("bytes", 1));
        assert_eq!(Unit::of(1 << 20), Unit("MiB", 1 << 20));
        assert_eq!(Unit::of(u64::MAX), Unit("TiB", 1 << 40));
        assert_eq!(Unit::of(3 << 20).count(3 << 19), 1.5);
    }
}
