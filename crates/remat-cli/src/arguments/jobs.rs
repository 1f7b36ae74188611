//! The number of runs at a time.

use clap::Args;
use std::num::NonZeroUsize;
use std::thread;

/// The number of runs at a time.
#[derive(Debug, Args)]
pub(crate) struct Jobs {
    /// Runs at a time; if not given, as many as there are processors. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = jobs, allow_negative_numbers = true)]
    jobs: Option<NonZeroUsize>,
}

impl Jobs {
    pub(crate) fn threads(&self) -> usize {
        let jobs = self.jobs.or_else(|| thread::available_parallelism().ok());
        jobs.map_or(1, NonZeroUsize::get)
    }
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.trim().parse();
    count.map_err(|_| "at least 1 run at a time is needed, for example 4".into())
}
