//! The arguments of commands that replay logs, checked and as settings.

use crate::arguments::Replays;
use crate::failure::Failure;
use crate::log::Log;
use crate::standard_streams::check_inputs;
use crate::{memory, selective};
use remat_sim::{EngineSetting, Eviction, Setting};

impl Replays {
    /// Checks what was asked for, and reads the logs.
    pub(crate) fn read_logs(&self, policies: &[Eviction]) -> Result<Vec<Log>, Failure> {
        memory::check(&self.pool, policies)?;
        selective::check(self.dealloc, policies)?;
        check_inputs(&self.logs)?;
        let logs = self
            .logs
            .iter()
            .map(|path| Log::read(path))
            .collect::<Result<Vec<Log>, Failure>>()?;
        selective::check_logs(&logs, policies)?;
        Ok(logs)
    }

    /// How the engine is set.
    pub(crate) fn engine(&self) -> EngineSetting {
        if self.as_training {
            EngineSetting::Training
        } else {
            EngineSetting::Paper
        }
    }

    /// The setting of a policy's runs, the budget apart.
    pub(crate) fn setting(&self, policy: Eviction) -> Setting {
        Setting {
            dealloc: self.dealloc.into(),
            thrash_limit: self.thrash_limit,
            seed: self.seed,
            engine: self.engine(),
            ..memory::setting(&self.pool, policy)
        }
    }
}
