//! The folder that figures are written into.

use crate::failure::Failure;
use crate::standard_streams::is_standard;
use remat_trace::Destination;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder that exists.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder if it is not there.
    pub(super) fn open(path: &Path) -> Result<Folder, Failure> {
        if is_standard(path) {
            return Err(Failure::Usage(
                "-: figures are a folder of files, which standard output is not; name a folder, or ./- for one of \
                 this name"
                    .into(),
            ));
        }
        fs::create_dir_all(path).map_err(|error| {
            let place = path.display();
            Failure::Input(format!(
                "{place}: cannot be made a folder: {error}; name a folder, or a path where one can be made"
            ))
        })?;
        Ok(Folder(path.to_owned()))
    }

    /// Writes a file. Until it is complete it is called `NAME.partial`.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.0.join(name);
        let written = Destination::of(&path).and_then(|place| place.write(bytes));
        written.map_err(|error| Failure::write(&path.display().to_string(), error))
    }
}
