//! Random programs: events that are numbers, read as ops, releases, pins and changes of the budget. Property tests and
//! the fuzzer draw the numbers.

use super::{Call, Fate, Front};
use remat_core::*;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

/// The kind of event, and numbers that choose its details.
pub type Event = (u8, [u16; 6]);

/// The engine's configuration.
#[derive(Clone, Debug)]
pub struct Setting {
    pub policy: usize,
    pub keep: bool,
    pub ignore: bool,
    pub banish: bool,
    pub dtr_order: bool,
    pub devices: u8,
    pub budget: u64,
    /// 0: bytes are counted; else they are in arenas, aligned to 2^((arena - 1) / 3), placed in one of three ways; of
    /// two in three budgets blocks may be moved.
    pub arena: u8,
}

fn memory(setting: &Setting) -> Memory {
    let arena = setting.arena;
    if arena == 0 {
        return Memory::Fungible;
    }
    let alignment = Alignment::new(1 << ((arena - 1) / 3)).expect("a power of two");
    let partition = [Partition::None, Partition::ByCost, Partition::BySize][usize::from(arena % 3)];
    Memory::Arena(Arena {
        alignment,
        partition,
        moves: match NonZeroU32::new((setting.budget % 3) as u32) {
            Some(bytes_per_microsecond) => Moves::Copied {
                bytes_per_microsecond,
            },
            None => Moves::Never,
        },
        ..Arena::default()
    })
}

fn config(setting: &Setting) -> Config {
    Config {
        budgets: vec![Some(Bytes(setting.budget)); usize::from(setting.devices)],
        policy: names()
            .nth(setting.policy)
            .expect("a policy")
            .parse()
            .expect("a name"),
        dealloc: if setting.ignore {
            Dealloc::Ignore
        } else if setting.banish {
            Dealloc::Banish
        } else {
            Dealloc::Eager
        },
        lineage: if setting.keep {
            Lineage::Keep
        } else {
            Lineage::Collect
        },
        order: if setting.dtr_order {
            ReplayOrder::Dtr
        } else {
            ReplayOrder::Fit
        },
        thrash: ThrashLimit::Never,
        seed: 7,
        memory: memory(setting),
        stopwatch: None,
    }
}

fn op(front: &Front, setting: &Setting, n: &[u16; 6], replay: Replay) -> Option<Call> {
    if front.held.is_empty() {
        return None;
    }
    let pick = |n: u16| front.held[usize::from(n) % front.held.len()];
    let inputs: Vec<_> = (0..n[0] % 4)
        .map(|k| pick(n[1].wrapping_mul(31).wrapping_add(k.wrapping_mul(n[2]))))
        .collect();
    let mut outputs = Vec::new();
    for k in 0..=(n[3] % 3) {
        let draw = n[4].wrapping_add(k.wrapping_mul(n[5]));
        let of = usize::from(draw / 8) % inputs.len().max(1);
        outputs.push(match draw % 8 {
            0 if !inputs.is_empty() => Output::Alias { of },
            1 | 2 if !inputs.is_empty() => Output::InPlace { of },
            _ => Output::Fresh {
                bytes: Bytes(u64::from(draw / 8) % 30),
                device: DeviceId((draw / 256) as u8 % setting.devices),
            },
        });
    }
    let workspace = if n[5] % 4 == 0 {
        u64::from(n[5] / 4) % 20
    } else {
        0
    };
    let cost = u64::from(n[2] / 16) % 50;
    let actual = (n[0] % 8 >= 6).then(|| {
        let smaller = |output: &Output| match output {
            Output::Fresh { bytes, .. } => Bytes(bytes.0 - bytes.0 * u64::from(n[1] % 4) / 4),
            _ => Bytes(0),
        };
        outputs.iter().map(smaller).collect()
    });
    Some(Call {
        inputs,
        outputs,
        workspace,
        cost,
        replay,
        actual,
    })
}

/// Runs an op; when refused, raises the budget to what the refusal says.
fn run(front: &mut Front, setting: &Setting, call: &Call, fate: Fate) {
    let overwritten: Vec<_> = call
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::InPlace { of } => Some(
                front
                    .engine
                    .storage(call.inputs[*of])
                    .expect("a known tensor"),
            ),
            _ => None,
        })
        .collect();
    let lost: Vec<_> = overwritten
        .into_iter()
        .filter(|s| front.engine.is_pinned(*s))
        .collect();
    for _ in 0..20 {
        match front.call(call, fate) {
            Ok(ran) => {
                if ran.is_some() {
                    for s in lost {
                        for index in front.held_views(s) {
                            front.release_if_held(index);
                        }
                    }
                }
                return;
            }
            Err(Error::Budget {
                device,
                smallest,
                needed,
                budget,
            }) => {
                assert!(smallest > budget && smallest >= needed.min(smallest));
                front
                    .set_budget(device.0, Some(smallest.0))
                    .expect("a larger budget");
                if setting.devices == 1 {
                    let again = front.call(call, Fate::Abort(0));
                    assert!(again.is_ok(), "{smallest:?} was to be enough: {again:?}");
                }
            }
            // Views of a constant that a program overwrote and still names.
            Err(Error::Protocol(why)) => {
                assert!(why.contains("overwritten"), "{why}");
                return;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no budget is enough");
}

fn step(front: &mut Front, setting: &Setting, (kind, n): &Event) {
    let place = usize::from(n[0]) % front.held.len().max(1);
    match kind {
        0..=11 => {
            let fate = match n[2] % 10 {
                0 => Fate::Cancel,
                1 => Fate::Abort(usize::from(n[3] % 8)),
                _ => Fate::Run,
            };
            let replay = if n[1] % 16 == 0 {
                Replay::Forbidden
            } else {
                Replay::Allowed
            };
            if let Some(call) = op(front, setting, n, replay) {
                run(front, setting, &call, fate);
            }
        }
        12 => {
            let _ = front.constant(u64::from(n[0] % 20), n[1] as u8 % setting.devices);
        }
        13..=15 if !front.held.is_empty() => front.release(place),
        16 if !front.held.is_empty() => front.retain(place),
        17 if !front.held.is_empty() => {
            let tensors: Vec<_> = (0..1 + n[1] % 3)
                .map(|k| front.held[(place + usize::from(k.wrapping_mul(n[2]))) % front.held.len()])
                .collect();
            let performed = (n[3] % 4 == 0).then_some(usize::from(n[3] / 4 % 8));
            let _ = front.bring(&tensors, n[4] % 6 == 0, performed);
        }
        18 => {
            let _ = front.set_budget(n[0] as u8 % setting.devices, Some(u64::from(n[1] % 300)));
        }
        _ => front.collect(),
    }
}

/// Runs a program from scratch; the steps performed, and the engine at the end.
pub fn play(setting: &Setting, events: &[Event]) -> (Vec<Step>, String) {
    let mut front = Front::new(config(setting));
    for bytes in [10, 5, 0] {
        front.constant(bytes, 0).expect("room for constants");
    }
    for event in events {
        step(&mut front, setting, event);
    }
    (
        std::mem::take(&mut front.trace),
        format!("{:?}", front.engine),
    )
}

/// Runs the same events again and again, as a step each, and follows a guide of whatever step the engine records. The
/// numbers say which actions the guide has: places, kinds, ops and outputs. With an odd number of actions the program
/// marks its steps. Returns counts of guided steps.
pub fn play_steps(setting: &Setting, events: &[Event], actions: &[[u16; 4]]) -> Guided {
    let mut front = Front::new(config(setting));
    front.engine.learn_steps(DeviceId(0));
    for _ in 0..10 {
        if actions.len() % 2 == 1 {
            front.engine.mark_step();
        }
        for bytes in [10, 5, 0] {
            // Guides may have left no room for them.
            let _ = front.constant(bytes, 0);
        }
        for event in events {
            step(&mut front, setting, event);
        }
        while let Some(last) = front.held.len().checked_sub(1) {
            front.release(last);
        }
        front.collect();
        if let Some(recorded) = front.engine.recorded_step() {
            front.engine.follow(guide(&recorded, actions));
        }
    }
    front.engine.guided()
}

/// A guide with any actions, which keeps any results.
fn guide(recorded: &Recorded, actions: &[[u16; 4]]) -> Guide {
    let ops = recorded.signatures.len();
    let mut before = vec![Vec::new(); ops];
    let mut kept = BTreeSet::new();
    for &[place, kind, op, output] in actions {
        if kind / 4 % 2 == 1 {
            kept.insert((u32::from(op) % ops as u32, u32::from(output % 3)));
        }
        let place = usize::from(place) % ops;
        if place > 0 {
            let op = u32::from(op) % place as u32;
            before[place].push(match kind % 4 {
                0 => GuideAction::Run(op),
                1 => GuideAction::RunInPlace(op),
                _ => GuideAction::Drop {
                    op,
                    output: u32::from(output % 3),
                },
            });
        }
    }
    let costs = recorded.costs();
    let guide = Guide::new(recorded.signatures.clone(), &before, costs, costs);
    let kept = guide.and_then(|guide| guide.with_kept(kept.into_iter().collect()));
    kept.expect("ops of the step, and earlier ones in actions")
}
