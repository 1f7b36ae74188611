//! A run as a line of JSON.

use super::bounds::Bounds;
use super::case::Case;
use crate::log::Log;
use crate::memory;
use remat_core::Memory;
use remat_sim::{Budget, Outcome};

/// The line, its end included.
pub(super) fn line(
    log: &Log,
    case: &Case<'_>,
    outcome: &Outcome,
    bounds: Option<&Bounds>,
) -> String {
    let (base, counters) = (&log.base, &outcome.counters);
    let setting = &case.setting;
    let ratio = match setting.budget {
        Budget::Ratio(ratio) => Some(ratio),
        Budget::Bytes(_) => None,
    };
    let mut line = serde_json::json!({
        "log": log.name,
        "policy": case.policy,
        "dealloc": case.dealloc,
        "engine": setting.engine.name(),
        "ratio": ratio,
        "budget_bytes": outcome.budget.0,
        "status": outcome.status.to_string(),
        "base_memory": base.memory.0,
        "base_cost": base.cost.0,
        "const_bytes": base.constants.0,
        "bottleneck_bytes": base.bottleneck.0,
        "clock": outcome.clock,
        "remat_cost": counters.replayed_cost.0,
        "peak_bytes": outcome.peak.0,
        "overhead": outcome.overhead(base),
        "evictions": counters.evictions,
        "rematerializations": counters.replays,
        "score_evaluations": counters.score_evaluations,
        "metadata_accesses": counters.metadata_accesses,
        "wall_seconds": outcome.wall.as_secs_f64(),
        "pool": memory::name(setting.memory),
    });
    if let Memory::Arena(_) = setting.memory {
        let (mean, most) = outcome.fragmentation();
        line["fragmentation_mean"] = mean.into();
        line["fragmentation_max"] = most.into();
        line["searches"] = counters.searches.into();
        line["shortages"] = counters.shortages.into();
        line["search_ns_mean"] = outcome.search_latency().into();
        line["evicted_bytes"] = counters.evicted_bytes.into();
        line["moved_bytes"] = counters.moved_bytes.into();
        line["unused_evicted_bytes"] = counters.unused_evicted_bytes.into();
    }
    if let Some(bounds) = bounds {
        line["cutoff_budget"] = bounds.cutoff.map(|bytes| bytes.0).into();
        line["min_budget"] = bounds.smallest.map(|bytes| bytes.0).into();
    }
    format!("{line}\n")
}
