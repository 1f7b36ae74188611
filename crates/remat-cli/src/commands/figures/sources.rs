//! The files that figures are drawn of: recorded steps and chains, told apart.

use crate::failure::Failure;
use crate::log::Log;
use crate::plan_file;
use crate::standard_streams::check_inputs;
use remat_plan::chain::Chain;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Everything that was named, in order.
pub(super) struct Sources {
    pub(super) logs: Vec<Log>,
    /// With the names of their files.
    pub(super) chains: Vec<(String, Chain)>,
}

/// Reads recorded steps and chains. A regular file is a chain if its first key is one of a chain's. Everything else is
/// a recorded step, standard input and pipes too: their beginning cannot be read twice.
pub(super) fn read(paths: &[PathBuf]) -> Result<Sources, Failure> {
    check_inputs(paths)?;
    let mut sources = Sources {
        logs: Vec::new(),
        chains: Vec::new(),
    };
    for path in paths {
        if is_chain(&beginning(path)) {
            let name = path.display().to_string();
            sources.chains.push((name, plan_file::chain(path)?));
        } else {
            sources.logs.push(log(path)?);
        }
    }
    Ok(sources)
}

fn log(path: &Path) -> Result<Log, Failure> {
    Log::read(path).map_err(|failure| match failure {
        Failure::Input(reason) if path.extension().is_some_and(|ending| ending == "json") => {
            Failure::Input(format!(
                "{reason}; a chain would begin with \"input_bytes\" or \"stages\""
            ))
        }
        other => other,
    })
}

/// The first bytes of a regular file; nothing of any other file, or of one that cannot be read.
fn beginning(path: &Path) -> String {
    const LONG_ENOUGH: u64 = 4096;
    let mut bytes = Vec::new();
    if fs::metadata(path).is_ok_and(|data| data.is_file()) {
        let read = File::open(path).map(|file| file.take(LONG_ENOUGH).read_to_end(&mut bytes));
        if !matches!(read, Ok(Ok(_))) {
            bytes.clear();
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether this is the beginning of a chain: a brace and a key of it.
fn is_chain(text: &str) -> bool {
    const KEYS: [&str; 4] = [
        "\"input_bytes\"",
        "\"input_gradient_bytes\"",
        "\"stages\"",
        "\"about\"",
    ];
    let text = text.trim_start_matches(plan_file::BYTE_ORDER_MARK);
    let key = text.trim_start().strip_prefix('{').map(str::trim_start);
    key.is_some_and(|key| KEYS.iter().any(|known| key.starts_with(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_told_from_logs_by_their_first_key() {
        for chain in [
            r#"{"input_bytes": 4, "stages": []}"#,
            "\n{\n  \"stages\" : [",
            "{\"about\":\"INSTRUCTION\"",
            "\u{feff}{\"stages\": [",
        ] {
            assert!(is_chain(chain), "{chain}");
        }
        for other in [
            "",
            "[]",
            "{",
            "{\"stage",
            r#"{"remat-trace":1,"pools":["cpu"]}"#,
            r#"{"INSTRUCTION":"CONSTANT","NAME":"stages"}"#,
            r#"{"stages_of": 3}"#,
        ] {
            assert!(!is_chain(other), "{other}");
        }
    }
}
