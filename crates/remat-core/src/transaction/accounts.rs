//! Bytes of each device, counted.

use crate::ids::Bytes;

/// Bytes of one device, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) budget: Option<u64>,
    /// Resident and reserved.
    pub(crate) memory: u64,
    pub(crate) peak: u64,
    /// Highest `memory` of the attempt under way.
    pub(crate) high: u64,
    /// Bytes sought by the op under way.
    pub(crate) need: u64,
}

impl Account {
    /// Whether no more than three fifths of the budget were ever needed, or there is none.
    pub(crate) fn is_plentiful(&self) -> bool {
        self.budget
            .is_none_or(|budget| self.peak <= Bytes(budget).plentiful().0)
    }
}

/// The accounts of all devices.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    each: Vec<Account>,
    pub(crate) limits: Limits,
}

/// Whether budgets are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Limits {
    #[default]
    InForce,
    /// An attempt is measured: it takes as much as it takes.
    Lifted,
}

impl Accounts {
    pub(crate) fn new(budgets: impl Iterator<Item = Option<u64>>) -> Accounts {
        let account = |budget| Account {
            budget,
            ..Account::default()
        };
        Accounts {
            each: budgets.map(account).collect(),
            limits: Limits::InForce,
        }
    }

    /// The devices that have an account, in order.
    pub(crate) fn devices(&self) -> impl Iterator<Item = u8> + use<> {
        (0..self.each.len()).map(|device| device as u8)
    }

    pub(crate) fn all(&self) -> &[Account] {
        &self.each
    }

    pub(crate) fn all_mut(&mut self) -> &mut [Account] {
        &mut self.each
    }

    /// A device's account; an empty one for a device that was never mentioned.
    pub(crate) fn get(&self, device: u8) -> Account {
        self.each
            .get(usize::from(device))
            .copied()
            .unwrap_or_default()
    }

    /// A device's account, made on first mention.
    pub(crate) fn of(&mut self, device: u8) -> &mut Account {
        let index = usize::from(device);
        if index >= self.each.len() {
            self.each.resize(index + 1, Account::default());
        }
        &mut self.each[index]
    }

    pub(crate) fn are_lifted(&self) -> bool {
        self.limits == Limits::Lifted
    }

    /// Whether a device's budget does not hold so many more bytes.
    pub(crate) fn exceeds(&mut self, device: u8, bytes: u64) -> bool {
        let lifted = self.are_lifted();
        let account = self.of(device);
        let over = |budget| account.memory.saturating_add(bytes) > budget;
        !lifted && account.budget.is_some_and(over)
    }

    /// Whether a device's budget does not hold the bytes sought there.
    pub(crate) fn exceed(&self) -> bool {
        let over = |account: &Account| {
            let memory = account.memory.saturating_add(account.need);
            account.budget.is_some_and(|budget| memory > budget)
        };
        !self.are_lifted() && self.each.iter().any(over)
    }

    /// The bytes sought count among the highest memory of the attempt under way.
    pub(crate) fn note_sought(&mut self) {
        for account in &mut self.each {
            let memory = account.memory.saturating_add(account.need);
            account.high = account.high.max(memory);
        }
    }

    /// An attempt begins: from now on the highest memory is its own.
    pub(crate) fn begin_attempt(&mut self) {
        for account in &mut self.each {
            account.high = account.memory;
        }
    }
}
