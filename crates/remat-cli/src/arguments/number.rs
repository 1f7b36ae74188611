//! Numbers as they are typed. Their options take a minus sign too, so that the parser says what is wrong.

/// A whole number from 0 on.
pub(super) fn whole(text: &str) -> Result<u64, String> {
    let count = text.trim().parse();
    count.map_err(|_| {
        format!(
            "a whole number from 0 to {} is needed, for example 3",
            u64::MAX
        )
    })
}

/// A finite number above 0.
pub(super) fn positive(text: &str) -> Option<f64> {
    let value: f64 = text.trim().parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
}
