//! Random programs under random budgets: inputs are there when they are read, recomputed values are the first ones,
//! bytes stay under the budget at every step, refusals leave no trace and name a budget that works. At the end stand
//! the fuzzer's findings, as the smallest programs that show them.

mod front;

use front::program::{Event, Setting, play, play_steps};
use front::{Call, Fate, Front};
use proptest::prelude::*;
use remat_core::{Bytes, Config, DeviceId, Draws, Error, Output, Replay, TensorId, names};

fn settings() -> impl Strategy<Value = Setting> {
    (
        0..names().count(),
        any::<bool>(),
        any::<bool>(),
        0..4u8,
        1..3u8,
        40..200u64,
        0..13u8,
    )
        .prop_map(
            |(policy, keep, ignore, order, devices, budget, arena)| Setting {
                policy,
                keep,
                ignore: ignore && keep,
                banish: order == 1,
                dtr_order: order == 0,
                devices,
                budget,
                arena,
            },
        )
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec((0..20u8, any::<[u16; 6]>()), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 8 / 5,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn programs_run_right_inside_their_budget(setting in settings(), events in events()) {
        play(&setting, &events);
    }

    #[test]
    fn the_same_events_give_the_same_decisions(setting in settings(), events in events()) {
        prop_assert_eq!(play(&setting, &events), play(&setting, &events));
    }
}

/// Whatever a guide says, values stay, inputs are there and bytes stay under the budget.
#[test]
fn any_guide_of_random_steps_may_be_followed() {
    let mut draws = Draws(7);
    let mut followed = 0;
    for seed in 0..24 {
        let setting = Setting {
            policy: seed % names().count(),
            keep: seed % 2 == 0,
            ignore: false,
            banish: seed % 5 == 0,
            dtr_order: seed % 3 == 0,
            devices: 1 + u8::from(seed % 4 == 0),
            budget: 60 + draws.next() % 100,
            arena: 0,
        };
        let mut numbers = || draws.next() as u16;
        // Ops, releases and reads. A recording ends where an op is begun in vain, and budgets stay.
        let mut event = || {
            let kind = [0, 0, 0, 0, 14, 17][usize::from(numbers()) % 6];
            let mut of = [(); 6].map(|()| numbers());
            (of[2], of[3]) = (of[2] / 10 * 10 + 5, of[3] | 1);
            (kind, of)
        };
        let events: Vec<Event> = (0..70).map(|_| event()).collect();
        let actions: Vec<[u16; 4]> = (0..60).map(|_| [(); 4].map(|()| numbers())).collect();
        followed += u32::from(play_steps(&setting, &events, &actions).ops > 100);
    }
    assert!(followed > 5, "{followed}");
}

const DEVICE: u8 = 0;

fn call(inputs: &[TensorId], outputs: &[Output]) -> Call {
    Call {
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
        workspace: 0,
        cost: 10,
        replay: Replay::Allowed,
        actual: None,
    }
}

/// Runs an op and names what it makes.
fn run(front: &mut Front, call: &Call) -> Vec<TensorId> {
    let ran = front.call(call, Fate::Run).expect("a budget for the op");
    let op = ran.expect("the op ran");
    front.engine.outputs(op).to_vec()
}

/// A result of its own of 15 bytes.
fn result() -> Output {
    Output::Fresh {
        bytes: Bytes(15),
        device: DeviceId(DEVICE),
    }
}

/// A value whose only source was overwritten is asked for while bytes are short: no budget helps, so none is named.
/// (The fuzzer's own program is `fuzz/corpus/engine/lost-value`.)
#[test]
fn what_is_lost_is_not_refused_for_want_of_bytes() {
    let mut front = Front::new(Config {
        budgets: vec![Some(Bytes(49))],
        ..Config::default()
    });
    let weights = front.constant(10, DEVICE).expect("room for a constant");
    let hidden = run(&mut front, &call(&[weights], &[result()]))[0];
    let overwritten = call(
        &[weights, hidden],
        &[Output::InPlace { of: 0 }, Output::InPlace { of: 1 }],
    );
    let updated = run(&mut front, &overwritten)[0];
    let left = run(&mut front, &call(&[updated], &[result()]))[0];
    let right = run(&mut front, &call(&[updated], &[result()]))[0];

    let short = front.bring(&[left, right], false, None);
    assert!(
        matches!(
            short,
            Err(Error::Budget {
                smallest: Bytes(55),
                ..
            })
        ),
        "{short:?}"
    );
    let lost = "the only value of this tensor was overwritten";
    let asked = front.bring(&[left, right, hidden], false, None);
    assert_eq!(asked, Err(Error::Protocol(lost)));
    let read = front.call(&call(&[left, right, hidden], &[result()]), Fate::Run);
    assert_eq!(read, Err(Error::Protocol(lost)));
}
