//! The five metrics of the Coop paper (section 4.2) for policies on the arena.
//!
//! ```console
//! $ cargo run --release -p remat-sim --example coop -- traces/*.zst ../shared/data/dtr-logs/*.log
//! ```

use remat_core::{Arena, Bytes, Ends, Memory, Policy};
use remat_sim::{Base, Budget, Mutations, Program, Setting, Status};
use std::error::Error;

const RATIOS: [f64; 6] = [0.3, 0.4, 0.5, 0.6, 0.7, 0.9];

fn setting(policy: &str) -> Result<Setting, Box<dyn Error>> {
    let (policy, without) =
        policy
            .split_once('-')
            .map_or((policy, ""), |_| match policy.split_once("-no") {
                Some((policy, without)) => (policy, without),
                None => (policy, ""),
            });
    let mut policy: Policy = policy.parse()?;
    let coop = matches!(policy, Policy::Coop { .. });
    if let (Policy::Coop { cost, .. }, "window") = (policy, without) {
        policy = Policy::Dtr {
            cost,
            size: true,
            stale: true,
        };
    }
    let ends = match without {
        _ if !coop => Ends::Low,
        "partition" => Ends::Low,
        "size" => Ends::ByCost,
        _ => Ends::BySize,
    };
    Ok(Setting {
        policy,
        memory: Memory::Arena(Arena {
            ends,
            ..Arena::default()
        }),
        mutations: match coop {
            true if without != "inplace" => Mutations::InPlace,
            true => Mutations::Copied,
            false => Mutations::Recorded,
        },
        ..Setting::default()
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let policies = std::env::var("POLICIES").unwrap_or("coop,dte,dtr,dtr-eq".into());
    for path in std::env::args().skip(1) {
        let program = Program::open(&path)?;
        let base: Base = program.base()?;
        let name = path
            .rsplit('/')
            .next()
            .unwrap_or("")
            .replace(".trace.zst", "(own)")
            .replace(".log", "");
        for policy in policies.split(',') {
            let setting = setting(policy)?;
            let within = Bytes(base.memory.0 / 512);
            let smallest = program.smallest_budget(&base, &setting, within, |_| {})?;
            let cutoff = if std::env::var("CUT").is_ok() {
                program.cutoff_budget(&base, &setting, within, |_| {})?
            } else {
                None
            };
            let ratio = |bytes: Option<Bytes>| {
                bytes.map_or(f64::NAN, |bytes| bytes.0 as f64 / base.memory.0 as f64)
            };
            print!(
                "{name:14} {policy:14} min {:.3} cut {:.3} |",
                ratio(smallest),
                ratio(cutoff)
            );
            let (mut frag, mut latency, mut n) = (0.0, 0.0, 0.0);
            for ratio in RATIOS {
                let outcome = program.run(
                    &base,
                    &Setting {
                        budget: Budget::Ratio(ratio),
                        ..setting
                    },
                )?;
                match outcome.status {
                    Status::Ok => {
                        print!(" {:5.3}", outcome.overhead(&base));
                        if outcome.counters.shortages > 0 {
                            frag += outcome.fragmentation().0;
                            latency += outcome.search_latency();
                            n += 1.0;
                        }
                        print!("/{:4.1}", outcome.fragmentation().0 * 100.0);
                    }
                    Status::Oom => print!("   oom    "),
                    Status::Thrash => print!("   thr    "),
                }
            }
            println!(" | frag {:4.1}% lat {:6.0}", frag / n * 100.0, latency / n);
        }
    }
    Ok(())
}
