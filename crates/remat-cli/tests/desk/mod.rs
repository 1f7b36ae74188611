//! A folder of files, and the `remat` command in it.

use assert_cmd::Command;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

pub(crate) struct Desk {
    pub(crate) folder: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        Desk { folder }
    }

    pub(crate) fn file(&self, name: &str, text: impl ToString) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text.to_string()).unwrap();
        path
    }

    pub(crate) fn remat(&self, arguments: &[&str]) -> Command {
        // Of its processor time, so that other work on the machine does not count: 60 s.
        let limited = "ulimit -t 60 && exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", limited])
            .arg(assert_cmd::cargo::cargo_bin!("remat"));
        command.current_dir(self.folder.path()).args(arguments);
        command
    }

    /// Standard output of a command that succeeds.
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let output = self.remat(arguments).assert().success();
        String::from_utf8(output.get_output().stdout.clone()).unwrap()
    }

    /// The one line of a command that fails with this exit code.
    pub(crate) fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output = self.remat(arguments).assert().code(code);
        let line = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        line
    }
}
