//! Ops of a planned step that leave no record: the plan replays none of them, and drops nothing that they make.

/// Left behind by an op of a followed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// A record.
    Record,
    /// Constants, which the engine is told of as the op is announced.
    Constants,
    /// Constants, and it need not be announced.
    Nothing,
}

/// The ops of a followed step by their forms, which tell them apart without the engine's being told of their inputs.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// Of each op the number of its form, 0 for one without, and its signature apart from its inputs.
    seen: Vec<(u64, u64)>,
    /// Left behind by the op at each place. Empty until a whole step was seen.
    leaves: Vec<Leaves>,
    /// Steps in a row of which the rest had to be recorded.
    interrupted: u32,
    /// All ops are recorded from now on.
    given_up: bool,
}

/// Steps in a row of which the rest may have to be recorded.
const INTERRUPTIONS: u32 = 2;

impl Forms {
    /// The op at a place was announced.
    pub(super) fn see(&mut self, place: usize, form: u64, outputs: u64) {
        if self.given_up || self.are_known() {
            return;
        }
        // A step that was entered amid another is not seen whole.
        self.seen.truncate(place);
        if self.seen.len() == place {
            self.seen.push((form, outputs));
        }
    }

    /// A step of so many ops ended. Those of a known form that need no record need not be announced, but for those
    /// before which the plan acts.
    pub(super) fn end(&mut self, ops: usize, unrecorded: &[u32], acts: impl Fn(usize) -> bool) {
        if self.given_up || self.are_known() || self.seen.len() != ops {
            return;
        }
        let mut leaves = vec![Leaves::Record; ops];
        for &op in unrecorded {
            let at = op as usize;
            // The first op is how the step is known.
            let passes = at > 0 && self.seen[at].0 != 0 && !acts(at);
            leaves[at] = if passes {
                Leaves::Nothing
            } else {
                Leaves::Constants
            };
        }
        self.leaves = leaves;
    }

    /// Whether the op at a place, of this form, need not be announced.
    pub(super) fn pass(&self, place: usize, form: u64) -> bool {
        self.leaves.get(place) == Some(&Leaves::Nothing) && self.seen[place].0 == form
    }

    /// Whether the op at a place needs no record, and a whole step was seen.
    pub(super) fn forgo(&self, place: usize) -> bool {
        let leaves = self.leaves.get(place);
        leaves.is_some_and(|&leaves| leaves != Leaves::Record)
    }

    /// Whether the op at a place makes such results.
    pub(super) fn makes(&self, place: usize, outputs: u64) -> bool {
        self.seen.get(place).is_some_and(|seen| seen.1 == outputs)
    }

    /// The rest of a step has to be recorded.
    pub(super) fn interrupt(&mut self) {
        self.interrupted += 1;
        if self.interrupted > INTERRUPTIONS {
            self.give_up();
        }
    }

    /// A step ended without that.
    pub(super) fn complete(&mut self) {
        self.interrupted = 0;
    }

    /// All ops are recorded from now on.
    pub(super) fn give_up(&mut self) {
        *self = Forms {
            given_up: true,
            ..Forms::default()
        };
    }

    /// Whether ops go without records: a whole step was seen.
    fn are_known(&self) -> bool {
        !self.leaves.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Forms;

    #[test]
    fn ops_of_known_forms_pass_once_a_whole_step_was_seen() {
        let mut forms = Forms::default();
        for (place, form) in [9, 9, 0, 8, 9].into_iter().enumerate() {
            forms.see(place, form, 0);
            assert!(!forms.pass(place, form));
        }
        forms.end(5, &[0, 1, 2, 3], |place| place == 3);
        let passes: Vec<usize> = (0..5).filter(|&place| forms.pass(place, 9)).collect();
        // The first op tells the step, the third has no form, the plan acts before the fourth, and needs the last.
        assert_eq!(passes, [1]);
        assert!(!forms.pass(1, 8));
        let forgo: Vec<usize> = (0..6).filter(|&place| forms.forgo(place)).collect();
        assert_eq!(forgo, [0, 1, 2, 3]);
        forms.give_up();
        assert!(!forms.pass(1, 9) && !forms.forgo(1));
    }

    #[test]
    fn steps_are_recorded_whole_once_the_rest_of_some_in_a_row_had_to_be() {
        let mut forms = Forms::default();
        for place in 0..3 {
            forms.see(place, 9, 0);
        }
        forms.end(3, &[1], |_| false);
        for _ in 0..5 {
            forms.interrupt();
            forms.interrupt();
            forms.complete();
        }
        assert!(forms.pass(1, 9));
        for _ in 0..3 {
            forms.interrupt();
        }
        assert!(!forms.pass(1, 9) && !forms.forgo(1));
    }

    #[test]
    fn a_step_that_was_not_seen_whole_is_recorded() {
        let mut forms = Forms::default();
        forms.see(1, 9, 0);
        forms.see(2, 9, 0);
        forms.end(3, &[1], |_| false);
        assert!(!forms.pass(1, 9));
    }
}
