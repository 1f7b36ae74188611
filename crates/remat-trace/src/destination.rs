//! Where a file is written: beside its place until it is whole, or straight into what is no regular file.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The place of a file that is written. A regular file is written beside its place and moved there once it is whole.
///
/// A symbolic link stays, and the file that it names is written. What is there already and is no regular file, such as
/// a device or a pipe, is written into.
///
/// ```
/// use remat_trace::Destination;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("plan.json");
/// Destination::of(&path)?.write(b"{}\n")?;
/// assert_eq!(std::fs::read(&path)?, b"{}\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Destination {
    path: PathBuf,
    written: Written,
}

/// The way in which a file is written.
#[derive(Clone, Copy, Debug)]
enum Written {
    /// Beside its place until it is whole.
    Beside,
    /// Straight into what is there.
    Into,
}

impl Destination {
    /// The place that a path names. Until the file is whole, it is called `PATH.partial`, or by the first of
    /// `PATH.1.partial`, `PATH.2.partial` and so on that no file has.
    ///
    /// # Errors
    /// The path names a folder, cannot be followed, or is `-`, which the command line takes for standard output.
    pub fn of(path: &Path) -> io::Result<Destination> {
        if path.as_os_str().is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the name is empty"));
        }
        if path.as_os_str() == "-" {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "the name stands for standard output, which is no file; for a file of this name write ./-",
            ));
        }
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => Err(ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => Ok(Destination {
                path: std::path::absolute(path)?,
                written: Written::Into,
            }),
            _ => Ok(Destination {
                path: followed(path)?,
                written: Written::Beside,
            }),
        }
    }

    /// Whether the file can be written. All that is there stays as it is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn check(&self) -> io::Result<()> {
        match self.written {
            Written::Beside => self.create()?.1.discard(),
            Written::Into => Ok(()), // to open a pipe is to wait for its reader
        }
    }

    /// Starts the file.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(&self) -> io::Result<(File, Unfinished)> {
        let (file, partial) = match self.written {
            Written::Beside => {
                let (file, partial) = beside(&self.path)?;
                (file, Some(partial))
            }
            Written::Into => (File::create(&self.path)?, None),
        };
        let path = self.path.clone();
        Ok((file, Unfinished { path, partial }))
    }

    /// Writes a whole file. Nothing stays of one that cannot be written to its end.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let (mut file, unfinished) = self.create()?;
        let written = file.write_all(bytes).and_then(|()| unfinished.complete());
        if written.is_err() {
            let _ = unfinished.discard();
        }
        written
    }
}

/// The name of a file that was started and is not whole yet.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    /// Its path until it is whole; none for what is written into.
    partial: Option<PathBuf>,
}

impl Unfinished {
    /// Gives the file its name, now that it is whole.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn complete(&self) -> io::Result<()> {
        match &self.partial {
            Some(partial) => fs::rename(partial, &self.path),
            None => Ok(()),
        }
    }

    /// Removes what was written beside the place.
    fn discard(&self) -> io::Result<()> {
        self.partial.as_ref().map_or(Ok(()), fs::remove_file)
    }
}

/// A new file beside a path, and its name: `PATH.partial`, or one with a number where that is there already.
fn beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut partial = named(path, ".partial");
    for number in 1u64.. {
        match File::create_new(&partial) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                partial = named(path, &format!(".{number}.partial"));
            }
            created => return created.map(|file| (file, partial)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn named(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// An absolute path that no symbolic link stands at, whether or not there is a file.
fn followed(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(named) => followed(&path.parent().unwrap_or(Path::new("")).join(named)),
            Err(_) => std::path::absolute(path),
        },
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::process::Command;
    use std::thread;

    fn written(path: &Path) -> io::Result<()> {
        Destination::of(path)?.write(b"whole")
    }

    #[test]
    fn a_link_stays_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        symlink("target", &link).unwrap();
        for there in ["nothing", "the file"] {
            written(&link).unwrap();
            assert!(link.is_symlink(), "{there}");
            assert!(
                !target.is_symlink() && fs::read(&target).unwrap() == b"whole",
                "{there}"
            );
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_pipe_is_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        Destination::of(&pipe).unwrap().check().unwrap();
        let reader = thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe)
        });
        written(&pipe).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), b"whole");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_check_leaves_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        Destination::of(&path).unwrap().check().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(&path, "before").unwrap();
        Destination::of(&path).unwrap().check().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
    }

    #[test]
    fn files_that_are_called_like_one_not_yet_whole_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for partial in ["file.partial", "file.2.partial"] {
            fs::write(folder.path().join(partial), "of others").unwrap();
        }
        let destination = Destination::of(&path).unwrap();
        destination.check().unwrap();
        let (_first, unfinished) = destination.create().unwrap();
        assert!(folder.path().join("file.1.partial").exists());
        let (_second, later) = destination.create().unwrap();
        assert!(folder.path().join("file.3.partial").exists());
        unfinished.complete().unwrap();
        later.complete().unwrap();
        written(&path).unwrap();
        for partial in ["file.partial", "file.2.partial"] {
            let kept = fs::read(folder.path().join(partial)).unwrap();
            assert_eq!(kept, b"of others", "{partial}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |path: &Path| Destination::of(path).unwrap_err().kind();
        assert_eq!(kind(folder.path()), ErrorKind::IsADirectory);
        assert_eq!(kind(Path::new("")), ErrorKind::InvalidInput);
        assert_eq!(kind(Path::new("-")), ErrorKind::InvalidInput);
        let nowhere = Destination::of(&folder.path().join("no/file")).unwrap();
        assert_eq!(nowhere.check().unwrap_err().kind(), ErrorKind::NotFound);
    }
}
