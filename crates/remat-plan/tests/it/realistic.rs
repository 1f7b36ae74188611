//! A chain as long as those of real networks, no two of its sizes alike.

use crate::chains::{Row, chain};
use crate::known::planned;
use remat_plan::chain::{Chain, Plan, Resolution, Strategy, verify};

/// 60 stages of four widths, times and sizes up to a quarter more or less.
fn residual() -> Chain {
    let mut noise = 7u64;
    let mut vary = |mean: f64| {
        noise = noise
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        mean * (0.75 + (noise >> 40) as f64 / f64::from(1 << 25))
    };
    let rows: Vec<Row> = (0..60)
        .map(|index| {
            let mut bytes = |mib: f64| vary(mib * 1048576.0 / f64::from(1 << (index / 15))) as u64;
            let activation = bytes(12.0);
            let sizes = (
                activation,
                activation + bytes(48.0),
                bytes(4.0),
                bytes(12.0),
            );
            let (forward, backward) = (vary(1.5), vary(3.0));
            (forward, backward, sizes.0, sizes.1, sizes.2, sizes.3)
        })
        .collect();
    chain(1 << 20, &rows)
}

fn plan(chain: &Chain, budget: u64, resolution: &str) -> Plan {
    let plan = planned(
        chain,
        budget,
        Strategy::Persistent,
        resolution.parse().unwrap(),
    )
    .unwrap();
    let verified = verify(chain, &plan.sequence).unwrap();
    assert_eq!(verified.peak_bytes, plan.peak_bytes);
    assert!(plan.peak_bytes <= budget);
    assert!((verified.makespan - plan.makespan).abs() < 1e-9 * plan.makespan);
    plan
}

#[test]
fn the_finer_the_slots_the_nearer_they_come_to_exact_bytes() {
    let chain = residual();
    let everything = planned(&chain, u64::MAX, Strategy::None, Resolution::Exact).unwrap();
    for part in [8, 4, 2] {
        let budget = everything.peak_bytes / part;
        let exact = plan(&chain, budget, "exact").makespan;
        for (slots, most) in [("500", 0.01), ("20000", 0.0003)] {
            let longer = plan(&chain, budget, slots).makespan / exact - 1.0;
            assert!(
                (-1e-12..most).contains(&longer),
                "1/{part}, {slots} slots: {longer}"
            );
        }
    }
}
