//! Dense identifiers and units. All are plain integers with a type of their own, so that a byte count
//! cannot be passed where a cost is meant.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position of this id in flat vectors.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// A tensor: a view of a storage, made by one op. Dense; reused after [`Lineage::Collect`](crate::Lineage) frees
    /// it.
    TensorId
);
id!(
    /// A storage: one buffer, the unit of eviction.
    StorageId
);
id!(
    /// An op that was run once and can be replayed.
    OpId
);

/// A device's memory. Each device has its own budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u8);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A compute cost, in nanoseconds (or any other integer unit of time, used consistently).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub u64);

impl Bytes {
    /// Of a budget, the bytes up to which memory counts as plentiful: three fifths.
    ///
    /// ```
    /// use remat_core::Bytes;
    ///
    /// assert_eq!(Bytes(500).plentiful(), Bytes(300));
    /// ```
    pub const fn plentiful(self) -> Bytes {
        Bytes(self.0 / 5 * 3)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] = [
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ];
        for (unit, size) in UNITS {
            if self.0 >= size {
                return write!(f, "{:.2} {unit}", self.0 as f64 / size as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}
