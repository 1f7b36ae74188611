//! The recording as JSON: the one description from which all files are made.
//!
//! Lists of like things are columns. Times are tenths of a microsecond since the run began; those of a step's events
//! are differences, each to the event before, the first to the step's beginning.

use serde::Serialize;

use super::blocks::KINDS;
use super::event::{Detail, Event};
use super::level::Level;
use super::places::{Cost, PHASES, Places, Site};
use super::recorder::Recorder;
use super::steps::{Kept, Line, Role};

/// Steps are kept while their events take so many bytes or fewer, about.
const MOST_BYTES: usize = 14 << 20;

/// Bytes that an event, or a block, takes at most, about.
const EACH: usize = 24;

#[derive(Serialize)]
struct Told<'a> {
    /// Microseconds since 1970 when the run began.
    unix: u64,
    kinds: [&'static str; KINDS.len()],
    phases: [&'static str; PHASES.len()],
    names: &'a [String],
    sites: Sites<'a>,
    places: PlaceColumns,
    costs: Costs,
    /// Ops whose place is that of a like op, because asking for it would have taken too long.
    guessed: u64,
    steps: Lines,
    /// How many steps there were.
    count: u64,
    kept: Vec<Step>,
}

#[derive(Serialize)]
struct Sites<'a> {
    module: Vec<&'a str>,
    file: Vec<&'a str>,
    line: Vec<u32>,
    function: Vec<&'a str>,
}

#[derive(Serialize)]
struct PlaceColumns {
    name: Vec<u32>,
    site: Vec<u32>,
    phase: Vec<u8>,
}

#[derive(Serialize)]
struct Costs {
    ops: Vec<u64>,
    took: Vec<u64>,
    replays: Vec<u64>,
    replayed: Vec<u64>,
    returned: Vec<u64>,
    evictions: Vec<u64>,
    evicted: Vec<u64>,
}

#[derive(Serialize)]
struct Lines {
    number: Vec<u64>,
    count: Vec<u64>,
    began: Vec<u64>,
    ended: Vec<u64>,
    kind: Vec<u32>,
    planned: Vec<u64>,
    ops: Vec<u64>,
    evictions: Vec<u64>,
    evicted: Vec<u64>,
    replays: Vec<u64>,
    replayed: Vec<u64>,
    /// Bytes of each kind where the step's memory was highest, and those of workspace.
    peak: Vec<Vec<u64>>,
    workspace: Vec<u64>,
}

/// A step in detail. Codes of events: 0 op, 1 replay, 2 born, 3 died, 4 evicted, 5 returned, 6 outside. An event is of
/// a place (0, 1), of a block (2 to 5), or of bytes (6). `took` and `workspace` are of ops and replays alone, in order.
#[derive(Serialize)]
struct Step {
    number: u64,
    kind: u32,
    began: u64,
    ended: u64,
    planned: u64,
    roles: Vec<&'static str>,
    /// Bytes that torch did not allocate, when it began.
    outside: i64,
    at: Vec<u64>,
    code: Vec<u8>,
    of: Vec<i64>,
    took: Vec<u32>,
    workspace: Vec<u64>,
    blocks: Blocks,
}

#[derive(Default, Serialize)]
struct Blocks {
    bytes: Vec<u64>,
    kind: Vec<u8>,
    place: Vec<u32>,
    serial: Vec<u64>,
    there: Vec<u8>,
}

fn column<A, B>(all: &[A], of: impl Fn(&A) -> B) -> Vec<B> {
    all.iter().map(of).collect()
}

impl<'a> Sites<'a> {
    fn of(all: &'a [Site]) -> Sites<'a> {
        Sites {
            module: all.iter().map(|site| site.module.as_str()).collect(),
            file: all.iter().map(|site| site.file.as_str()).collect(),
            line: column(all, |site| site.line),
            function: all.iter().map(|site| site.function.as_str()).collect(),
        }
    }
}

impl PlaceColumns {
    fn of(places: &Places) -> PlaceColumns {
        let all = &places.places.all;
        PlaceColumns {
            name: column(all, |place| place.name),
            site: column(all, |place| place.site),
            phase: column(all, |place| place.phase as u8),
        }
    }
}

impl Costs {
    fn of(all: &[Cost]) -> Costs {
        Costs {
            ops: column(all, |cost| cost.ops),
            took: column(all, |cost| cost.took),
            replays: column(all, |cost| cost.replays),
            replayed: column(all, |cost| cost.replayed),
            returned: column(all, |cost| cost.returned),
            evictions: column(all, |cost| cost.evictions),
            evicted: column(all, |cost| cost.evicted),
        }
    }
}

impl Lines {
    fn of(all: &[Line]) -> Lines {
        let peak = |of: &dyn Fn(&Level) -> u64| column(all, |line| of(&line.sum.peak));
        Lines {
            number: column(all, |line| line.number),
            count: column(all, |line| line.count),
            began: column(all, |line| line.began),
            ended: column(all, |line| line.ended),
            kind: column(all, |line| line.kind),
            planned: column(all, |line| line.planned),
            ops: column(all, |line| line.sum.ops),
            evictions: column(all, |line| line.sum.evictions),
            evicted: column(all, |line| line.sum.evicted_bytes),
            replays: column(all, |line| line.sum.replays),
            replayed: column(all, |line| line.sum.replayed),
            peak: (0..KINDS.len())
                .map(|kind| peak(&|level| level.kinds[kind]))
                .collect(),
            workspace: peak(&|level| level.workspace),
        }
    }
}

impl Recorder {
    /// Ends the recording's last step, and tells all of it as JSON.
    pub fn told(&mut self) -> serde_json::Result<String> {
        self.end();
        serde_json::to_string(&Told {
            unix: self.unix,
            kinds: KINDS,
            phases: PHASES,
            names: &self.places.names.all,
            sites: Sites::of(&self.places.sites.all),
            places: PlaceColumns::of(&self.places),
            costs: Costs::of(&self.places.costs),
            guessed: self.places.guessed,
            steps: Lines::of(&self.steps.lines),
            count: self.steps.count,
            kept: self.kept(),
        })
    }

    /// The steps that are told in detail, in order; the most important ones, if not all have room.
    fn kept(&self) -> Vec<Step> {
        const RANKS: [Role; 6] = [
            Role::Peak,
            Role::First,
            Role::Last,
            Role::Recomputing,
            Role::Longest,
            Role::Kind,
        ];
        let rank = |kept: &Kept| RANKS.iter().position(|role| kept.roles.contains(role));
        let mut ranked: Vec<&Kept> = self.steps.kept.iter().collect();
        ranked.sort_by_key(|kept| rank(kept));
        let mut left = MOST_BYTES;
        ranked.retain(|kept| {
            let size = EACH * (kept.detail.events.len() + kept.detail.blocks.len());
            let fits = size <= left;
            if fits {
                left -= size;
            }
            fits
        });
        ranked.sort_by_key(|kept| kept.line.number);
        ranked.into_iter().map(|kept| self.step(kept)).collect()
    }

    fn step(&self, kept: &Kept) -> Step {
        let Kept {
            line,
            roles,
            detail,
        } = kept;
        let (numbers, blocks) = self.blocks_of(detail);
        let mut step = Step {
            number: line.number,
            kind: line.kind,
            began: line.began,
            ended: line.ended,
            planned: line.planned,
            roles: roles.iter().map(|role| role.text()).collect(),
            outside: detail.outside,
            at: Vec::with_capacity(detail.events.len()),
            code: Vec::with_capacity(detail.events.len()),
            of: Vec::with_capacity(detail.events.len()),
            took: Vec::new(),
            workspace: Vec::new(),
            blocks,
        };
        let mut before = line.began;
        for event in &detail.events {
            let number = |block: &u32| numbers[*block as usize];
            let (code, of) = match event {
                Event::Op {
                    took,
                    place,
                    workspace,
                    ..
                }
                | Event::Replay {
                    took,
                    place,
                    workspace,
                    ..
                } => {
                    step.took.push(*took);
                    step.workspace.push(*workspace);
                    let again = matches!(event, Event::Replay { .. });
                    (u8::from(again), i64::from(*place))
                }
                Event::Born { block, .. } => (2, number(block)),
                Event::Died { block, .. } => (3, number(block)),
                Event::Evicted { block, .. } => (4, number(block)),
                Event::Returned { block, .. } => (5, number(block)),
                Event::Outside { bytes, .. } => (6, *bytes),
            };
            if code != 6 && of < 0 {
                continue; // of another device
            }
            // What was there before the step's first op has no time of its own.
            let at = event.at().max(before);
            step.at.push(at - before);
            step.code.push(code);
            step.of.push(of);
            before = at;
        }
        step
    }

    /// The blocks of a step on the device that is reported, and for each block of the step its number among them, or
    /// -1.
    fn blocks_of(&self, detail: &Detail) -> (Vec<i64>, Blocks) {
        let mut numbers = vec![-1; detail.blocks.len()];
        let mut used = vec![false; detail.blocks.len()];
        for event in &detail.events {
            if let Event::Born { block, .. }
            | Event::Died { block, .. }
            | Event::Evicted { block, .. }
            | Event::Returned { block, .. } = *event
            {
                used[block as usize] = true;
            }
        }
        let mut columns = Blocks::default();
        for (id, block) in detail.blocks.iter().enumerate() {
            if block.device != self.device || !(used[id] || block.there) {
                continue;
            }
            numbers[id] = columns.bytes.len() as i64;
            columns.bytes.push(block.bytes);
            columns.kind.push(block.kind as u8);
            columns.place.push(block.place);
            columns.serial.push(block.serial);
            columns.there.push(u8::from(block.there));
        }
        (numbers, columns)
    }
}
