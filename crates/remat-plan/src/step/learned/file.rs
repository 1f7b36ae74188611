//! Plans of learned steps as a file holds them.

use crate::step::plan::step_plan::StepPlan;
use remat_core::{Bytes, Cost, Guide, StepCosts};
use remat_trace::GuideLine;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of [`PlannedSteps`] that this crate writes and reads. Signatures of ops are part of it.
pub const PLANNED_STEPS_VERSION: u32 = 1;

/// The steps that a run planned, as a file holds them for other runs of the program.
///
/// ```
/// use remat_plan::step::PlannedSteps;
///
/// let text = r#"{"remat-planned-steps": 1, "device": "cpu", "budget_bytes": 4096, "steps": [
///     {"cost_ns": 90, "recompute_ns": 20, "bound_ns": 110, "online_cost_ns": 90, "online_recompute_ns": 30,
///      "signatures": ["00000000000000a1", "00000000000000a2", "00000000000000a3"],
///      "actions": [[1, "drop", 0, 0], [2, "run", 0]]}]}"#;
/// let plans = PlannedSteps::from_json(text)?;
/// assert_eq!(plans.steps[0].guide.signatures(), [0xa1, 0xa2, 0xa3]);
/// assert_eq!(PlannedSteps::from_json(&plans.to_json())?, plans);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedSteps {
    /// The version, [`PLANNED_STEPS_VERSION`].
    #[serde(rename = "remat-planned-steps")]
    version: u32,
    /// The name of the device whose memory is planned, such as `cuda:0`.
    pub device: String,
    /// The budget that the plans meet, in bytes.
    pub budget_bytes: u64,
    /// A plan for each kind of step.
    pub steps: Vec<PlannedStep>,
}

/// A planned step, and what every plan of it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Lists", into = "Lists")]
#[non_exhaustive]
pub struct PlannedStep {
    /// The plan as an engine follows it.
    pub guide: Guide,
    /// Nanoseconds that every schedule within the budget takes at least whose first runs are in program order.
    pub bound_ns: u64,
    /// The most bytes in memory at a time; `None` in files of earlier versions.
    pub peak_bytes: Option<u64>,
}

/// Why a text holds no plans of steps.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlannedStepsError {
    /// It is a plan that `remat plan step` made of a recording.
    OfARecording,
    /// It is of another version.
    Version(u32),
    /// It is no JSON, lacks something, or names an op that comes later.
    Text(serde_json::Error),
}

impl fmt::Display for PlannedStepsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlannedStepsError::OfARecording => f.write_str(
                "it is a plan of a recorded step (remat plan step); wanted is one that a run wrote (--plan-out)",
            ),
            PlannedStepsError::Version(version) => write!(
                f,
                "it is of version {version}, this Remat reads version {PLANNED_STEPS_VERSION}; \
                 have it written anew (--plan-out)"
            ),
            PlannedStepsError::Text(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for PlannedStepsError {}

impl PlannedSteps {
    /// No plans yet, for a device and a budget in bytes.
    pub fn new(device: &str, budget_bytes: u64) -> PlannedSteps {
        PlannedSteps {
            version: PLANNED_STEPS_VERSION,
            device: device.into(),
            budget_bytes,
            steps: Vec::new(),
        }
    }

    /// Adds a plan, in place of one of the same ops if there is one.
    pub fn add(&mut self, step: PlannedStep) {
        let same = |other: &PlannedStep| other.guide.signatures() == step.guide.signatures();
        match self.steps.iter().position(same) {
            Some(at) => self.steps[at] = step,
            None => self.steps.push(step),
        }
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// [`PlannedStepsError`].
    pub fn from_json(text: &str) -> Result<PlannedSteps, PlannedStepsError> {
        /// The keys that tell files apart.
        #[derive(Deserialize)]
        struct Head {
            #[serde(rename = "remat-planned-steps")]
            version: Option<u32>,
            #[serde(rename = "remat-step-plan")]
            of_a_recording: Option<u32>,
        }
        match serde_json::from_str(text).map_err(PlannedStepsError::Text)? {
            Head {
                version: Some(PLANNED_STEPS_VERSION),
                ..
            } => serde_json::from_str(text).map_err(PlannedStepsError::Text),
            Head {
                version: Some(other),
                ..
            } => Err(PlannedStepsError::Version(other)),
            Head {
                of_a_recording: Some(_),
                ..
            } => Err(PlannedStepsError::OfARecording),
            _ => serde_json::from_str(text).map_err(PlannedStepsError::Text),
        }
    }

    /// One line of JSON, and the end of the line.
    pub fn to_json(&self) -> String {
        // Numbers, texts and lists of them: nothing that JSON cannot hold.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl PlannedStep {
    /// A plan of a step, as a file holds it.
    pub fn new(plan: &StepPlan, guide: Guide) -> PlannedStep {
        PlannedStep {
            guide,
            bound_ns: plan.bound_ns,
            peak_bytes: Some(plan.peak_bytes),
        }
    }
}

/// A planned step in lists.
#[derive(Serialize, Deserialize)]
struct Lists {
    cost_ns: u64,
    recompute_ns: u64,
    bound_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peak_bytes: Option<u64>,
    online_cost_ns: u64,
    online_recompute_ns: u64,
    /// In hexadecimal digits: numbers of 64 bits are more than many readers of JSON keep.
    signatures: Vec<String>,
    /// In the order of the ops before which they happen.
    actions: Vec<GuideLine>,
    /// The places of ops that need no record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unrecorded: Vec<u32>,
    /// The most that their results take at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unrecorded_bytes: Option<u64>,
    /// The results that stay after the program let go of them, each with the place of its op before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kept: Vec<(u32, u32)>,
}

impl From<PlannedStep> for Lists {
    fn from(step: PlannedStep) -> Lists {
        let PlannedStep { guide, .. } = &step;
        let (planned, online) = (guide.planned(), guide.online());
        let signatures = guide.signatures();
        let places =
            (0..signatures.len() as u32).map(|place| (place, guide.before(place as usize)));
        let actions = places.flat_map(|(place, actions)| {
            let lines = actions.iter();
            lines.map(move |&action| GuideLine::new(place, action))
        });
        Lists {
            cost_ns: planned.first.0,
            recompute_ns: planned.replayed.0,
            bound_ns: step.bound_ns,
            peak_bytes: step.peak_bytes,
            online_cost_ns: online.first.0,
            online_recompute_ns: online.replayed.0,
            signatures: signatures
                .iter()
                .map(|word| format!("{word:016x}"))
                .collect(),
            actions: actions.collect(),
            unrecorded: guide.unrecorded().to_vec(),
            unrecorded_bytes: guide.unrecorded_most().map(|most| most.0),
            kept: guide.kept().to_vec(),
        }
    }
}

impl TryFrom<Lists> for PlannedStep {
    type Error = String;

    fn try_from(lists: Lists) -> Result<PlannedStep, String> {
        let words = lists.signatures.iter().map(|text| {
            hexadecimal(text).ok_or_else(|| {
                format!("the signature {text:?} is no number of up to 16 hexadecimal digits")
            })
        });
        let signatures = words.collect::<Result<Vec<u64>, String>>()?;
        let mut before = vec![Vec::new(); signatures.len()];
        for (place, action) in lists.actions.iter().map(GuideLine::action) {
            let actions = before.get_mut(place as usize);
            let actions = actions.ok_or_else(|| {
                format!(
                    "an action is before op {place}, and the step has {}",
                    signatures.len()
                )
            })?;
            actions.push(action);
        }
        let online = StepCosts {
            first: Cost(lists.online_cost_ns),
            replayed: Cost(lists.online_recompute_ns),
        };
        let planned = StepCosts {
            first: Cost(lists.cost_ns),
            replayed: Cost(lists.recompute_ns),
        };
        let most = lists.unrecorded_bytes.map(Bytes);
        let guide = Guide::new(signatures, &before, online, planned);
        let guide = guide.and_then(|guide| guide.with_unrecorded(lists.unrecorded, most));
        let guide = guide.and_then(|guide| guide.with_kept(lists.kept));
        Ok(PlannedStep {
            guide: guide.map_err(|fault| fault.to_string())?,
            bound_ns: lists.bound_ns,
            peak_bytes: lists.peak_bytes,
        })
    }
}

/// The number of these digits, if they are digits only and fit into 64 bits. The parser alone takes a sign too.
fn hexadecimal(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::hexadecimal;

    #[test]
    fn a_signature_is_digits_only() {
        assert_eq!(hexadecimal("00000000000000a1"), Some(0xa1));
        for text in ["", "+3", "-3", " 3", "0x3", "10000000000000000"] {
            assert_eq!(hexadecimal(text), None, "{text:?}");
        }
    }
}
