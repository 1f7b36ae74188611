//! Plans of steps in files: the one that a run is given, the one that it writes, and the folder of those of all runs.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pyo3::FromPyObject;
use remat_plan::step::{PLANNED_STEPS_VERSION, PlannedStep, PlannedSteps, PlannedStepsError};
use remat_trace::Destination;

/// Plans that are taken from the folder: those used last.
const MOST_TAKEN: usize = 8;

/// Plans that the folder keeps: those used last.
const MOST_KEPT: usize = 256;

/// A part of a file that is older was left by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Where plans are read and written.
#[derive(Clone, Debug, Default, FromPyObject)]
#[pyo3(from_item_all)]
pub struct PlanFiles {
    /// The plans to follow, and no others.
    pub given: Option<PathBuf>,
    /// The file that the run's plans are written to.
    pub out: Option<PathBuf>,
    /// The folder of the plans of all runs.
    pub cache: Option<PathBuf>,
}

/// A fault of a file, in one line.
fn at(what: &str, path: &Path, error: impl std::fmt::Display) -> String {
    format!("{what} {}: {error}", path.display())
}

impl PlanFiles {
    /// The plans that a run of this budget was given.
    ///
    /// # Errors
    /// What is wrong with the file, in one line.
    pub(super) fn given(&self) -> Result<Option<PlannedSteps>, String> {
        let read = |path: &PathBuf| read(path).map_err(|e| at("cannot follow the plan", path, e));
        self.given.as_ref().map(read).transpose()
    }

    /// The plans in the folder for a budget, those used last first, and a line for each file that has none.
    pub(super) fn cached(&self, device: &str, budget: u64) -> (Vec<PlannedStep>, Vec<String>) {
        let Some(folder) = &self.cache else {
            return (Vec::new(), Vec::new());
        };
        let prefix = prefix(device, budget);
        let mut files = plans_in(folder);
        files.retain(|(_, path)| name(path).starts_with(&prefix));
        files.truncate(MOST_TAKEN);
        let (mut steps, mut troubles) = (Vec::new(), Vec::new());
        for (_, path) in files {
            match read(&path) {
                Ok(plans) => {
                    steps.extend(plans.steps);
                    // One that cannot be touched is used all the same, and goes earlier from the folder.
                    let file = OpenOptions::new().append(true).open(&path);
                    let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
                }
                Err(unread) => troubles.push(cleared(&path, &unread)),
            }
        }
        (steps, troubles)
    }

    /// Keeps a plan in the folder.
    ///
    /// # Errors
    /// What is wrong with the folder, in one line.
    pub(super) fn keep(&self, device: &str, budget: u64, step: &PlannedStep) -> Result<(), String> {
        let Some(folder) = &self.cache else {
            return Ok(());
        };
        let mut plans = PlannedSteps::new(device, budget);
        plans.add(step.clone());
        let name = format!("{}{:016x}.json", prefix(device, budget), step.guide.hash());
        let written = fs::create_dir_all(folder).and_then(|()| write(&folder.join(name), &plans));
        written.map_err(|e| at("plans are not kept in", folder, e))?;
        let now = SystemTime::now();
        let abandoned =
            |when: SystemTime| now.duration_since(when).is_ok_and(|age| age > ABANDONED);
        let parts = files_in(folder, ".partial");
        let parts = parts.into_iter().filter(|&(when, _)| abandoned(when));
        for (_, path) in plans_in(folder).into_iter().skip(MOST_KEPT).chain(parts) {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// Whether the run's plans can be written, before any was made. A file that is there stays as it is.
    ///
    /// # Errors
    /// What is wrong with the file, in one line.
    pub(super) fn check_out(&self) -> Result<(), String> {
        let Some(path) = &self.out else {
            return Ok(());
        };
        let checked = Destination::of(path).and_then(|place| place.check());
        checked.map_err(|e| at("cannot write the plan to", path, e))
    }

    /// Writes the plans of the run.
    ///
    /// # Errors
    /// What is wrong with the file, in one line.
    pub(super) fn write_out(&self, plans: &PlannedSteps) -> Result<(), String> {
        let Some(path) = &self.out else {
            return Ok(());
        };
        write(path, plans).map_err(|e| at("cannot write the plan to", path, e))
    }
}

/// The reason why a file has no plans.
#[derive(Debug)]
enum Unread {
    File(io::Error),
    Text(PlannedStepsError),
}

impl Unread {
    /// Whether the file is damaged, which one of another version is not, nor one that cannot be opened.
    fn is_damage(&self) -> bool {
        match self {
            Unread::File(error) => error.kind() == ErrorKind::InvalidData,
            Unread::Text(error) => matches!(error, PlannedStepsError::Text(_)),
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::File(error) => error.fmt(f),
            Unread::Text(error) => error.fmt(f),
        }
    }
}

fn read(path: &Path) -> Result<PlannedSteps, Unread> {
    let text = fs::read_to_string(path).map_err(Unread::File)?;
    PlannedSteps::from_json(&text).map_err(Unread::Text)
}

/// Removes a damaged file from the cache, so that it is told of once, and returns the line that tells of it.
fn cleared(path: &Path, unread: &Unread) -> String {
    let told = at(
        "the step is planned anew, for in the cache is",
        path,
        unread,
    );
    match unread.is_damage().then(|| fs::remove_file(path)) {
        Some(Ok(())) => format!("{told}; it was removed"),
        Some(Err(error)) => format!("{told}; it cannot be removed: {error}"),
        None => told,
    }
}

/// Whoever reads meanwhile sees the plans before or those after.
fn write(path: &Path, plans: &PlannedSteps) -> std::io::Result<()> {
    Destination::of(path)?.write(plans.to_json().as_bytes())
}

fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

/// The start of the names of plans for a budget. Builds of another version of the format do not see them.
fn prefix(device: &str, budget: u64) -> String {
    let device = device.replace(':', "");
    format!("v{PLANNED_STEPS_VERSION}-{device}-{budget}-")
}

/// The plans in a folder, those used last first.
fn plans_in(folder: &Path) -> Vec<(SystemTime, PathBuf)> {
    files_in(folder, ".json")
}

/// Files in a folder whose names end so, those used last first. There are none where there is no folder.
fn files_in(folder: &Path, ending: &str) -> Vec<(SystemTime, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| name(&entry.path()).ends_with(ending))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    files
}
