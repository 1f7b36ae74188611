//! Arguments about the memory of a run: a count of bytes, or an arena and its policies.

use clap::{Args, ValueEnum};
use remat_core::{Alignment, Moves};
use std::num::NonZeroU32;

/// Arguments about the memory of a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct PoolOptions {
    /// Kind of budget: a count of bytes, which are alike wherever they lie, or one arena, in which room is free bytes
    /// side by side.
    #[arg(long, value_enum, default_value = "fungible")]
    pub(crate) pool: PoolKind,
    /// Number that addresses and sizes in the arena are multiples of: a power of two. torch has 64 on CPUs, 512 on
    /// GPUs.
    #[arg(long, value_name = "BYTES", value_parser = alignment, default_value = "64")]
    pub(crate) alignment: Alignment,
    /// Property by which the policies named coop divide the arena: small storages from the low end and large ones from
    /// the high end, or expensive ones and cheap ones (Coop section 3.4).
    #[arg(long, alias = "ends", value_enum, default_value = "size")]
    pub(crate) partition: PlacedBy,
    /// Modules of Coop to leave out of the policies named coop: the window (storages are evicted one by one, by DTR's
    /// score), the partitioning of the arena, writing in place (mutations write into copies).
    #[arg(long, value_enum, value_name = "MODULE", value_delimiter = ',')]
    pub(crate) without: Vec<Module>,
    /// The policies named coop may copy blocks out of the way where that costs less than evicting: so many bytes a
    /// second, as 10GB. The time is part of the overhead.
    #[arg(long, value_name = "BYTES", value_parser = moves)]
    pub(crate) moves: Option<Moves>,
}

/// A kind of budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolKind {
    /// A count of bytes.
    Fungible,
    /// Addresses.
    Arena,
}

/// The property that decides at which end of an arena a storage lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacedBy {
    /// Bytes.
    Size,
    /// Cost for the size.
    Cost,
}

/// A module of Coop that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Module {
    /// Sliding window (Coop section 3.3).
    Window,
    /// Cheap tensor partitioning (section 3.4).
    Partition,
    /// Recomputable in-place (section 3.5).
    InPlace,
}

/// A number of bytes that addresses are multiples of.
pub(super) fn alignment(text: &str) -> Result<Alignment, String> {
    let bytes = remat_trace::parse_bytes(text).map_err(|error| error.to_string())?;
    Alignment::new(bytes.0).map_err(|error| error.to_string())
}

fn moves(text: &str) -> Result<Moves, String> {
    let bytes = remat_trace::parse_bytes(text).map_err(|error| error.to_string())?;
    let rate = bytes.0 / 1_000_000;
    let rate = u32::try_from(rate).map_err(|_| {
        let most = u32::MAX;
        format!("copies take place at {most}MB a second or less, for example 10GB")
    })?;
    match NonZeroU32::new(rate) {
        Some(bytes_per_microsecond) => Ok(Moves::Copied {
            bytes_per_microsecond,
        }),
        None => Err("copies take place at 1MB a second or more, for example 10GB".into()),
    }
}
