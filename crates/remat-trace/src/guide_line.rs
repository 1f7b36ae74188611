//! An action of a guide as a list, in traces and in files of plans.

use remat_core::GuideAction;
use serde::{Deserialize, Serialize};

/// The op before which an action happens, by its place in the step, and the action.
///
/// ```
/// use remat_core::GuideAction;
/// use remat_trace::GuideLine;
///
/// let line = GuideLine::new(7, GuideAction::Drop { op: 2, output: 0 });
/// assert_eq!(serde_json::to_string(&line)?, r#"[7,"drop",2,0]"#);
/// let line: GuideLine = serde_json::from_str(r#"[9,"run",2]"#)?;
/// assert_eq!(line.action(), (9, GuideAction::Run(2)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GuideLine(Line);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Drop(u32, Drop, u32, u32),
    Run(u32, Run, u32),
    RunInPlace(u32, Run, u32, InPlace),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Drop {
    #[serde(rename = "drop")]
    Drop,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Run {
    #[serde(rename = "run")]
    Run,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum InPlace {
    #[serde(rename = "in place")]
    InPlace,
}

impl GuideLine {
    /// An action before the op at a place.
    pub fn new(place: u32, action: GuideAction) -> GuideLine {
        GuideLine(match action {
            GuideAction::Drop { op, output } => Line::Drop(place, Drop::Drop, op, output),
            GuideAction::Run(op) => Line::Run(place, Run::Run, op),
            GuideAction::RunInPlace(op) => Line::RunInPlace(place, Run::Run, op, InPlace::InPlace),
        })
    }

    /// The place of the op, and the action before it.
    pub fn action(&self) -> (u32, GuideAction) {
        match self.0 {
            Line::Drop(place, _, op, output) => (place, GuideAction::Drop { op, output }),
            Line::Run(place, _, op) => (place, GuideAction::Run(op)),
            Line::RunInPlace(place, _, op, _) => (place, GuideAction::RunInPlace(op)),
        }
    }
}
