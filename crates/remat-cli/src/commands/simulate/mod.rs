//! `remat simulate`.

mod bounds;
mod case;
mod json;
mod planned;
mod table;

use crate::arguments::Simulate;
use crate::failure::Failure;
use crate::log::{self, Log, Place};
use crate::progress;
use case::Case;
use remat_core::Memory;
use remat_sim::{Adopted, Budget, Outcome, Plan, Setting};

pub(crate) fn run(simulation: &Simulate) -> Result<(), Failure> {
    let replays = &simulation.replays;
    let plans = planned::read(simulation)?;
    let logs = replays.read_logs(&simulation.policies)?;
    if let Some(log) = logs
        .iter()
        .find(|log| simulation.adopted && !log.program.has_plans())
    {
        return Err(Failure::Input(format!(
            "{}: the recorded run adopted no plan; leave --adopted out, or record a run that repeats its steps longer",
            log.name
        )));
    }
    let cases = logs.iter().flat_map(|log| {
        let cases = cases(simulation, &plans);
        cases.into_iter().map(move |case| (log, case))
    });
    let cases: Vec<(&Log, Case<'_>)> = cases.collect();
    let threads = replays.jobs.threads();
    let bounds = if simulation.json && replays.pool.is_arena() {
        let online = cases.iter().filter(|(_, case)| case.plan.is_none());
        let online: Vec<(&Log, Setting)> = online.map(|(log, case)| (*log, case.setting)).collect();
        bounds::of(&online, threads)?
    } else {
        Vec::new()
    };
    let bar = progress::runs(cases.len());
    let run = |log: &Log, case: &Case<'_>| {
        let outcome = case.run(log, replays.thrash_limit);
        bar.inc(1);
        outcome
    };
    log::print(
        &cases,
        threads,
        &bar,
        run,
        |index, outcome: &Outcome, place| {
            let (log, case) = &cases[index];
            if simulation.json {
                return json::line(log, case, outcome, bounds.get(index));
            }
            let row = table::row(log, case, outcome);
            match place {
                Place::First => table::heading(log) + &row,
                Place::Later => row,
            }
        },
    )
}

/// Policies, and each one's budgets; then plans.
fn cases<'a>(simulation: &Simulate, plans: &'a [Plan]) -> Vec<Case<'a>> {
    let replays = &simulation.replays;
    let online = settings(simulation, plans).into_iter().map(|setting| Case {
        policy: setting.policy.to_string(),
        dealloc: replays.dealloc.name(),
        setting,
        plan: None,
    });
    let planned = plans.iter().map(|plan| Case {
        policy: "plan".into(),
        dealloc: "plan",
        setting: Setting {
            budget: Budget::Bytes(plan.memory()),
            memory: match plan.arena {
                None => Memory::Fungible,
                Some(_) => Memory::Arena(remat_core::Arena::default()),
            },
            ..Setting::default()
        },
        plan: Some(plan),
    });
    online.chain(planned).collect()
}

fn settings(simulation: &Simulate, plans: &[Plan]) -> Vec<Setting> {
    let budgets: Vec<Budget> = if !plans.is_empty() {
        let mut budgets: Vec<Budget> = plans
            .iter()
            .map(|plan| Budget::Bytes(plan.memory()))
            .collect();
        budgets.dedup();
        budgets
    } else if simulation.budgets.is_empty() {
        simulation
            .ratios
            .ratios
            .iter()
            .copied()
            .map(Budget::Ratio)
            .collect()
    } else {
        simulation
            .budgets
            .iter()
            .copied()
            .map(Budget::Bytes)
            .collect()
    };
    let of = |&policy| {
        let setting = Setting {
            adopted: if simulation.adopted {
                Adopted::Followed
            } else {
                Adopted::Ignored
            },
            ..simulation.replays.setting(policy)
        };
        budgets
            .iter()
            .map(move |&budget| Setting { budget, ..setting })
            .collect::<Vec<_>>()
    };
    simulation.policies.iter().flat_map(of).collect()
}
