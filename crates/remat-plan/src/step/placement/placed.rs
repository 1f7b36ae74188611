//! Plans that are given addresses.

use super::block::Ties;
use super::blocks::{Blocks, blocks};
use super::packing::{Effort, pack};
use crate::step::plan::step_plan::StepPlan;
use crate::step::verify::fault::Fault;
use crate::step::verify::verifier::verify;
use remat_trace::Event;

/// Gives the blocks of a plan addresses at multiples of an alignment, a power of two, so that an arena of few bytes
/// holds them. No arena of fewer bytes than the plan's peak does; one of exactly so many mostly does.
///
/// Offline, each block's lifetime is known, and nothing has to move. The plan's own seed is used.
///
/// ```
/// use remat_core::Bytes;
/// use remat_plan::step::{place, verify, Planner, Search, Step};
/// use remat_trace::{Event, TraceOutput, TraceOutputKind};
/// use std::ops::ControlFlow;
///
/// let op = |inputs: &[u64], tensor, bytes| Event::Op {
///     name: "op".into(),
///     inputs: inputs.to_vec(),
///     outputs: vec![TraceOutput { tensor, kind: TraceOutputKind::Fresh { bytes, device: 0 } }],
///     workspace: 0, workspace_device: 0, cost: 1, replay: true,
/// };
/// let events = [
///     Event::Constant { tensor: 0, bytes: 64, device: 0 },
///     op(&[0], 1, 128),
///     op(&[1], 2, 256),
///     Event::Release { tensor: 1 },
///     op(&[2], 3, 128),
/// ];
/// let step = Step::from_events(&events)?;
/// let plan = Planner::new(&step).plan(Bytes(512), &Search::default(), &mut |_| ControlFlow::Continue(()))?;
/// let plan = place(&events, plan, 64)?;
/// let addresses = plan.addresses.as_ref().expect("just placed");
/// assert_eq!((addresses.bytes, addresses.offsets.len()), (plan.peak_bytes, 4));
/// assert!(verify(&events, &plan).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A [`Fault`] of the plan, which needs to be valid; [`Fault::Alignment`] for an alignment that is no power of two;
/// [`Fault::TooLarge`] for more than 2^62 bytes.
pub fn place(events: &[Event], plan: StepPlan, alignment: u64) -> Result<StepPlan, Fault> {
    if !alignment.is_power_of_two() {
        return Err(Fault::Alignment(alignment));
    }
    let plan = StepPlan {
        addresses: None,
        ..plan
    };
    verify(events, &plan)?;
    let Blocks { blocks, .. } = blocks(events, &plan.steps, 1);
    let largest = |bytes: u64| u128::from(bytes) + u128::from(alignment);
    if blocks
        .iter()
        .map(|block| largest(block.bytes))
        .sum::<u128>()
        > 1 << 62
    {
        return Err(Fault::TooLarge);
    }
    Ok(StepPlan {
        addresses: Some(pack(
            &blocks,
            &Ties::none(&blocks),
            alignment,
            plan.seed,
            Effort::default(),
        )),
        ..plan
    })
}
