//! A guide that is followed, and how it did.

use super::drift::Drift;
use super::plan::Guide;
use super::trial::Trial;
use super::unrecorded::Forms;

/// A guide in force, and how it did.
pub(super) struct InForce {
    pub(super) guide: Guide,
    /// A later plan of the same ops, from the next step on.
    pub(super) next: Option<Guide>,
    pub(super) hash: u64,
    pub(super) strikes: u32,
    /// Whether it pays is still open.
    pub(super) trial: Option<Trial>,
    /// It stayed after a trial, or one that replays as much did.
    pub(super) proven: bool,
    pub(super) drift: Drift,
    pub(super) forms: Forms,
}

impl InForce {
    pub(super) fn of(guide: Guide) -> InForce {
        InForce {
            hash: guide.hash(),
            // In an arena a plan also spares searches and moves.
            trial: Trial::of(&guide).filter(|_| guide.places().is_none()),
            drift: Drift::from(guide.planned()),
            guide,
            next: None,
            proven: false,
            strikes: 0,
            forms: Forms::default(),
        }
    }

    /// A step begins: a later plan of the same ops takes the place of this one. Returns whether there is one.
    pub(super) fn turn(&mut self) -> bool {
        let Some(guide) = self.next.take() else {
            return false;
        };
        let before = std::mem::replace(self, InForce::of(guide));
        self.drift.wait_like(&before.drift);
        let planned = self.guide.planned();
        self.proven = before.proven && planned.overhead() <= before.guide.planned().overhead();
        if self.proven {
            self.trial = None;
        }
        true
    }

    /// Whether its actions are left out for now.
    pub(super) fn rests(&self) -> bool {
        self.trial.as_ref().is_some_and(Trial::rests)
    }
}
