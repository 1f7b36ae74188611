//! The replay of one op (DTR appendix C.4, "(Re)materialization"; rules 3 to 5 of the reference).

use super::goal::EarlyEviction;
use crate::config::ThrashLimit;
use crate::graph::{Graph, Made, NONE};
use crate::ids::{OpId, StorageId, TensorId};
use crate::journal::Entry;
use crate::op::{Mutation, Step};
use crate::transaction::{State, Stop};

/// An op to replay, for one of its outputs.
#[derive(Clone, Copy)]
pub(super) struct Rerun {
    pub(super) op: OpId,
    pub(super) requested: TensorId,
    pub(super) early: EarlyEviction,
    pub(super) blocks: Blocks,
    pub(super) thrash: ThrashLimit,
}

/// Where a replay's blocks lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocks {
    Anywhere,
    /// Where a plan has them, if that is free.
    Planned,
}

/// Replays an op whose inputs are all locked.
pub(super) fn rerun(state: &mut State, rerun: Rerun) -> Result<(), Stop> {
    let op = rerun.op;
    let mutation = mutation(&state.graph, op);
    state.seek_bytes(op, mutation);
    state.request_blocks(op, mutation);
    if rerun.blocks == Blocks::Planned {
        state.demand.plan_requests();
    }
    state.make_all_room()?;
    let cost = state.graph[op].cost;
    let clock = state
        .clock
        .checked_add(cost)
        .filter(|&clock| clock <= i64::MAX as u64)
        .ok_or(Stop::Overflow)?;
    state.push_step(Step::Recompute { op, mutation });
    state.journal.write(Entry::Replayed(op));
    state.clock = clock;
    state.counters.replays += 1;
    state.counters.replayed_cost.0 += cost;
    state.take_sought_bytes();
    state.install_outputs(op, mutation);
    list_outputs(state, rerun);
    unlock_inputs(state, rerun);
    state.note_for_banishing(op);
    check_thrash(state, rerun.thrash)
}

/// Inputs that the op writes into are consumed if nothing else holds them and every value is wanted.
fn mutation(graph: &Graph, op: OpId) -> Mutation {
    let record = &graph[op];
    let all = record
        .made
        .iter()
        .zip(&record.outputs)
        .all(|(made, output)| {
            let Made::InPlace(of) = *made else {
                return true;
            };
            let old_id = graph.input(op, of as usize);
            let (old, new) = (&graph[old_id], &graph[graph.storage_of(*output)]);
            let inputs = record.inputs.iter();
            let own = inputs
                .filter(|&&input| graph.storage_of(input) == old_id)
                .count();
            !new.resident && new.live_views > 0 && !old.pinned && old.locks as usize == own
        });
    if all {
        Mutation::Consume
    } else {
        Mutation::Copy
    }
}

/// Storages that became resident are candidates now, the requested tensor's last (rule 4).
fn list_outputs(state: &mut State, rerun: Rerun) {
    let last = state.graph.storage_of(rerun.requested);
    for index in 0..state.graph[rerun.op].outputs.len() {
        let s = state.graph.output(rerun.op, index);
        if state.graph[rerun.op].made[index] != Made::Alias && s != last {
            state.list(s);
            evict_early(state, s, rerun.early);
            state.evict_if_unreachable(s);
        }
    }
    state.list(last);
}

fn unlock_inputs(state: &mut State, rerun: Rerun) {
    let keep = state.graph.storage_of(rerun.requested);
    for index in 0..state.graph[rerun.op].inputs.len() {
        let s = state.graph.input(rerun.op, index);
        state.unlock(s);
        if s != keep {
            evict_early(state, s, rerun.early);
        }
    }
}

fn evict_early(state: &mut State, s: StorageId, early: EarlyEviction) {
    if early == EarlyEviction::Always && state.graph[s].slot != NONE {
        state.evict(s);
    }
}

/// The thrash limit (rule 6).
fn check_thrash(state: &State, thrash: ThrashLimit) -> Result<(), Stop> {
    let counters = &state.counters;
    let replayed = counters.replayed_cost.0;
    let limit = match thrash {
        _ if state.accounts.are_lifted() => return Ok(()),
        ThrashLimit::Never => return Ok(()),
        ThrashLimit::Total(limit) => limit.0,
        ThrashLimit::Ratio(_) if counters.first_cost.0 < 1_000_000_000 => return Ok(()),
        ThrashLimit::Ratio(ratio) => (counters.first_cost.0 as f64 * ratio) as u64,
    };
    if replayed > limit {
        return Err(Stop::Thrash { replayed, limit });
    }
    Ok(())
}
