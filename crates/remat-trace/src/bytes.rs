//! Byte counts as people write them.

use remat_core::Bytes;
use std::fmt;

/// Reads a byte count: `"6GiB"`, `"512MB"`, `"1.5g"`, `"1073741824"`.
///
/// | unit | bytes |
/// | --- | --- |
/// | none, `B` | 1 |
/// | `KB` `MB` `GB` `TB` | 10^3, 10^6, 10^9, 10^12 |
/// | `KiB` `MiB` `GiB` `TiB` | 2^10, 2^20, 2^30, 2^40 |
/// | `K` `M` `G` `T` | the same powers of two: people who write `6g` mean what their device calls 6 GB |
///
/// Case does not matter, and blanks may stand around the number and the unit. A fraction of a unit is rounded down to
/// whole bytes, so a budget is never larger than the one asked for.
///
/// # Errors
/// The text is empty, negative, zero, not a number, has an unknown unit, does not fit in 63 bits, or asks for a
/// fraction of a byte.
///
/// ```
/// use remat_core::Bytes;
/// use remat_trace::parse_bytes;
///
/// assert_eq!(parse_bytes("6GiB"), Ok(Bytes(6 << 30)));
/// assert_eq!(parse_bytes(" 512 mb "), Ok(Bytes(512_000_000)));
/// assert_eq!(parse_bytes("1.5g"), Ok(Bytes(3 << 29)));
/// assert_eq!(
///     parse_bytes("12 potatoes").unwrap_err().to_string(),
///     "\"12 potatoes\" is not a byte count: the unit \"potatoes\" is unknown; \
///      write for example 6GiB, 512MB or 1073741824",
/// );
/// ```
pub fn parse_bytes(text: &str) -> Result<Bytes, ParseBytesError> {
    count(text.trim())
        .map(Bytes)
        .map_err(|reason| ParseBytesError {
            text: text.to_owned(),
            reason,
        })
}

/// An error of [`parse_bytes`]; its message gives the reason and three valid examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError {
    /// The text as given.
    pub text: String,
    /// The reason why it is no byte count.
    pub reason: ParseBytesReason,
}

/// The reason why a text is no byte count.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseBytesReason {
    /// Nothing but blanks.
    Empty,
    /// It starts with a minus.
    Negative,
    /// No bytes at all.
    Zero,
    /// It does not start with a decimal number.
    NotANumber,
    /// The number is followed by something else than a unit.
    UnknownUnit(String),
    /// The count does not fit in 63 bits.
    Overflow,
    /// The text asks for a fraction of a byte.
    FractionOfAByte,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a byte count: ", self.text)?;
        match &self.reason {
            ParseBytesReason::Empty => write!(f, "it is empty"),
            ParseBytesReason::Negative => write!(f, "it is negative"),
            ParseBytesReason::Zero => write!(f, "it is zero"),
            ParseBytesReason::NotANumber => write!(f, "it does not start with a number"),
            ParseBytesReason::UnknownUnit(unit) => write!(f, "the unit {unit:?} is unknown"),
            ParseBytesReason::Overflow => write!(f, "it is more than 63 bits hold"),
            ParseBytesReason::FractionOfAByte => write!(f, "it asks for a fraction of a byte"),
        }?;
        write!(f, "; write for example 6GiB, 512MB or 1073741824")
    }
}

impl std::error::Error for ParseBytesError {}

fn count(text: &str) -> Result<u64, ParseBytesReason> {
    if text.is_empty() {
        return Err(ParseBytesReason::Empty);
    }
    if text.starts_with(['-', '\u{2212}']) {
        return Err(ParseBytesReason::Negative);
    }
    let number_ends = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit_name) = text.split_at(number_ends);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(ParseBytesReason::NotANumber);
    }
    let unit = unit(unit_name.trim())?;
    let fraction = fraction.trim_end_matches('0');
    if unit == 1 && !fraction.is_empty() {
        return Err(ParseBytesReason::FractionOfAByte);
    }
    let bytes = digits(whole)?
        .checked_mul(unit)
        .and_then(|bytes| bytes.checked_add(part_of(unit, fraction)))
        .filter(|&bytes| bytes <= i64::MAX as u64)
        .ok_or(ParseBytesReason::Overflow)?;
    match (bytes, fraction.is_empty()) {
        (0, true) => Err(ParseBytesReason::Zero),
        (0, false) => Err(ParseBytesReason::FractionOfAByte),
        _ => Ok(bytes),
    }
}

fn unit(name: &str) -> Result<u64, ParseBytesReason> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(ParseBytesReason::UnknownUnit(name.to_owned())),
    })
}

fn digits(text: &str) -> Result<u64, ParseBytesReason> {
    text.bytes()
        .try_fold(0u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
        .ok_or(ParseBytesReason::Overflow)
}

/// `unit * 0.fraction`, rounded down. Digits beyond the 20th are worth less than a millionth of a byte and are skipped.
fn part_of(unit: u64, fraction: &str) -> u64 {
    let digits = &fraction[..fraction.len().min(20)];
    let value = digits
        .bytes()
        .fold(0u128, |value, digit| value * 10 + u128::from(digit - b'0'));
    // Below 2^67 * 2^40, and the quotient is below `unit`.
    (value * u128::from(unit) / 10u128.pow(digits.len() as u32)) as u64
}

#[cfg(test)]
mod tests {
    use super::{ParseBytesReason::*, *};

    #[test]
    fn numbers_with_units_are_read() {
        for (text, bytes) in [
            ("1", 1),
            ("1073741824", 1 << 30),
            ("3b", 3),
            ("2KB", 2_000),
            ("2kib", 2048),
            ("2 k", 2048),
            ("1.5GiB", 3 << 29),
            (".5m", 1 << 19),
            ("2.m", 2 << 20),
            ("0.1GiB", 107_374_182),
            ("1.000", 1),
            ("6TB", 6_000_000_000_000),
            ("8388607T", 8_388_607 << 40),
            ("\t6 GiB\n", 6 << 30),
            ("0.99999999999999999999999999999999k", 1023),
        ] {
            assert_eq!(parse_bytes(text), Ok(Bytes(bytes)), "{text:?}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", Empty),
            ("  ", Empty),
            ("-1GiB", Negative),
            ("0", Zero),
            ("0.0 GiB", Zero),
            ("GiB", NotANumber),
            (".", NotANumber),
            ("1.2.3", NotANumber),
            ("nan", NotANumber),
            ("inf", NotANumber),
            ("+5", NotANumber),
            ("12 potatoes", UnknownUnit("potatoes".into())),
            ("1e9", UnknownUnit("e9".into())),
            ("5 5", UnknownUnit("5".into())),
            ("80%", UnknownUnit("%".into())),
            ("8388608T", Overflow),
            ("99999999999999999999", Overflow),
            ("1.5", FractionOfAByte),
            ("0.5B", FractionOfAByte),
            ("0.0001k", FractionOfAByte),
        ] {
            assert_eq!(parse_bytes(text).unwrap_err().reason, reason, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse_bytes(&text);
        }

        #[test]
        fn whole_bytes_round_trip(bytes in 1u64..=i64::MAX as u64) {
            proptest::prop_assert_eq!(parse_bytes(&bytes.to_string()), Ok(Bytes(bytes)));
        }
    }
}
