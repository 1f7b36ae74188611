//! Bytes by kind, from event to event.

use remat_core::DeviceId;

use super::blocks::{Block, BlockId, KINDS, MemoryKind};
use super::event::{Detail, Event};

/// Bytes of each kind at a moment, and the workspace of the op that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) kinds: [u64; KINDS.len()],
    pub(super) workspace: u64,
}

impl Level {
    /// All bytes.
    pub(super) fn total(&self) -> u64 {
        self.kinds.iter().sum::<u64>() + self.workspace
    }
}

/// A step in a few numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Bytes where they were most.
    pub(super) peak: Level,
    pub(super) ops: u64,
    pub(super) evictions: u64,
    pub(super) evicted_bytes: u64,
    pub(super) replays: u64,
    /// In ticks.
    pub(super) replayed: u64,
}

/// Sums a step up, for the memory of a device.
pub(super) fn sum(detail: &Detail, device: DeviceId) -> Sum {
    let blocks = &detail.blocks;
    let mut now = Level::default();
    let here = |block: &&Block| block.device == device;
    for block in blocks.iter().filter(here).filter(|block| block.there) {
        now.kinds[block.kind as usize] += block.bytes;
    }
    let mut outside = detail.outside;
    now.kinds[MemoryKind::Other as usize] += outside.max(0) as u64;
    let mut sum = Sum {
        peak: now,
        ..Sum::default()
    };
    let mut ran = 0;
    for event in &detail.events {
        // Results of the op that ran last came to be as it began.
        if event.at() != ran {
            now.workspace = 0;
        }
        match *event {
            Event::Op { at, workspace, .. } => {
                sum.ops += 1;
                (ran, now.workspace) = (at, workspace);
            }
            Event::Replay {
                at,
                workspace,
                took,
                ..
            } => {
                sum.replays += 1;
                sum.replayed += u64::from(took);
                (ran, now.workspace) = (at, workspace);
            }
            Event::Born { block, .. } | Event::Returned { block, .. } => {
                change(&mut now, blocks, block, device, u64::wrapping_add);
            }
            Event::Died { block, .. } => {
                change(&mut now, blocks, block, device, u64::wrapping_sub);
            }
            Event::Evicted { block, .. } => {
                sum.evictions += 1;
                sum.evicted_bytes += blocks[block as usize].bytes;
                change(&mut now, blocks, block, device, u64::wrapping_sub);
            }
            Event::Outside { bytes, .. } => {
                let kind = &mut now.kinds[MemoryKind::Other as usize];
                *kind -= outside.max(0) as u64;
                outside += bytes;
                *kind += outside.max(0) as u64;
            }
        }
        if now.total() > sum.peak.total() {
            sum.peak = now;
        }
    }
    sum
}

fn change(
    now: &mut Level,
    blocks: &[Block],
    block: BlockId,
    device: DeviceId,
    by: fn(u64, u64) -> u64,
) {
    let block = &blocks[block as usize];
    if block.device == device {
        let kind = &mut now.kinds[block.kind as usize];
        *kind = by(*kind, block.bytes);
    }
}
