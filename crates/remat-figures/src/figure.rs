//! A figure as data: a table of numbers, which `figures.js` reads as panels of series.

use crate::csv::Csv;
use serde::Serialize;
use std::collections::BTreeMap;

/// A figure. Its title, caption, axes and looks stand in `figures.js`, under its name.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of its files, without the ending.
    pub name: &'static str,
    /// The numbers behind it.
    pub csv: Csv,
    /// Numbers that its caption tells and no column holds.
    pub facts: BTreeMap<&'static str, f64>,
}

impl Figure {
    /// The figure of this name.
    pub fn new(name: &'static str, csv: Csv) -> Figure {
        let facts = BTreeMap::new();
        Figure { name, csv, facts }
    }

    /// The same with one more fact.
    pub fn told(mut self, fact: &'static str, value: f64) -> Figure {
        self.facts.insert(fact, value);
        self
    }
}
