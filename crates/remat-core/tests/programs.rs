//! Random programs under random budgets: what is needed is there, recomputed values are the first ones, bytes stay under
//! the budget at every step, refusals leave no trace and name a budget that works.

mod front;

use front::program::{play, Event, Setting};
use proptest::prelude::*;
use remat_core::names;

fn settings() -> impl Strategy<Value = Setting> {
    (
        0..names().count(),
        any::<bool>(),
        any::<bool>(),
        0..4u8,
        1..3u8,
        40..200u64,
        0..9u8,
    )
        .prop_map(
            |(policy, keep, ignore, order, pools, budget, arena)| Setting {
                policy,
                keep,
                ignore: ignore && keep,
                banish: order == 1,
                dtr_order: order == 0,
                pools,
                budget,
                arena,
            },
        )
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec((0..20u8, any::<[u16; 6]>()), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_run_right_inside_their_budget(setting in settings(), events in events()) {
        play(&setting, &events);
    }

    #[test]
    fn the_same_events_give_the_same_decisions(setting in settings(), events in events()) {
        prop_assert_eq!(play(&setting, &events), play(&setting, &events));
    }
}
