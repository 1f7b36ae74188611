//! Selective recomputation is for steps with attention, and drops what the program still refers to.

use crate::arguments::Deallocation;
use crate::failure::Failure;
use crate::log::Log;
use remat_sim::Eviction;

/// Checks that a released tensor is evicted at once, if selective recomputation is asked for.
pub(crate) fn check(dealloc: Deallocation, policies: &[Eviction]) -> Result<(), Failure> {
    match dealloc {
        Deallocation::Eager => Ok(()),
        other if policies.contains(&Eviction::Selective) => Err(Failure::Usage(format!(
            "policy 'sar' evicts by letting go, for which --dealloc {} does nothing or too much; leave it at eager",
            other.name()
        ))),
        _ => Ok(()),
    }
}

/// Checks that every log has attention, if selective recomputation is asked for.
pub(crate) fn check_logs(logs: &[Log], policies: &[Eviction]) -> Result<(), Failure> {
    if policies.contains(&Eviction::Selective) {
        for log in logs {
            let checked = log.program.check_attention();
            checked.map_err(|none| Failure::Input(format!("{}: {none}", log.name)))?;
        }
    }
    Ok(())
}
