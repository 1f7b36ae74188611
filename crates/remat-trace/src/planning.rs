//! Events about plans of steps that repeat, as the recorded run's engine was told of them.

use crate::guide_line::GuideLine;
use remat_core::{Bytes, Cost, DeviceId, Engine, Guide, StepCosts};
use serde::{Deserialize, Serialize};

/// The version of plans in traces that this crate writes and reads.
pub const ADOPTED_PLAN_VERSION: u32 = 1;

/// One thing that an engine was told about planned steps.
///
/// ```
/// use remat_core::{Guide, GuideAction, StepCosts};
/// use remat_trace::{Event, Planning};
///
/// let actions = [vec![], vec![GuideAction::Drop { op: 0, output: 0 }], vec![GuideAction::Run(0)]];
/// let times = StepCosts::default();
/// let guide = Guide::new(vec![0xa1, 0xa2, 0xa3], &actions, times, times)?;
/// let adopted = Event::Plan(Planning::Follow(Box::new(guide)));
/// let line = serde_json::to_string(&adopted)?;
/// let signatures = "00000000000000a100000000000000a200000000000000a3";
/// assert!(line.starts_with(&format!(r#"{{"plan":{{"follow":{{"v":1,"s":"{signatures}","a":[[1,"drop",0,0],"#)));
/// assert_eq!(serde_json::from_str::<Event>(&line)?, adopted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Planning {
    /// `{"learn":{"p":0}}`: steps that repeat are learned from here on, for a device's memory
    /// ([`Engine::learn_steps`](remat_core::Engine::learn_steps)).
    #[serde(rename = "learn")]
    Learn {
        /// The device.
        #[serde(rename = "p", default)]
        device: u8,
    },
    /// `{"follow":{"v":1,"s":"...","a":[[1,"drop",0,0],[2,"run",0]],"c":[90,30,90,20]}}`: a plan was adopted
    /// ([`Engine::follow`](remat_core::Engine::follow)). `v` is the [version](ADOPTED_PLAN_VERSION), `s` the signature
    /// of each op in 16 hexadecimal digits, `a` the actions, each with the op before which it happens, and `c` the
    /// nanoseconds of ops and of replays, online and then as planned. `n` may list the ops that need no record, and `m`
    /// may say how many bytes their results take at most: a run that is recorded makes no use of them. `k` may list the
    /// results that the plan [keeps](remat_core::Guide::kept), each with the op before its number.
    #[serde(rename = "follow")]
    Follow(#[serde(with = "lines")] Box<Guide>),
    /// `{"took":{"h":"00000000000000a1","c":90}}`: a planned step ended, and took so long
    /// ([`Engine::step_took`](remat_core::Engine::step_took)).
    #[serde(rename = "took")]
    Took {
        /// The hash of its plan.
        #[serde(rename = "h", with = "hexadecimal")]
        hash: u64,
        /// Nanoseconds.
        #[serde(rename = "c")]
        nanoseconds: u64,
    },
    /// `"forget"`: all plans were dropped ([`Engine::forget_steps`](remat_core::Engine::forget_steps)).
    #[serde(rename = "forget")]
    Forget,
}

impl Planning {
    /// Tells an engine the same.
    pub fn tell(&self, engine: &mut Engine) {
        match self {
            Planning::Learn { device } => engine.learn_steps(DeviceId(*device)),
            Planning::Follow(guide) => engine.follow(Guide::clone(guide)),
            Planning::Took { hash, nanoseconds } => engine.step_took(*hash, *nanoseconds),
            Planning::Forget => engine.forget_steps(),
        }
    }

    /// The numbers that it holds, for limits of what is read.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Planning::Follow(guide) => {
                let ops = guide.signatures().len();
                let actions: usize = (0..ops).map(|place| guide.before(place).len()).sum();
                (ops + actions) as u64
            }
            Planning::Learn { .. } | Planning::Took { .. } | Planning::Forget => 0,
        }
    }
}

/// A plan in lists.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    #[serde(rename = "v")]
    version: u32,
    #[serde(rename = "s")]
    signatures: String,
    #[serde(rename = "a", default)]
    actions: Vec<GuideLine>,
    #[serde(rename = "c")]
    costs: [u64; 4],
    #[serde(rename = "n", default, skip_serializing_if = "Vec::is_empty")]
    unrecorded: Vec<u32>,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    unrecorded_bytes: Option<u64>,
    #[serde(rename = "k", default, skip_serializing_if = "Vec::is_empty")]
    kept: Vec<(u32, u32)>,
}

impl From<&Guide> for Lists {
    fn from(guide: &Guide) -> Lists {
        let signatures = guide.signatures();
        let places = (0..signatures.len()).map(|place| (place as u32, guide.before(place)));
        let (online, planned) = (guide.online(), guide.planned());
        Lists {
            version: ADOPTED_PLAN_VERSION,
            signatures: signatures
                .iter()
                .map(|word| format!("{word:016x}"))
                .collect(),
            actions: places
                .flat_map(|(place, actions)| {
                    actions
                        .iter()
                        .map(move |&action| GuideLine::new(place, action))
                })
                .collect(),
            costs: [
                online.first.0,
                online.replayed.0,
                planned.first.0,
                planned.replayed.0,
            ],
            unrecorded: guide.unrecorded().to_vec(),
            unrecorded_bytes: guide.unrecorded_most().map(|most| most.0),
            kept: guide.kept().to_vec(),
        }
    }
}

impl TryFrom<Lists> for Guide {
    type Error = String;

    fn try_from(lists: Lists) -> Result<Guide, String> {
        if lists.version != ADOPTED_PLAN_VERSION {
            return Err(format!(
                "a plan of version {}; this Remat reads version {ADOPTED_PLAN_VERSION}",
                lists.version
            ));
        }
        let words = lists.signatures.as_bytes().chunks(16).map(|digits| {
            let digits = std::str::from_utf8(digits).ok().filter(|d| d.len() == 16);
            digits.and_then(hexadecimal::number)
        });
        let signatures: Option<Vec<u64>> = words.collect();
        let signatures =
            signatures.ok_or("signatures of a plan are numbers of 16 hexadecimal digits")?;
        let mut before = vec![Vec::new(); signatures.len()];
        for (place, action) in lists.actions.iter().map(GuideLine::action) {
            let ops = signatures.len();
            let actions = before.get_mut(place as usize).ok_or_else(|| {
                format!("an action of a plan is before op {place}, and the step has {ops}")
            })?;
            actions.push(action);
        }
        let [online, again, planned, replayed] = lists.costs.map(Cost);
        let costs = |first, replayed| StepCosts { first, replayed };
        let guide = Guide::new(
            signatures,
            &before,
            costs(online, again),
            costs(planned, replayed),
        );
        guide
            .and_then(|guide| {
                guide.with_unrecorded(lists.unrecorded, lists.unrecorded_bytes.map(Bytes))
            })
            .and_then(|guide| guide.with_kept(lists.kept))
            .map_err(|fault| fault.to_string())
    }
}

mod lines {
    use super::Lists;
    use remat_core::Guide;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(super) fn serialize<S: Serializer>(guide: &Guide, to: S) -> Result<S::Ok, S::Error> {
        Lists::from(guide).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Box<Guide>, D::Error> {
        let guide = Guide::try_from(Lists::deserialize(from)?);
        guide.map(Box::new).map_err(de::Error::custom)
    }
}

/// A number of 64 bits, more than many readers of JSON keep.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(word: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{word:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let digits = String::deserialize(from)?;
        number(&digits).ok_or_else(|| {
            de::Error::custom(format!("{digits:?} is no number of hexadecimal digits"))
        })
    }

    /// The number of these digits, if they are digits only and fit into 64 bits. The parser alone takes a sign too.
    pub(super) fn number(digits: &str) -> Option<u64> {
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        plain.then(|| u64::from_str_radix(digits, 16).ok())?
    }
}
