//! The time that planning recorded steps takes: to the first plan, and what rounds gain after it.
//!
//! ```console
//! $ cargo run --release -p remat-plan --example step_speed -- 10 0.7,0.5,0.3 traces/gpt.trace.zst
//! ```
//!
//! Ratios are of the peak of the step if every op runs once. Each plan is verified.

use remat_core::Bytes;
use remat_plan::step::{Planner, Progress, Search, Step, StepPlan, verify};
use remat_trace::Event;
use std::error::Error;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(seconds), Some(ratios)) = (arguments.next(), arguments.next()) else {
        return Err(
            "wanted are seconds for each budget, ratios as 0.7,0.5, and recorded steps".into(),
        );
    };
    let limit = Duration::from_secs_f64(seconds.parse()?);
    println!(
        "| step | ops | ratio | first plan s | its overhead % | overhead % | gap % | rounds | s |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for path in arguments {
        let events: Vec<Event> = remat_trace::open(&path)?.collect::<Result<_, _>>()?;
        let step = Step::from_events(&events)?;
        for ratio in ratios.split(',') {
            let budget = Bytes((step.peak_bytes() as f64 * ratio.parse::<f64>()?) as u64);
            let row = match plan(&step, budget, limit) {
                Ok(timed) => {
                    verify(&events, &timed.plan)?;
                    timed.row()
                }
                Err(error) => error.to_string(),
            };
            println!("| {path} | {} | {ratio} | {row} |", step.len());
        }
    }
    Ok(())
}

/// A plan, and the time it took.
struct Timed {
    plan: StepPlan,
    /// The time to the first plan, and its nanoseconds of runs again.
    first: (Duration, u64),
    whole: Duration,
}

fn plan(step: &Step, budget: Bytes, limit: Duration) -> Result<Timed, Box<dyn Error>> {
    let started = Instant::now();
    let mut first = None;
    let mut watch = |progress: &Progress| {
        let Some(again) = progress.recompute_ns else {
            return ControlFlow::Continue(());
        };
        first.get_or_insert((started.elapsed(), again));
        if started.elapsed() > limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let plan = Planner::new(step).plan(budget, &Search::default(), &mut watch)?;
    Ok(Timed {
        plan,
        first: first.unwrap_or_default(),
        whole: started.elapsed(),
    })
}

impl Timed {
    fn row(&self) -> String {
        let Timed { plan, first, whole } = self;
        let percent = |ns: u64, of: u64| 100.0 * ns as f64 / of.max(1) as f64;
        let gap = (plan.cost_ns + plan.recompute_ns).saturating_sub(plan.bound_ns);
        format!(
            "{:.2} | {:.2} | {:.2} | {:.2} | {} | {:.1}",
            first.0.as_secs_f64(),
            percent(first.1, plan.cost_ns),
            percent(plan.recompute_ns, plan.cost_ns),
            percent(gap, plan.bound_ns),
            plan.iterations,
            whole.as_secs_f64()
        )
    }
}
