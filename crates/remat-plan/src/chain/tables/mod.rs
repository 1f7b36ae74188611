//! Tables of the dynamic programs by slots, by exact bytes and of the least memory, and the plans read off them.

pub(crate) mod bounds;
pub(crate) mod candidate_splits;
pub(crate) mod exact;
pub(crate) mod optimum;
pub(crate) mod slots;
pub(crate) mod smallest;
pub(crate) mod table;
