//! Random programs of ops, releases, pins and changes of the budget under random settings. The front end of the
//! property tests checks them step by step.
#![no_main]

#[path = "../../crates/remat-core/tests/front/mod.rs"]
mod front;

use arbitrary::{Arbitrary, Unstructured};
use front::program::{play, Event, Setting};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Program {
    setting: Setting,
    events: Vec<Event>,
}

impl<'a> Arbitrary<'a> for Program {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Program> {
        let keep = u.arbitrary()?;
        let order = u.int_in_range(0..=3)?;
        let setting = Setting {
            policy: u.choose_index(remat_core::names().count())?,
            keep,
            ignore: keep && u.arbitrary()?,
            banish: order == 1,
            dtr_order: order == 0,
            devices: u.int_in_range(1..=2)?,
            budget: u.int_in_range(40..=199)?,
            arena: u.int_in_range(0..=12)?,
        };
        let mut events = Vec::new();
        while events.len() < 120 && !u.is_empty() {
            events.push((u.int_in_range(0..=19)?, u.arbitrary()?));
        }
        Ok(Program { setting, events })
    }
}

fuzz_target!(|program: Program| {
    play(&program.setting, &program.events);
});
