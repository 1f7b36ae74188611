//! A planned step, as a follower needs it.

use super::places::Places;
use crate::ids::{Bytes, Cost};
use crate::random::mix;
use std::fmt;

/// A thing that a plan has happen before an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuideAction {
    /// The storage that an op of the step made as this output is dropped.
    Drop {
        /// The op, by its place in the step.
        op: u32,
        /// The output, by its place among those of the op.
        output: u32,
    },
    /// An op of the step runs again; what it writes into it writes into copies of.
    Run(u32),
    /// An op of the step runs again, and takes the blocks of the values that it writes into.
    RunInPlace(u32),
}

/// The time of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCosts {
    /// That of its ops, each once.
    pub first: Cost,
    /// That of its replays.
    pub replayed: Cost,
}

impl StepCosts {
    /// Replays as a part of the first runs; 0 if those took no time.
    pub fn overhead(self) -> f64 {
        if self.first == Cost(0) {
            return 0.0;
        }
        self.replayed.0 as f64 / self.first.0 as f64
    }
}

/// A plan of a step: the ops by their signatures, and what is to happen before each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guide {
    signatures: Vec<u64>,
    /// Where the actions before each op start, and where the last ones end.
    starts: Vec<u32>,
    actions: Vec<GuideAction>,
    online: StepCosts,
    planned: StepCosts,
    /// Where blocks lie, if memory has addresses and they are planned.
    places: Option<Box<Places>>,
    /// Places of ops that need no record, rising.
    unrecorded: Vec<u32>,
    /// The most that their results take at a time, if the planner says so.
    unrecorded_most: Option<Bytes>,
    /// Results that stay after the program let go of them: ops and outputs, rising.
    kept: Vec<(u32, u32)>,
    /// Of the ops up to each the most that, from the last ones on, are the first ones too, but not all of them (Knuth,
    /// Morris, Pratt 1977).
    borders: Vec<u32>,
}

/// A guide names an op that comes later or that the step does not have, or has a wrong number of lists of actions or
/// places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidGuide;

impl fmt::Display for InvalidGuide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a guide needs a list of actions for each op, of ops before it, and places for all or none")
    }
}

impl std::error::Error for InvalidGuide {}

impl Guide {
    /// A guide from the signatures of a step's ops ([`Recorded::signatures`](crate::Recorded)), the actions before
    /// each, and the time of the step without the guide and as planned.
    ///
    /// # Errors
    /// [`InvalidGuide`].
    pub fn new(
        signatures: Vec<u64>,
        actions: &[Vec<GuideAction>],
        online: StepCosts,
        planned: StepCosts,
    ) -> Result<Guide, InvalidGuide> {
        if signatures.is_empty() || actions.len() != signatures.len() {
            return Err(InvalidGuide);
        }
        let mut guide = Guide {
            borders: borders(&signatures),
            signatures,
            starts: vec![0],
            actions: Vec::new(),
            online,
            planned,
            places: None,
            unrecorded: Vec::new(),
            unrecorded_most: None,
            kept: Vec::new(),
        };
        for (place, before) in (0..).zip(actions) {
            let earlier = |action: &GuideAction| match *action {
                GuideAction::Drop { op, .. }
                | GuideAction::Run(op)
                | GuideAction::RunInPlace(op) => op < place,
            };
            if !before.iter().all(earlier) {
                return Err(InvalidGuide);
            }
            guide.actions.extend_from_slice(before);
            guide.starts.push(guide.actions.len() as u32);
        }
        Ok(guide)
    }

    /// The same, with blocks at these places wherever they are free.
    ///
    /// # Errors
    /// [`InvalidGuide`] for another number of lists than the guide has ops and actions.
    pub fn with_places(self, places: Places) -> Result<Guide, InvalidGuide> {
        if !places.fit(self.signatures.len(), self.actions.len()) {
            return Err(InvalidGuide);
        }
        Ok(Guide {
            places: Some(Box::new(places)),
            ..self
        })
    }

    /// The same, with the places of ops that need no record, from the first on: the actions neither run them nor drop
    /// what they make, and the engine forgets the records that read it by the time the program lets go of it. As
    /// planned, their results that are no constants anyway take so many bytes at most at a time.
    ///
    /// # Errors
    /// [`InvalidGuide`] for places that do not rise or that the step does not have.
    pub fn with_unrecorded(
        self,
        unrecorded: Vec<u32>,
        most: Option<Bytes>,
    ) -> Result<Guide, InvalidGuide> {
        let rise = unrecorded.windows(2).all(|two| two[0] < two[1]);
        let last = unrecorded.last().copied();
        if !rise || last.is_some_and(|last| last as usize >= self.signatures.len()) {
            return Err(InvalidGuide);
        }
        Ok(Guide {
            unrecorded,
            unrecorded_most: most,
            ..self
        })
    }

    /// The same, with results that stay after the program let go of them, until an action drops them: the places of
    /// their ops and the outputs, from the first on.
    ///
    /// # Errors
    /// [`InvalidGuide`] for results that do not rise or whose ops the step does not have.
    pub fn with_kept(self, kept: Vec<(u32, u32)>) -> Result<Guide, InvalidGuide> {
        let rise = kept.windows(2).all(|two| two[0] < two[1]);
        let last = kept.last().copied();
        if !rise || last.is_some_and(|(op, _)| op as usize >= self.signatures.len()) {
            return Err(InvalidGuide);
        }
        Ok(Guide { kept, ..self })
    }

    /// The results that stay after the program let go of them: the places of their ops and the outputs.
    pub fn kept(&self) -> &[(u32, u32)] {
        &self.kept
    }

    /// Those of the op at a place.
    pub(super) fn kept_of(&self, place: usize) -> impl Iterator<Item = u32> + '_ {
        let from = self.kept.partition_point(|&(op, _)| (op as usize) < place);
        let own = self.kept[from..].iter();
        own.take_while(move |&&(op, _)| op as usize == place)
            .map(|&(_, output)| output)
    }

    /// The places of ops that need no record.
    pub fn unrecorded(&self) -> &[u32] {
        &self.unrecorded
    }

    /// The most bytes that their results take at a time as planned, but for those that are constants anyway; `None` if
    /// the guide does not say.
    pub fn unrecorded_most(&self) -> Option<Bytes> {
        self.unrecorded_most
    }

    /// Where blocks lie, if that is planned.
    pub fn places(&self) -> Option<&Places> {
        self.places.as_deref()
    }

    /// The addresses of the blocks of the op at a place, and of an action before it.
    pub(super) fn blocks_of(&self, place: usize, action: Option<usize>) -> &[u64] {
        let Some(places) = &self.places else {
            return &[];
        };
        match action {
            None => places.runs.at(place),
            Some(action) => places.actions.at(self.starts[place] as usize + action),
        }
    }

    /// The signatures of the step's ops.
    pub fn signatures(&self) -> &[u64] {
        &self.signatures
    }

    /// The actions before the op at a place. Panics for a place that the step does not have.
    pub fn before(&self, place: usize) -> &[GuideAction] {
        &self.actions[self.starts[place] as usize..self.starts[place + 1] as usize]
    }

    /// The time of the step without the guide.
    pub fn online(&self) -> StepCosts {
        self.online
    }

    /// The time of the step as planned.
    pub fn planned(&self) -> StepCosts {
        self.planned
    }

    /// Whether the engine would give it up: it replays more than is replayed without it, by more than a hundredth of
    /// the step's time.
    pub fn is_hopeless(&self) -> bool {
        self.is_beaten(self.planned)
    }

    /// A hash of the step's ops, whichever comes first.
    pub fn hash(&self) -> u64 {
        hash(&self.signatures)
    }

    /// The cost of replays without the guide, in a step whose ops take so long, each once.
    pub(super) fn online_at(&self, first: Cost) -> Cost {
        let online = self.online;
        let scaled = u128::from(online.replayed.0) * u128::from(first.0);
        let scaled = scaled / u128::from(online.first.0.max(1));
        Cost(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// The ops of the step.
    pub(super) fn len(&self) -> usize {
        self.signatures.len()
    }

    /// Whether a step that took so long replayed more than one without the guide, by more than a hundredth of its time:
    /// costs that are measured again move by less.
    pub(super) fn is_beaten(&self, step: StepCosts) -> bool {
        let hundredth = step.first.0 / 100;
        step.replayed.0 > self.online_at(step.first).0.saturating_add(hundredth)
    }

    /// Whether the op at a place of the step has this signature.
    pub(super) fn is_at(&self, place: usize, signature: u64) -> bool {
        self.signatures.get(place) == Some(&signature)
    }

    /// The program came up to a place and goes on with another op. How many of its latest ops, that one not counted,
    /// are the first ones of this step, so that this op comes next in it; `None` if no such number is.
    pub(super) fn fall_back(&self, place: usize, signature: u64) -> Option<usize> {
        let mut place = place;
        while place > 0 {
            place = self.borders[place - 1] as usize;
            if self.is_at(place, signature) {
                return Some(place);
            }
        }
        None
    }

    /// Whether it starts like another guide up to a place.
    pub(super) fn starts_like(&self, other: &Guide, place: usize) -> bool {
        self.len() > place && self.signatures[..place] == other.signatures[..place]
    }
}

/// A hash of ops by their signatures, whichever comes first.
pub(super) fn hash(signatures: &[u64]) -> u64 {
    let hashes = signatures.iter().map(|&signature| mix(signature));
    hashes.fold(0, u64::wrapping_add)
}

fn borders(signatures: &[u64]) -> Vec<u32> {
    let mut borders: Vec<u32> = vec![0];
    let mut border = 0;
    for place in 1..signatures.len() {
        while border > 0 && signatures[border] != signatures[place] {
            border = borders[border - 1] as usize;
        }
        border += usize::from(signatures[border] == signatures[place]);
        borders.push(border as u32);
    }
    borders
}
