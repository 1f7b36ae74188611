//! Random steps that repeat, and any guide of them. The front end of the property tests checks each op: its inputs are
//! there, values stay, and bytes stay under the budget.
#![no_main]

#[path = "../../crates/remat-core/tests/front/mod.rs"]
mod front;

use arbitrary::{Arbitrary, Unstructured};
use front::program::{play_steps, Event, Setting};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Steps {
    setting: Setting,
    events: Vec<Event>,
    actions: Vec<[u16; 4]>,
}

impl<'a> Arbitrary<'a> for Steps {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Steps> {
        let order = u.int_in_range(0..=3)?;
        let setting = Setting {
            policy: u.choose_index(remat_core::names().count())?,
            keep: u.arbitrary()?,
            ignore: false,
            banish: order == 1,
            dtr_order: order == 0,
            devices: u.int_in_range(1..=2)?,
            budget: u.int_in_range(60..=199)?,
            arena: 0,
        };
        let mut actions = Vec::new();
        for _ in 0..u.int_in_range(0..=60)? {
            actions.push(u.arbitrary()?);
        }
        let mut events: Vec<Event> = Vec::new();
        while events.len() < 70 && !u.is_empty() {
            events.push((u.int_in_range(0..=17)?, u.arbitrary()?));
        }
        Ok(Steps {
            setting,
            events,
            actions,
        })
    }
}

fuzz_target!(|steps: Steps| {
    play_steps(&steps.setting, &steps.events, &steps.actions);
});
