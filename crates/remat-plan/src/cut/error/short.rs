//! Names in messages.

use std::fmt;

/// A name in quotes, shortened if it is very long.
pub(crate) struct Short<'a>(pub(crate) &'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 80;
        match self.0.char_indices().nth(LONGEST) {
            Some((end, _)) => write!(f, "{:?}..", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}
