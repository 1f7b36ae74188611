//! Standard input and standard output, which the command line both calls `-`.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// Whether a path is the name of a standard stream.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Checks that standard input, which can be read once, is at most one of several inputs.
pub(crate) fn check_inputs<'a>(
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let times = inputs.into_iter().filter(|path| is_standard(path)).count();
    if times > 1 {
        return Err(Failure::Usage(format!(
            "- is named {times} times: standard input can be read once; name files"
        )));
    }
    Ok(())
}
