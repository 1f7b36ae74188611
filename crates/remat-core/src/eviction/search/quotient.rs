//! Quotients of integers as the reference rounds them: once, to the nearest double.

/// The double nearest to a quotient of integers; infinite for a denominator of 0.
#[inline]
pub(super) fn quotient(numerator: i64, denominator: u128) -> f64 {
    const EXACT: u128 = 1 << 53;
    if denominator == 0 {
        return f64::INFINITY;
    }
    let magnitude = u128::from(numerator.unsigned_abs());
    if magnitude <= EXACT && denominator <= EXACT {
        // By way of 64 bits, for which there is an instruction.
        return numerator as f64 / denominator as i64 as f64;
    }
    let sign = if numerator < 0 { -1.0 } else { 1.0 };
    sign * nearest(magnitude, denominator)
}

/// Long division to 55 significant bits and a sticky bit, rounded once to the 53 of a double.
#[cold]
fn nearest(numerator: u128, denominator: u128) -> f64 {
    if numerator == 0 {
        return 0.0;
    }
    let mut exponent = denominator.leading_zeros() as i32 - numerator.leading_zeros() as i32;
    // Both with the top bit in the same place; the quotient then lies in (1/2, 2).
    let mut rest = numerator << numerator.leading_zeros();
    let divisor = denominator << denominator.leading_zeros();
    let mut bits: u64 = 0;
    if rest < divisor {
        exponent -= 1;
    } else {
        rest -= divisor;
        bits = 1;
    }
    let mut wanted = if bits == 1 { 54 } else { 55 };
    while wanted > 0 {
        let carry = rest >> 127 == 1;
        rest <<= 1;
        bits <<= 1;
        if carry || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            bits |= 1;
        }
        wanted -= 1;
    }
    let bits = (bits << 1) | u64::from(rest != 0);
    bits as f64 * 2f64.powi(exponent - 55)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_once() {
        assert_eq!(quotient(1, 3), 1.0 / 3.0);
        assert_eq!(quotient(-7, 2), -3.5);
        assert_eq!(quotient(5, 0), f64::INFINITY);
        assert_eq!(quotient(0, 1 << 100), 0.0);
        // 2^53 + 1 is not a double; a quotient by way of doubles would be 1.
        let odd = (1u128 << 53) + 1;
        assert_eq!(quotient((1 << 53) + 1, odd), 1.0);
        assert_eq!(quotient(3 * ((1 << 53) + 1), odd), 3.0);
        assert_eq!(quotient(1 << 53, odd), 1.0 - f64::EPSILON / 2.0);
        assert_eq!(quotient(i64::MAX, 1 << 60), 8.0);
        assert_eq!(quotient(1, 1 << 80), 2f64.powi(-80));
    }
}
