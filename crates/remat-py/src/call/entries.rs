//! Numbers other than zero in a tensor of main memory. Their count decides how much an op makes that picks by a mask.

use smallvec::SmallVec;

/// Torch's number of the type of flags.
pub const BOOL: u32 = 11;

/// Torch's number of the type of unsigned bytes, which among indices are masks too.
pub const BYTE: u32 = 0;

/// Bytes of a number of the type that has this number in torch; `None` for types that few programs use.
pub fn width_of(dtype: u32) -> Option<u64> {
    Some(match dtype {
        BYTE | 1 | BOOL => 1,
        2 | 5 | 15 => 2,
        3 | 6 | 8 => 4,
        4 | 7 | 9 => 8,
        10 => 16,
        _ => return None,
    })
}

/// The numbers of a tensor that lie side by side, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Bytes of each.
    width: usize,
    /// Whether its highest bit is a sign beside the number: zero has it or not.
    signed_zero: bool,
    count: usize,
}

impl Numbers {
    /// The numbers of a tensor of the type that has this number in torch, with these sizes and strides; `None` where
    /// they do not lie side by side, and for other types.
    pub fn of(dtype: u32, sizes: &[i64], strides: &[i64]) -> Option<Numbers> {
        let signed_zero = match dtype {
            BYTE..=4 | BOOL => false,
            5..=7 | 15 => true,
            _ => return None,
        };
        Some(Numbers {
            width: width_of(dtype)? as usize,
            signed_zero,
            count: usize::try_from(side_by_side(sizes, strides)?).ok()?,
        })
    }

    /// Bytes of each.
    pub fn width(self) -> usize {
        self.width
    }

    /// Bytes that they take.
    pub fn bytes(self) -> Option<usize> {
        self.count.checked_mul(self.width)
    }

    /// How many of them are not zero.
    ///
    /// # Safety
    /// The numbers lie at the address, and stay there for the call.
    pub unsafe fn entries(self, address: *const u8) -> u64 {
        if self.count == 0 {
            return 0;
        }
        // SAFETY: the caller promises so many bytes. Another thread that writes them meanwhile makes the result of the
        // op itself depend on chance too; any bytes are valid here.
        let bytes = unsafe { std::slice::from_raw_parts(address, self.count * self.width) };
        let shift = u32::from(self.signed_zero);
        match self.width {
            1 => flags(bytes),
            2 => count(bytes, |number| u16::from_ne_bytes(number) << shift != 0),
            4 => count(bytes, |number| u32::from_ne_bytes(number) << shift != 0),
            _ => count(bytes, |number| u64::from_ne_bytes(number) << shift != 0),
        }
    }
}

/// How many numbers there are, if they lie side by side in some order of the dimensions.
fn side_by_side(sizes: &[i64], strides: &[i64]) -> Option<i64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let dims = strides.iter().zip(sizes).filter(|&(_, &size)| size != 1);
    let mut dims: SmallVec<[(i64, i64); 6]> = dims.map(|(&stride, &size)| (stride, size)).collect();
    dims.sort_unstable();
    let mut dims = dims.into_iter();
    dims.try_fold(1i64, |count, (stride, size)| {
        (stride == count).then(|| count.checked_mul(size))?
    })
}

/// Bytes other than zero. Those of a short part are summed up in bytes, many at once.
fn flags(bytes: &[u8]) -> u64 {
    let short = |part: &[u8]| part.iter().map(|&byte| u8::from(byte != 0)).sum::<u8>();
    let parts = bytes.chunks(usize::from(u8::MAX));
    parts.map(|part| u64::from(short(part))).sum()
}

fn count<const WIDTH: usize>(bytes: &[u8], is_entry: impl Fn([u8; WIDTH]) -> bool) -> u64 {
    let numbers = bytes.chunks_exact(WIDTH);
    let numbers = numbers.filter_map(|number| number.try_into().ok());
    numbers.map(|number| u64::from(is_entry(number))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries<const WIDTH: usize>(dtype: u32, numbers: &[[u8; WIDTH]]) -> u64 {
        let bytes = numbers.concat();
        let numbers = Numbers::of(dtype, &[numbers.len() as i64], &[1]).unwrap();
        assert_eq!(numbers.bytes(), Some(bytes.len()));
        // SAFETY: the bytes lie there.
        unsafe { numbers.entries(bytes.as_ptr()) }
    }

    #[test]
    fn flags_are_counted_whatever_their_number() {
        for length in [0, 1, 254, 255, 256, 1000] {
            assert_eq!(entries(BOOL, &vec![[1]; length]), length as u64);
            let every_third: Vec<_> = (0..length).map(|at| [u8::from(at % 3 == 0)]).collect();
            assert_eq!(entries(BOOL, &every_third), length.div_ceil(3) as u64);
        }
        assert_eq!(entries(BYTE, &[[0], [255], [7]]), 2);
    }

    #[test]
    fn zero_of_either_sign_is_no_entry_and_what_is_no_number_is_one() {
        let floats = [0.0, -0.0, 1.5, f32::NAN, f32::MIN_POSITIVE / 2.0, -3.0];
        assert_eq!(entries(6, &floats.map(f32::to_ne_bytes)), 4);
        let doubles = [0.0, -0.0, 1.5, f64::NAN];
        assert_eq!(entries(7, &doubles.map(f64::to_ne_bytes)), 2);
        for halves in [5, 15] {
            let numbers = [0u16, 0x8000, 0x8001, 0x3c00];
            assert_eq!(entries(halves, &numbers.map(u16::to_ne_bytes)), 2);
        }
    }

    #[test]
    fn the_lowest_whole_number_is_an_entry() {
        assert_eq!(entries(1, &[i8::MIN, 0, 1].map(i8::to_ne_bytes)), 2);
        assert_eq!(entries(2, &[i16::MIN, 0, 1].map(i16::to_ne_bytes)), 2);
        assert_eq!(entries(3, &[i32::MIN, 0, 1].map(i32::to_ne_bytes)), 2);
        assert_eq!(entries(4, &[i64::MIN, 0, 1 << 40].map(i64::to_ne_bytes)), 2);
    }

    #[test]
    fn numbers_that_do_not_lie_side_by_side_are_not_counted() {
        let bytes = |sizes: &[i64], strides: &[i64]| {
            Numbers::of(BOOL, sizes, strides).and_then(Numbers::bytes)
        };
        assert_eq!(bytes(&[3, 4], &[4, 1]), Some(12));
        assert_eq!(bytes(&[4, 3], &[1, 4]), Some(12), "transposed");
        assert_eq!(bytes(&[3, 1, 4], &[4, 99, 1]), Some(12));
        assert_eq!(bytes(&[], &[]), Some(1));
        assert_eq!(bytes(&[4, 0], &[1, 1]), Some(0));
        assert_eq!(bytes(&[3, 4], &[8, 1]), None, "parts of wider rows");
        assert_eq!(bytes(&[3, 4], &[0, 1]), None, "expanded");
        let vast = i64::MAX;
        assert_eq!(bytes(&[vast, vast], &[vast, 1]), None);
        assert_eq!(Numbers::of(9, &[3], &[1]), None, "complex");
    }
}
