//! Recorded steps: overhead and the work of deciding by policy (DTR preprint, figures 2 and 3; appendix D.3),
//! ablations and deallocation (appendices D.1 and D.2), and memory with addresses (Coop, figures 4 to 6).

use crate::figure::Figure;
use crate::runs::{Memory, Runs, Step, Way};
use remat_core::Dealloc::{Banish, Eager, Ignore};
use remat_sim::UnknownEviction;

/// The policies that the paper compares, and Remat's own.
const MAIN: &str = "dtr dtr-eq dtr-anc dtr-local lru size msps random";

/// For each kind of cost: the whole score, without size, without staleness, without both.
const ABLATIONS: [(&str, &str); 4] = [
    (
        "ablation-exact",
        "dtr dtr-nosize dtr-nostale dtr-nosize-nostale",
    ),
    (
        "ablation-eq",
        "dtr-eq dtr-eq-nosize dtr-eq-nostale dtr-eq-nosize-nostale",
    ),
    (
        "ablation-local",
        "dtr-local dtr-local-nosize dtr-local-nostale dtr-local-nosize-nostale",
    ),
    (
        "ablation-no",
        "dtr-no dtr-no-nosize dtr-no-nostale dtr-no-nosize-nostale",
    ),
];

/// Compared by what happens to released tensors.
const DEALLOCATED: &str = "dtr dtr-eq";

/// Windows, and the baselines of Coop; `dtr-anc` has the cost that `coop` has.
const SEARCHING: &str = "coop dte dtr dtr-eq dtr-anc";

/// The same, and the plan of selective recomputation, which is for transformers only.
const ARENA: &str = "coop dte dtr dtr-eq dtr-anc sar";

/// These policies, with eager eviction.
pub(super) fn eager(policies: &str) -> Result<Vec<Way>, UnknownEviction> {
    policies
        .split(' ')
        .map(|policy| Ok((policy.parse()?, Eager)))
        .collect()
}

/// Each of these policies with each way of deallocation.
fn deallocated() -> Result<Vec<Way>, UnknownEviction> {
    let each = |(policy, _)| [Eager, Banish, Ignore].map(|dealloc| (policy, dealloc));
    Ok(eager(DEALLOCATED)?.into_iter().flat_map(each).collect())
}

/// The runs that the figures of memory as a count of bytes need.
pub fn counted<'a>(steps: &[Step<'a>], ratios: &[f64]) -> Result<Runs<'a>, UnknownEviction> {
    let mut ways = eager(MAIN)?;
    for (_, policies) in ABLATIONS {
        ways.extend(eager(policies)?);
    }
    ways.extend(deallocated()?);
    Ok(Runs::wanted(steps, ratios, &ways, Memory::Counted))
}

/// The runs that the figures of arenas need.
pub fn arena<'a>(steps: &[Step<'a>], ratios: &[f64]) -> Result<Runs<'a>, UnknownEviction> {
    Ok(Runs::wanted(steps, ratios, &eager(ARENA)?, Memory::Arena))
}

/// The figures of both.
pub fn figures(counted: &Runs, arena: &Runs) -> Result<Vec<Figure>, UnknownEviction> {
    let figure = |runs: &Runs, name, policies| Ok(Figure::new(name, runs.table(&eager(policies)?)));
    let mut figures = vec![figure(counted, "overhead", MAIN)?];
    for (name, policies) in ABLATIONS {
        figures.push(figure(counted, name, policies)?);
    }
    figures.push(Figure::new("deallocation", counted.table(&deallocated()?)));
    figures.push(figure(counted, "accesses", MAIN)?);
    figures.push(figure(counted, "evaluations", MAIN)?);
    figures.push(figure(arena, "arena-overhead", ARENA)?);
    figures.push(figure(arena, "arena-latency", SEARCHING)?);
    figures.push(figure(arena, "arena-fragmentation", SEARCHING)?);
    Ok(figures)
}
