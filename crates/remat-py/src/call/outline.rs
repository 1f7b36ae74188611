//! The outline of a call: all that its words tell but for sizes and numbers. Calls with one outline are a family.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::arity::Arity;
use super::entries::width_of;
use super::pass::{HEAD, word};
use super::rules::{Argument, Numbers};
use super::view::Geometry;

/// A call's outline, and beside it what the outline leaves out.
#[derive(Debug)]
pub struct Outline {
    /// Two calls have one outline if they have the same words.
    pub words: Vec<u64>,
    /// A hash of the words.
    pub key: u64,
    /// The arguments, as far as rules read them.
    pub arguments: Vec<Argument>,
    /// All tensors among the arguments, in their order.
    pub tensors: Vec<Geometry>,
    /// Bytes of those that do not lie in one piece; `None` if there is one of an unusual type.
    pub strided: Option<u64>,
}

struct Reader<'a> {
    words: &'a [u64],
    out: Outline,
}

impl Outline {
    /// The outline of a call by its words; `None` if a tensor is empty, from which nothing follows for others.
    pub fn of(words: &[u64], arity: &Arity) -> Option<Outline> {
        let mut reader = Reader {
            words,
            out: Outline {
                words: Vec::with_capacity(words.len()),
                key: 0,
                arguments: Vec::with_capacity(arity.schema.arguments),
                tensors: Vec::new(),
                strided: Some(0),
            },
        };
        for _ in 0..HEAD {
            let word = reader.next()?;
            reader.out.words.push(word);
        }
        for position in 0..arity.schema.arguments {
            let leaves_out = position < 64 && arity.schema.extents >> position & 1 == 1;
            let argument = reader.argument(leaves_out)?;
            reader.out.arguments.push(argument);
        }
        let mut hash = FxHasher::default();
        let Reader { mut out, .. } = reader;
        out.words.iter().for_each(|&word| hash.write_u64(word));
        out.key = hash.finish();
        let empty = |tensor: &Geometry| tensor.sizes.contains(&0);
        (!out.tensors.iter().any(empty)).then_some(out)
    }
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u64> {
        let (&first, others) = self.words.split_first()?;
        self.words = others;
        Some(first)
    }

    fn take(&mut self, count: u64) -> Option<&[u64]> {
        let (taken, others) = self.words.split_at_checked(usize::try_from(count).ok()?)?;
        self.words = others;
        Some(taken)
    }

    /// Reads an argument. One that `leaves_out` numbers has only its kind in the outline.
    fn argument(&mut self, leaves_out: bool) -> Option<Argument> {
        let head = self.next()?;
        let (kind, number) = word::parts(head);
        self.out.words.push(head);
        Some(match kind {
            word::BOOL => Argument::Number(number),
            word::INT => {
                let value = self.next()?;
                self.out.words.extend((!leaves_out).then_some(value));
                Argument::Number(value)
            }
            word::LIST => return self.list(number, leaves_out),
            word::TENSOR => {
                let sizes = self.tensor(number)?;
                Argument::Tensor(sizes)
            }
            word::FLOAT | word::DEVICE => {
                let value = self.next()?;
                self.out.words.push(value);
                Argument::Other
            }
            word::TEXT => {
                let text = self.take(number.div_ceil(8))?.to_vec();
                self.out.words.extend(text);
                Argument::Other
            }
            word::NONE => Argument::Nothing,
            // Numbers that no form tells.
            _ => Argument::Other,
        })
    }

    fn list(&mut self, items: u64, leaves_out: bool) -> Option<Argument> {
        let mut numbers = Numbers::new();
        let mut tensors = Vec::new();
        for _ in 0..items {
            match self.argument(leaves_out)? {
                Argument::Number(number) => numbers.push(number),
                Argument::Tensor(sizes) => tensors.push(Some(sizes)),
                Argument::Nothing => tensors.push(None),
                _ => {}
            }
        }
        Some(if numbers.len() as u64 == items {
            Argument::Numbers(numbers)
        } else if tensors.len() as u64 == items {
            Argument::Tensors(tensors)
        } else {
            Argument::Other
        })
    }

    fn tensor(&mut self, dims: u64) -> Option<Numbers> {
        // The dispatch keys; the dtype and the storage's place among those of the call.
        let told = <[u64; 2]>::try_from(self.take(2)?).ok()?;
        let sizes = Numbers::from_slice(self.take(dims)?);
        let strides = self.take(dims)?.iter().map(|&stride| stride as i64);
        let tensor = Geometry {
            strides: strides.collect(),
            sizes,
        };
        let lies = tensor.lies();
        self.out.words.extend([told[0], told[1], lies as u64]);
        if lies != Lies::Contiguously {
            let numel = tensor.numel().zip(width_of((told[1] & 0xffff) as u32));
            let bytes = numel.and_then(|(numel, width)| numel.checked_mul(width));
            let both = self.out.strided.zip(bytes);
            self.out.strided = both.and_then(|(sum, bytes)| sum.checked_add(bytes));
        }
        let sizes = tensor.sizes.clone();
        self.out.tensors.push(tensor);
        Some(sizes)
    }
}

/// The order of a tensor's numbers in memory, as far as it decides what an op copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    Otherwise,
    /// Rows or columns of a matrix, or of each in a batch, lie one after the other.
    ForBlas,
    Contiguously,
}

impl Geometry {
    fn lies(&self) -> Lies {
        if self.is_contiguous() {
            Lies::Contiguously
        } else if self.is_read_by_blas() {
            Lies::ForBlas
        } else {
            Lies::Otherwise
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arity::{Schema, Seen};
    use super::*;

    fn arity(arguments: usize, extents: u64) -> Arity {
        Arity {
            schema: Schema {
                arguments,
                extents,
                ..Schema::default()
            },
            seen: Seen::default(),
        }
    }

    fn tensor(dtype: u64, sizes: &[u64], strides: &[u64]) -> Vec<u64> {
        let head = [word::of(word::TENSOR, sizes.len() as u64), 0xc0, dtype];
        [&head[..], sizes, strides].concat()
    }

    fn outline(parts: &[Vec<u64>], extents: u64) -> Outline {
        let words = [&[7; HEAD][..], &parts.concat()].concat();
        Outline::of(&words, &arity(parts.len(), extents)).unwrap()
    }

    fn ints(numbers: &[u64]) -> Vec<u64> {
        let items = numbers.iter().flat_map(|&n| [word::of(word::INT, 0), n]);
        std::iter::once(word::of(word::LIST, numbers.len() as u64))
            .chain(items)
            .collect()
    }

    #[test]
    fn sizes_alone_make_no_other_outline() {
        let of = |rows| outline(&[tensor(6, &[rows, 4], &[4, 1]), tensor(6, &[4], &[1])], 0);
        let (a, b) = (of(3), of(900));
        assert_eq!((a.key, &a.words), (b.key, &b.words));
        let sizes = Numbers::from_slice(&[900, 4]);
        assert_eq!(b.arguments[0], Argument::Tensor(sizes));
    }

    #[test]
    fn dtypes_dimensions_and_orders_do() {
        let all = [
            tensor(6, &[3, 4], &[4, 1]),
            tensor(7, &[3, 4], &[4, 1]),
            tensor(6, &[3, 4, 1], &[4, 1, 1]),
            tensor(6, &[3, 4], &[1, 3]),
            tensor(6, &[3, 4], &[8, 2]),
        ];
        let outlines = all.map(|tensor| outline(&[tensor], 0).words);
        for (at, one) in outlines.iter().enumerate() {
            assert!(!outlines[..at].contains(one), "{at}");
        }
    }

    #[test]
    fn dimensions_of_one_number_may_lie_anywhere() {
        let of = |stride| outline(&[tensor(6, &[1, 4], &[stride, 1])], 0).words;
        assert_eq!(of(4), of(77));
    }

    #[test]
    fn lists_of_sizes_are_left_out_and_others_are_not() {
        let of = |numbers: &[u64], extents| outline(&[ints(numbers)], extents);
        assert_eq!(of(&[2, 3], 1).words, of(&[5, 9], 1).words);
        assert_ne!(of(&[2, 3], 0).words, of(&[5, 9], 0).words);
        let numbers = Numbers::from_slice(&[5, 9]);
        assert_eq!(of(&[5, 9], 1).arguments, [Argument::Numbers(numbers)]);
    }

    #[test]
    fn bytes_of_what_does_not_lie_in_one_piece_are_added_up() {
        let strided = |tensors: &[Vec<u64>]| outline(tensors, 0).strided;
        let (wide, narrow) = (tensor(6, &[3, 4], &[8, 2]), tensor(4, &[5], &[2]));
        assert_eq!(strided(&[tensor(6, &[3, 4], &[4, 1])]), Some(0));
        assert_eq!(strided(&[wide.clone(), narrow.clone()]), Some(48 + 40));
        // The word of the type tells the place of the storage too.
        let second = tensor(1 << 32 | 6, &[3, 4], &[1, 3]);
        assert_eq!(strided(&[narrow, second]), Some(40 + 48));
        assert_eq!(strided(&[wide, tensor(77, &[5], &[2])]), None);
    }

    #[test]
    fn lists_keep_the_places_of_nothing() {
        let head = vec![word::of(word::LIST, 2), word::of(word::NONE, 0)];
        let list = [head, tensor(4, &[9], &[1])].concat();
        let sizes = Some(Numbers::from_slice(&[9]));
        assert_eq!(
            outline(&[list], 0).arguments,
            [Argument::Tensors(vec![None, sizes])]
        );
    }

    #[test]
    fn nothing_follows_from_empty_tensors() {
        let words = [vec![7; HEAD], tensor(6, &[0, 4], &[4, 1])].concat();
        assert!(Outline::of(&words, &arity(1, 0)).is_none());
    }

    #[test]
    fn words_that_end_early_have_no_outline() {
        let words = [vec![7; HEAD], tensor(6, &[3, 4], &[4, 1]), ints(&[1, 2])].concat();
        for end in 0..words.len() {
            assert!(Outline::of(&words[..end], &arity(2, 0)).is_none(), "{end}");
        }
    }
}
