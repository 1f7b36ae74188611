//! Each rule of a valid plan, kept and broken.

use crate::recordings::{IN_PLACE, VIEW, claimed, constant, fresh, op, release, unclaimed};
use remat_plan::step::{Action, Fault, Verified, verify};
use remat_trace::Event;

fn steps(text: &str) -> Vec<Action> {
    serde_json::from_str(text).expect("steps")
}

fn valid(events: &[Event], text: &str) -> Verified {
    match claimed(events, steps(text)) {
        Ok((_, verified)) => verified,
        Err(fault) => panic!("{text}: {fault}"),
    }
}

fn refused(events: &[Event], text: &str) -> String {
    match verify(events, &unclaimed(events, steps(text))) {
        Err(fault) if !matches!(fault, Fault::Claim { .. }) => fault.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

/// A constant of 100 bytes, and a chain of two results of it; the last stays.
fn chain() -> Vec<Event> {
    vec![
        constant(0, 100),
        op(&[0], &[(1, fresh(40))], 7),
        op(&[1], &[(2, fresh(20))], 5),
        release(1),
    ]
}

#[test]
fn a_plan_takes_what_its_runs_take() {
    let verified = valid(&chain(), r#"[["run",0],["run",1],["run",2],["free",1]]"#);
    let expected = Verified {
        peak_bytes: 160,
        cost_ns: 12,
        recompute_ns: 0,
        ops: 3,
        reruns: 0,
        frees: 1,
    };
    assert_eq!(verified, expected);
    let text = r#"[["run",0],["run",1],["free",1],["run",1],["run",1],["run",2]]"#;
    let verified = valid(&chain(), text);
    assert_eq!((verified.recompute_ns, verified.reruns), (14, 2));
    // The second copy of storage 1 is there while op 1 runs.
    assert_eq!(verified.peak_bytes, 180);
}

#[test]
fn workspace_counts_while_the_op_runs_and_other_devices_do_not_count() {
    let mut events = chain();
    if let Event::Op { workspace, .. } = &mut events[1] {
        *workspace = 30;
    }
    let text = r#"[["run",0],["run",1],["run",2]]"#;
    assert_eq!(valid(&events, text).peak_bytes, 170);
    if let Event::Op {
        workspace_device, ..
    } = &mut events[1]
    {
        *workspace_device = 1;
    }
    assert_eq!(valid(&events, text).peak_bytes, 160);
    if let Event::Constant { device, .. } = &mut events[0] {
        *device = 1;
    }
    assert_eq!(valid(&events, text).peak_bytes, 60);
}

#[test]
fn first_runs_are_in_program_order_and_complete() {
    let of = |text: &str| refused(&chain(), text);
    assert_eq!(
        of(r#"[["run",0],["run",2]]"#),
        r#"step 1 (["run", 2]): op 1 must run first; first runs are in program order"#
    );
    assert_eq!(
        of(r#"[["run",0],["run",1]]"#),
        "at the end of the plan: op 2 never ran"
    );
    assert_eq!(of("[]"), "at the end of the plan: op 0 never ran");
    assert!(of(r#"[["run",3]]"#).ends_with("the recording has 3 ops, from 0"));
}

#[test]
fn constants_and_ops_that_must_not_be_replayed_run_once() {
    let mut events = chain();
    assert!(refused(&events, r#"[["run",0],["run",0]]"#).ends_with("must not run again"));
    if let Event::Op { replay, .. } = &mut events[1] {
        *replay = false;
    }
    assert!(refused(&events, r#"[["run",0],["run",1],["run",1]]"#).ends_with("must not run again"));
}

#[test]
fn a_run_needs_its_inputs() {
    assert_eq!(
        refused(&chain(), r#"[["run",0],["run",1],["free",1],["run",2]]"#),
        r#"step 3 (["run", 2]): the op reads storage 1, which is not in memory"#
    );
}

#[test]
fn only_what_is_there_is_dropped_and_constants_stay() {
    let of = |text: &str| refused(&chain(), text);
    assert!(of(r#"[["run",0],["free",0]]"#).ends_with("storage 0 is a constant, which stays"));
    assert!(of(r#"[["run",0],["free",1]]"#).ends_with("storage 1 is not in memory"));
    assert!(
        of(r#"[["run",0],["run",1],["free",1],["free",1]]"#).contains("step 3 ([\"free\", 1])")
    );
    assert!(of(r#"[["free",4294967295]]"#).ends_with("the recording has 3 storages, from 0"));
}

#[test]
fn what_is_still_referred_to_is_there_at_the_end() {
    assert_eq!(
        refused(&chain(), r#"[["run",0],["run",1],["run",2],["free",2]]"#),
        "at the end of the plan: the recording still refers to storage 2, which is not in memory"
    );
    let mut events = chain();
    events.insert(3, Event::Retain { tensor: 1 });
    refused(&events, r#"[["run",0],["run",1],["run",2],["free",1]]"#);
}

/// A view of a result, read again after the result could be dropped.
fn viewed() -> Vec<Event> {
    vec![
        constant(0, 10),
        op(&[0], &[(1, fresh(40))], 7),
        op(&[1], &[(2, VIEW)], 2),
        op(&[0], &[(3, fresh(5))], 1),
        op(&[2], &[(4, fresh(5))], 1),
        release(1),
        release(2),
    ]
}

#[test]
fn a_view_is_made_again_after_its_storage_came_back() {
    let events = viewed();
    let begin = r#"[["run",0],["run",1],["run",2],["free",1],["run",3],["run",1]"#;
    assert_eq!(
        refused(&events, &format!(r#"{begin},["run",4]]"#)),
        "step 6 ([\"run\", 4]): the op reads a view of storage 1; op 2 makes it, and did not run since the storage \
         came into memory"
    );
    let verified = valid(&events, &format!(r#"{begin},["run",2],["run",4]]"#));
    assert_eq!((verified.recompute_ns, verified.peak_bytes), (9, 60));
    // A second copy of a storage that is there does not take the view away.
    valid(
        &events,
        r#"[["run",0],["run",1],["run",2],["run",3],["run",1],["run",4]]"#,
    );
}

/// A result that an op writes into, and a reader of the new value.
fn mutated() -> Vec<Event> {
    vec![
        constant(0, 10),
        op(&[0], &[(1, fresh(40))], 7),
        op(&[1], &[(2, IN_PLACE)], 3),
        release(1),
        op(&[2], &[(3, fresh(5))], 1),
        release(2),
    ]
}

#[test]
fn a_first_run_in_place_takes_the_old_block() {
    let events = mutated();
    let verified = valid(&events, r#"[["run",0],["run",1],["run",2],["run",3]]"#);
    assert_eq!(verified.peak_bytes, 55);
    let same = valid(
        &events,
        r#"[["run",0],["run",1],["run",2,"in place"],["run",3]]"#,
    );
    assert_eq!(same, verified);
    let freed = refused(&events, r#"[["run",0],["run",1],["run",2],["free",1]]"#);
    assert!(freed.ends_with("storage 1 is not in memory"), "{freed}");
}

#[test]
fn a_run_again_writes_into_a_copy_or_takes_the_old_block() {
    let events = mutated();
    let begin = r#"[["run",0],["run",1],["run",2],["free",2],["run",1]"#;
    let copied = valid(
        &events,
        &format!(r#"{begin},["run",2],["free",1],["run",3]]"#),
    );
    assert_eq!((copied.peak_bytes, copied.recompute_ns), (90, 10));
    let taken = valid(
        &events,
        &format!(r#"{begin},["run",2,"in place"],["run",3]]"#),
    );
    assert_eq!((taken.peak_bytes, taken.recompute_ns), (55, 10));
    let gone = refused(
        &events,
        &format!(r#"{begin},["run",2,"in place"],["free",1]]"#),
    );
    assert!(gone.ends_with("storage 1 is not in memory"), "{gone}");
}

#[test]
fn a_run_again_in_place_needs_an_old_block_and_no_new_one() {
    let events = mutated();
    assert!(
        refused(&events, r#"[["run",0],["run",1],["run",1,"in place"]]"#)
            .ends_with("the op writes nothing in place")
    );
    assert!(
        refused(
            &events,
            r#"[["run",0],["run",1],["run",2],["run",1],["run",2,"in place"]]"#
        )
        .ends_with("storage 2 is in memory already, and needs no other block")
    );
    assert!(
        refused(&events, r#"[["run",0],["run",1],["run",2],["run",2]]"#)
            .ends_with("the op reads storage 1, which is not in memory")
    );
}

#[test]
fn a_constant_that_was_written_into_is_gone() {
    let events = [constant(0, 10), op(&[0], &[(1, IN_PLACE)], 3), release(0)];
    assert_eq!(valid(&events, r#"[["run",0],["run",1]]"#).peak_bytes, 10);
    assert!(refused(&events, r#"[["run",0],["run",1],["free",0]]"#).ends_with("not in memory"));
    assert!(
        refused(&events, r#"[["run",0],["run",1],["run",1]]"#)
            .ends_with("reads storage 0, which is not in memory")
    );
}

/// A result that is pinned between two ops.
fn pinned() -> Vec<Event> {
    vec![
        constant(0, 10),
        op(&[0], &[(1, fresh(40))], 7),
        Event::Pin { tensor: 1 },
        op(&[0], &[(2, fresh(5))], 1),
    ]
}

#[test]
fn a_pinned_storage_goes_once_the_recording_refers_to_it_no_more() {
    let mut events = pinned();
    events.extend([release(1), op(&[0], &[(3, fresh(5))], 1)]);
    valid(
        &events,
        r#"[["run",0],["run",1],["run",2],["free",1],["run",3]]"#,
    );
    events.swap(4, 5);
    assert!(
        refused(
            &events,
            r#"[["run",0],["run",1],["run",2],["free",1],["run",3]]"#
        )
        .ends_with("storage 1 is pinned and must stay")
    );
}

#[test]
fn a_pinned_storage_stays_from_there_on() {
    let events = pinned();
    valid(&events, r#"[["run",0],["run",1],["run",2]]"#);
    valid(
        &events,
        r#"[["run",0],["run",1],["free",1],["run",1],["run",2]]"#,
    );
    assert_eq!(
        refused(&events, r#"[["run",0],["run",1],["free",1],["run",2]]"#),
        r#"step 3 (["run", 2]): the recording pins storage 1, which is not in memory"#
    );
    assert!(
        refused(&events, r#"[["run",0],["run",1],["run",2],["free",1]]"#)
            .ends_with("storage 1 is pinned and must stay")
    );
}

#[test]
fn a_pin_after_the_last_op_counts_at_the_end() {
    let mut events = pinned();
    events[2..4].reverse();
    valid(&events, r#"[["run",0],["run",1],["run",2]]"#);
    assert_eq!(
        refused(&events, r#"[["run",0],["run",1],["run",2],["free",1]]"#),
        "at the end of the plan: the recording pins storage 1, which is not in memory"
    );
}

#[test]
fn an_op_of_the_program_may_write_into_a_pinned_storage() {
    let mut events = mutated();
    events.insert(2, Event::Pin { tensor: 1 });
    valid(&events, r#"[["run",0],["run",1],["run",2],["run",3]]"#);
    // The old value that comes back afterwards is nobody's.
    valid(
        &events,
        r#"[["run",0],["run",1],["run",2],["run",1],["free",1],["run",3]]"#,
    );
}

#[test]
fn a_run_again_does_not_write_into_a_pinned_storage() {
    let mut events = mutated();
    // The old value is read, and pinned, after it was written into.
    let release = events.remove(3);
    events.extend([
        Event::Pin { tensor: 1 },
        op(&[1], &[(4, fresh(5))], 1),
        op(&[0], &[(5, fresh(5))], 1),
        release,
    ]);
    let begin = r#"[["run",0],["run",1],["run",2],["run",3],["free",2],["run",1],["run",4]"#;
    valid(&events, &format!(r#"{begin},["run",5]]"#));
    assert!(
        refused(
            &events,
            &format!(r#"{begin},["run",2,"in place"],["run",5]]"#)
        )
        .ends_with("storage 1 is pinned and must stay")
    );
}

/// Two results of which one is a view, read outside ops, both after the last reader.
fn ensured() -> Vec<Event> {
    vec![
        constant(0, 10),
        op(&[0], &[(1, fresh(40))], 7),
        op(&[1], &[(2, VIEW)], 2),
        Event::Ensure {
            tensors: vec![1, 2],
        },
        op(&[0], &[(3, fresh(40))], 1),
        Event::Ensure { tensors: vec![2] },
        op(&[0], &[(4, fresh(40))], 1),
        release(1),
        release(2),
    ]
}

#[test]
fn what_is_read_outside_ops_is_there_at_that_place() {
    let events = ensured();
    let end = r#"["run",4]]"#;
    let begin = r#"[["run",0],["run",1],["run",2]"#;
    // At once, and later.
    valid(&events, &format!(r#"{begin},["run",3],["free",1],{end}"#));
    // Dropped in between, and made again for a moment.
    let moment = r#"["free",1],["run",3],["run",1],["run",2],["free",1]"#;
    valid(&events, &format!("{begin},{moment},{end}"));
    assert_eq!(
        refused(&events, &format!(r#"{begin},["free",1],["run",3],{end}"#)),
        r#"step 5 (["run", 4]): the recording reads, outside ops, storage 1, which is not in memory"#
    );
    let unmade = refused(
        &events,
        &format!(r#"{begin},["free",1],["run",3],["run",1],{end}"#),
    );
    assert!(
        unmade.contains("reads, outside ops, a view of storage 1; op 2 makes it"),
        "{unmade}"
    );
}

#[test]
fn claims_are_compared() {
    let events = chain();
    let (plan, _) = claimed(&events, steps(r#"[["run",0],["run",1],["run",2]]"#)).unwrap();
    let fault = |edit: fn(&mut remat_plan::step::StepPlan)| {
        let mut edited = plan.clone();
        edit(&mut edited);
        verify(&events, &edited).unwrap_err().to_string()
    };
    assert!(
        fault(|plan| plan.version = 2).starts_with("it is a plan of version 2, known is version 1")
    );
    assert_eq!(fault(|plan| plan.ops = 4), "it says ops 4, found is 3");
    assert_eq!(
        fault(|plan| plan.storages = 9),
        "it says storages 9, found is 3"
    );
    assert_eq!(
        fault(|plan| plan.peak_bytes -= 1),
        "it says peak_bytes 159, found is 160"
    );
    assert_eq!(
        fault(|plan| plan.cost_ns = 0),
        "it says cost_ns 0, found is 12"
    );
    assert_eq!(
        fault(|plan| plan.recompute_ns = 1),
        "it says recompute_ns 1, found is 0"
    );
    assert_eq!(
        fault(|plan| plan.budget_bytes = 159),
        "its peak of 160 bytes is above its budget of 159"
    );
    assert_eq!(
        fault(|plan| plan.bound_ns = 13),
        "it says bound_ns 13, and takes 12 itself"
    );
}

#[test]
fn recordings_that_contradict_themselves_are_refused() {
    let twice = op(&[0, 0], &[(1, IN_PLACE), (2, IN_PLACE)], 1);
    let cases: [(Vec<Event>, &str); 5] = [
        (
            vec![constant(0, 1), constant(0, 1)],
            "event 1 of the recording makes a tensor that is there",
        ),
        (
            vec![op(&[0], &[], 1)],
            "event 0 of the recording names a tensor that is not there",
        ),
        (
            vec![constant(0, 1), release(0), release(0)],
            "event 2 of the recording names a tensor",
        ),
        (
            vec![constant(0, 1), op(&[], &[(1, VIEW)], 1)],
            "event 1 of the recording makes an output of an input",
        ),
        (
            vec![constant(0, 1), twice],
            "event 1 of the recording writes into a storage twice",
        ),
    ];
    for (events, reason) in cases {
        let fault = verify(&events, &unclaimed(&events, Vec::new())).unwrap_err();
        assert!(fault.to_string().starts_with(reason), "{fault}");
    }
}
