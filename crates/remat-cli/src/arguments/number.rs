//! Numbers as they are typed.

/// A finite number above 0.
pub(super) fn positive(text: &str) -> Option<f64> {
    let value: f64 = text.trim().parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
}
