//! An op as it was called: enough to call it again, and nothing that keeps a tensor alive.

use std::sync::Arc;

use remat_core::DeviceId;
use smallvec::SmallVec;

use super::form::Form;
use super::global_state::StateNumber;
use super::random::RandomState;
use super::signature::Signature;
use super::view::Number;
use crate::tracking::live::LiveId;

/// A storage that a record keeps from being freed. Ids are used again; serial numbers are not.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Its index in the table.
    pub id: LiveId,
    /// Its serial number.
    pub serial: u64,
}

/// Whether autograd records ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradMode {
    /// It does.
    On,
    /// It does not.
    Off,
}

impl GradMode {
    /// The mode, from Python's boolean.
    pub fn of(on: bool) -> GradMode {
        if on { GradMode::On } else { GradMode::Off }
    }
}

/// The circumstances of a call, beside its arguments.
pub struct Context {
    /// The grad mode. A few kernels return more when it is on.
    pub grad: GradMode,
    /// The settings of process and thread.
    pub state: StateNumber,
    /// State of the random generators before the op drew from them.
    pub rng: Option<RandomState>,
}

/// A recorded call.
pub struct Record {
    /// The op and the description of its arguments.
    pub form: Arc<Form>,
    /// Offsets of the form's views, in elements.
    pub offsets: SmallVec<[i64; 3]>,
    /// The form's numbers.
    pub numbers: SmallVec<[Number; 1]>,
    /// Size and device of the blank storage, if a view is of one.
    pub blank: Option<(u64, DeviceId)>,
    /// The circumstances under which the replay runs.
    pub context: Context,
    /// Bytes that it needs while it runs, beyond inputs and outputs.
    pub workspace: u64,
    /// The device of the workspace.
    pub workspace_device: DeviceId,
    /// Storages of constants that this record keeps from being freed.
    pub holds: SmallVec<[Hold; 3]>,
}

impl Record {
    /// The record of a call of this form.
    pub fn of(
        form: Arc<Form>,
        offsets: SmallVec<[i64; 3]>,
        signature: &Signature,
        context: Context,
    ) -> Record {
        Record {
            form,
            offsets,
            numbers: SmallVec::new(),
            blank: None,
            context,
            workspace: signature.workspace.0,
            workspace_device: signature.workspace_device,
            holds: SmallVec::new(),
        }
    }
}
