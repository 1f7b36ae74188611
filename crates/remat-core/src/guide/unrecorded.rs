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
    /// Nothing, and its results go before anybody asks for them: the front end need not take note of them.
    Transient,
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
    /// Of each op the results that are noted in this step. Empty before the first step whose ops are known.
    noted: Vec<Noted>,
    /// Whether a result was asked for in this step of which nobody took note.
    asked: bool,
    /// Steps with transient ops in a row in which that was so, or that were left.
    asked_in_a_row: u32,
    /// No op is transient from now on.
    notes_all: bool,
}

/// The results of an op that passed, as far as the front end took note of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noted {
    /// Nothing was told in this step.
    Untold,
    /// So many are there.
    There(u32),
    /// Some have to be known, as a record reads them.
    Needed,
}

/// The ops that a step begins with, as the guide knows them that was followed there.
pub(super) struct Met {
    seen: Vec<(u64, u64)>,
    noted: Vec<Noted>,
}

/// Steps in a row of which the rest may have to be recorded.
const INTERRUPTIONS: u32 = 2;

/// Steps in a row in which a result may be asked for of which nobody took note.
const ASKED: u32 = 2;

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
        if self.are_known() {
            return self.learn_transient();
        }
        if self.given_up || self.seen.len() != ops {
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

    /// A step begins. If the one before was left, its transient ops may be why.
    pub(super) fn begin(&mut self) {
        if !self.noted.is_empty() {
            self.asked = true;
            self.learn_transient();
        }
        self.asked = false;
        let length = if self.notes_all { 0 } else { self.leaves.len() };
        self.noted.resize(length, Noted::Untold);
    }

    /// The step is that of another guide from a place on, which has the same ops up to there. Returns what is known of
    /// these.
    pub(super) fn hand_over(&mut self, place: usize) -> Met {
        let before = |len: usize| ..place.min(len);
        let met = Met {
            seen: self.seen[before(self.seen.len())].to_vec(),
            noted: self.noted[before(self.noted.len())].to_vec(),
        };
        self.noted.clear();
        met
    }

    /// A step begins, as that of another guide so far.
    pub(super) fn begin_amid(&mut self, met: Met) {
        self.begin();
        if !self.given_up && !self.are_known() {
            self.seen = met.seen;
        }
        for (noted, met) in self.noted.iter_mut().zip(met.noted) {
            *noted = met;
        }
    }

    /// The op at a place passed and left so many results; `None` if they have to be known.
    pub(super) fn note_left(&mut self, place: usize, results: Option<u32>) {
        if let Some(noted) = self.noted.get_mut(place) {
            *noted = match (*noted, results) {
                (Noted::Untold, Some(results)) => Noted::There(results),
                (Noted::There(before), Some(results)) => Noted::There(before + results),
                _ => Noted::Needed,
            };
        }
    }

    /// A result of the op at a place is there no more, and no record read it.
    pub(super) fn note_gone(&mut self, place: usize) {
        if let Some(Noted::There(results)) = self.noted.get_mut(place) {
            *results = results.saturating_sub(1);
        }
    }

    /// A result was asked for of which nobody took note.
    pub(super) fn note_asked(&mut self) {
        self.asked = true;
    }

    /// A step ended whose ops were known as it began. Results that were all gone again need not be noted in the next.
    /// If one was asked for of which nobody took note, all are noted in the next step.
    fn learn_transient(&mut self) {
        let transient = |leaves: &Leaves| *leaves == Leaves::Transient;
        if self.leaves.iter().any(transient) {
            self.asked_in_a_row = if self.asked {
                self.asked_in_a_row + 1
            } else {
                0
            };
            self.notes_all = self.asked_in_a_row > ASKED;
        }
        for (place, noted) in self.noted.drain(..).enumerate() {
            let leaves = &mut self.leaves[place];
            let passes = matches!(leaves, Leaves::Nothing | Leaves::Transient);
            match noted {
                _ if !passes => {}
                _ if self.asked => *leaves = Leaves::Nothing,
                Noted::There(0) => *leaves = Leaves::Transient,
                Noted::There(_) | Noted::Needed => *leaves = Leaves::Nothing,
                Noted::Untold => {}
            }
        }
        // The step ends with its last op.
        if let Some(last) = self.leaves.last_mut().filter(|last| transient(last)) {
            *last = Leaves::Nothing;
        }
    }

    /// Whether the op at a place, of this form, need not be announced.
    pub(super) fn pass(&self, place: usize, form: u64) -> bool {
        let leaves = self.leaves.get(place);
        let passes = matches!(leaves, Some(Leaves::Nothing | Leaves::Transient));
        passes && self.seen[place].0 == form
    }

    /// The form of the op at a place, if nobody need take note of its results either.
    pub(super) fn transient(&self, place: usize) -> Option<u64> {
        let transient = self.leaves.get(place) == Some(&Leaves::Transient);
        transient.then(|| self.seen[place].0)
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

    /// Forms of a step of four ops, of which the second and the third pass.
    fn passing() -> Forms {
        let mut forms = Forms::default();
        for place in 0..4 {
            forms.see(place, 9, 0);
        }
        forms.end(4, &[1, 2], |_| false);
        forms
    }

    /// A step in which the two ops that pass leave a result each, of which so many are gone at the end.
    fn step(forms: &mut Forms, gone: usize) -> Vec<usize> {
        forms.begin();
        let transient: Vec<usize> = (0..4)
            .filter(|&at| forms.transient(at) == Some(9))
            .collect();
        for place in [1, 2] {
            if !transient.contains(&place) {
                forms.note_left(place, Some(1));
            }
        }
        (1..=gone).for_each(|place| forms.note_gone(place));
        forms.end(4, &[1, 2], |_| false);
        transient
    }

    #[test]
    fn ops_are_transient_whose_results_were_gone_when_the_step_before_ended() {
        let mut forms = passing();
        assert!(step(&mut forms, 1).is_empty());
        assert_eq!(step(&mut forms, 2), [1]);
        assert_eq!(step(&mut forms, 2), [1, 2]);
        assert!(forms.pass(1, 9) && forms.transient(1) == Some(9));
    }

    #[test]
    fn an_op_whose_results_have_to_be_known_is_not_transient() {
        let mut forms = passing();
        forms.begin();
        forms.note_left(1, Some(0));
        forms.note_left(2, None);
        forms.note_gone(2);
        forms.end(4, &[1, 2], |_| false);
        assert_eq!(step(&mut forms, 0), [1]);
    }

    #[test]
    fn a_step_that_is_left_may_be_so_for_its_transient_ops() {
        let mut forms = passing();
        step(&mut forms, 2);
        assert_eq!(step(&mut forms, 2), [1, 2]);
        forms.begin();
        assert!(step(&mut forms, 2).is_empty());
        assert_eq!(step(&mut forms, 2), [1, 2]);
    }

    #[test]
    fn a_step_that_goes_on_as_another_was_not_left() {
        let mut forms = passing();
        step(&mut forms, 2);
        assert_eq!(step(&mut forms, 2), [1, 2]);
        forms.begin();
        let mut other = Forms::default();
        other.begin_amid(forms.hand_over(2));
        assert_eq!(step(&mut forms, 2), [1, 2]);
        // Of the other one's step all ops were seen.
        (2..4).for_each(|place| other.see(place, 9, 0));
        other.end(4, &[1, 2], |_| false);
        assert!(other.pass(1, 9) && other.pass(2, 9));
    }

    #[test]
    fn what_was_noted_before_it_went_on_as_another_counts() {
        let (mut forms, mut other) = (passing(), passing());
        forms.begin();
        forms.note_left(1, Some(1));
        forms.note_gone(1);
        other.begin_amid(forms.hand_over(2));
        other.note_left(2, Some(1));
        other.note_gone(2);
        other.end(4, &[1, 2], |_| false);
        assert_eq!(step(&mut other, 2), [1, 2]);
    }

    #[test]
    fn the_last_op_of_a_step_is_not_transient() {
        let mut forms = Forms::default();
        (0..3).for_each(|place| forms.see(place, 9, 0));
        forms.end(3, &[1, 2], |_| false);
        step(&mut forms, 2);
        assert_eq!(step(&mut forms, 2), [1]);
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
