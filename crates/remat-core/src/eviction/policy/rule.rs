//! Rules: how a policy scores a storage, and the capabilities of the engine that it calls for.

/// A policy. The smallest score goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) numerator: Numerator,
    pub(crate) form: Form,
    /// In an arena, storages evicted together are neighbours, and such windows are compared by this price.
    pub(crate) window: Option<Price>,
    pub(crate) gaps: Gaps,
    /// The score in words, where a formula does not explain it.
    pub(crate) about: Option<&'static str>,
}

impl Rule {
    /// A score that needs no addresses.
    pub(crate) const fn new(numerator: Numerator, form: Form) -> Rule {
        Rule {
            numerator,
            form,
            window: None,
            gaps: Gaps::Ignored,
            about: None,
        }
    }
}

/// The part of a score that stays the same while a storage's surroundings do; it is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numerator {
    /// 1.
    One,
    /// The storage's own cost.
    Cost,
    /// Own cost and that of the adjacent evicted components.
    Components,
    /// A sum over evicted storages around it.
    Evicted(Evicted),
}

/// A sum over the evicted storages that a storage reaches through evicted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) reach: Reach,
    pub(crate) sum: Summed,
    /// A walk looks at no more storages than this.
    pub(crate) limit: u64,
    /// Where costs are compared by lower bounds first, these are made of so many ancestors.
    pub(crate) bound: Option<u64>,
    /// Divides the sum of a storage that the program dropped every reference to.
    pub(crate) unreferenced: Option<Discounts>,
}

/// Divisors of the score of a storage without references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Discounts {
    /// While something that was made from it is missing to which the program refers.
    pub(crate) while_needed: i64,
    pub(crate) otherwise: i64,
}

impl Evicted {
    /// All of them, each weighed alike whether referenced or not.
    pub(crate) const fn all(reach: Reach, sum: Summed) -> Evicted {
        Evicted {
            reach,
            sum,
            limit: u64::MAX,
            bound: None,
            unreferenced: None,
        }
    }
}

/// Which way evicted storages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those that bringing the storage back would bring back.
    Ancestors,
    /// Ancestors and descendants: the evicted neighbourhood `e*` (DTR appendix C.2).
    Neighbourhood,
}

/// The sum over evicted storages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summed {
    /// Their cost, and the storage's own.
    Cost,
    /// Their number.
    Number,
}

impl Numerator {
    /// The evicted storages around it that the score depends on, one by one.
    pub(crate) fn evicted(self) -> Option<Evicted> {
        match self {
            Numerator::Evicted(evicted) => Some(evicted),
            _ => None,
        }
    }
}

/// How a numerator becomes a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `numerator / (size * staleness)`, factors as chosen; infinite when the denominator is 0.
    Quotient {
        /// Divide by bytes.
        size: bool,
        /// Divide by staleness.
        stale: bool,
    },
    /// The last access itself.
    LastAccess,
    /// A fresh draw a candidate.
    Draw,
}

impl Form {
    /// The same with every storage equally stale.
    pub(crate) fn without_staleness(self) -> Form {
        match self {
            Form::Quotient { size, .. } => Form::Quotient { size, stale: false },
            other => other,
        }
    }
}

/// The price by which windows of storages are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
    /// The sum of their costs (Coop equation 1).
    Sum,
    /// The sum of their costs over the bytes that they make free: what the next allocations will use counts too.
    PerByte,
}

/// Whether the size of a storage takes in the free bytes beside it in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    Ignored,
    Counted,
}
