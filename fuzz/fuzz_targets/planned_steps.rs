//! Any text as a file of planned steps. Refusals are one line of text; what is read is written and read again as it
//! is, and an engine may be told to follow it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remat_core::{Config, Engine};
use remat_plan::step::PlannedSteps;

fuzz_target!(|text: &str| {
    let plans = match PlannedSteps::from_json(text) {
        Ok(plans) => plans,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
            return;
        }
    };
    let again = PlannedSteps::from_json(&plans.to_json()).expect("what was written");
    assert_eq!(again, plans);
    let mut engine = Engine::new(Config::default());
    for step in plans.steps {
        assert!(!step.guide.signatures().is_empty());
        engine.follow(step.guide);
    }
});
