//! Sizes of results by short rules.
//!
//! Torch's own rules for shapes are written in Python, and check what the call itself checks again. `test_families.py`
//! compares both on torch's samples of each op.

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyTuple};
use smallvec::SmallVec;

/// Sizes of a tensor, or numbers in a list.
pub type Numbers = SmallVec<[u64; 6]>;

/// Numbers in each result; `None` for one that shares a storage or is not there.
pub type Numels = SmallVec<[Option<u64>; 3]>;

/// An argument, as far as rules read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The sizes of a tensor.
    Tensor(Numbers),
    /// Those of tensors in a list, with nothing in the place of some.
    Tensors(Vec<Option<Numbers>>),
    /// A list of numbers, or of flags.
    Numbers(Numbers),
    /// A number, or a flag. Negative ones as torch's `int64_t` has them.
    Number(u64),
    /// Nothing.
    Nothing,
    /// Anything else.
    Other,
}

/// The rule of an op.
#[pyclass(frozen, name = "SizeRule", module = "remat._native", from_py_object)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(Sizes);

/// The places of arguments are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    /// So many results, none with a storage of its own.
    Shared(usize),
    /// So many results with as many numbers as a tensor.
    Like(usize, usize),
    /// The sizes are in a list.
    Listed(usize),
    /// Those of all tensors, broadcast.
    Elementwise,
    One,
    /// The first argument without the dimensions that the second lists.
    Reduced,
    /// All tensors of the first list.
    Joined,
    /// A product of two matrices, of which the left one is there.
    Product(usize),
    /// A product of each two matrices of two batches.
    Products(usize),
    Embedding,
    EmbeddingBackward,
    IndexSelect,
    /// Numbers of the first tensor by indices in a list.
    Indexed,
    /// The last dimensions with as many numbers more, before and behind, as the list says.
    Padded,
    LayerNorm,
    LayerNormBackward,
    BatchNorm,
    BatchNormBackward,
    GroupNorm,
    GroupNormBackward,
    /// Number by number for two tensors where the argument at this place is zero, else one number.
    Loss(usize),
    LossBackward,
    NllLoss,
    Attention,
    AttentionBackward,
    Convolution,
    ConvolutionBackward,
    /// An image of the size in a list.
    Resized,
}

/// Rules of ops that torch does not tag as pointwise, by name, or by name and overload.
fn by_name(name: &str) -> Option<Sizes> {
    Some(match name {
        "_unsafe_view" => Sizes::Shared(1),
        "_log_softmax"
        | "_log_softmax_backward_data"
        | "_safe_softmax"
        | "_softmax"
        | "_softmax_backward_data"
        | "_to_copy"
        | "clone"
        | "cumsum"
        | "empty_like"
        | "_unsafe_index_put"
        | "full_like"
        | "gelu"
        | "index_add"
        | "index_copy"
        | "index_put"
        | "native_dropout_backward"
        | "ones_like"
        | "rand_like"
        | "randn_like"
        | "scatter"
        | "scatter_add"
        | "tril"
        | "triu"
        | "zeros_like" => Sizes::Like(0, 1),
        "native_dropout" => Sizes::Like(0, 2),
        "gelu_backward"
        | "max_pool2d_with_indices_backward"
        | "nll_loss2d_backward"
        | "nll_loss_backward" => Sizes::Like(1, 1),
        "gather" => Sizes::Like(2, 1),
        "empty.memory_format"
        | "full.default"
        | "ones.default"
        | "rand.default"
        | "randn.default"
        | "zeros.default" => Sizes::Listed(0),
        "new_empty" | "new_full" | "new_ones" | "new_zeros" | "randint.default"
        | "select_backward" | "slice_backward" => Sizes::Listed(1),
        "randint.low" | "upsample_bilinear2d_backward" | "upsample_nearest2d_backward" => {
            Sizes::Listed(2)
        }
        "mean.default" | "sum.default" => Sizes::One,
        "mean.dim" | "sum.dim_IntList" => Sizes::Reduced,
        "cat" | "stack" => Sizes::Joined,
        "mm" => Sizes::Product(0),
        "addmm" => Sizes::Product(1),
        "bmm" => Sizes::Products(0),
        "baddbmm" => Sizes::Products(1),
        "embedding" => Sizes::Embedding,
        "embedding_dense_backward" => Sizes::EmbeddingBackward,
        "index" | "_unsafe_index" => Sizes::Indexed,
        "constant_pad_nd" => Sizes::Padded,
        "index_select" => Sizes::IndexSelect,
        "native_layer_norm" => Sizes::LayerNorm,
        "native_layer_norm_backward" => Sizes::LayerNormBackward,
        "native_batch_norm" => Sizes::BatchNorm,
        "native_batch_norm_backward" => Sizes::BatchNormBackward,
        "native_group_norm" => Sizes::GroupNorm,
        "native_group_norm_backward" => Sizes::GroupNormBackward,
        "huber_loss" | "mse_loss" | "smooth_l1_loss" => Sizes::Loss(2),
        "binary_cross_entropy" => Sizes::Loss(3),
        "binary_cross_entropy_backward"
        | "huber_loss_backward"
        | "mse_loss_backward"
        | "smooth_l1_loss_backward" => Sizes::LossBackward,
        "nll_loss2d_forward" | "nll_loss_forward" => Sizes::NllLoss,
        "_scaled_dot_product_flash_attention_for_cpu" => Sizes::Attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward" => Sizes::AttentionBackward,
        "convolution" => Sizes::Convolution,
        "convolution_backward" => Sizes::ConvolutionBackward,
        "upsample_bilinear2d" | "upsample_nearest2d" => Sizes::Resized,
        _ => return None,
    })
}

#[pymethods]
impl Rule {
    /// Of an op that returns so many tensors, all of them arguments or views of one.
    #[staticmethod]
    fn shared(results: usize) -> Rule {
        Rule(Sizes::Shared(results))
    }

    /// Of an op whose one result has the sizes of all tensors, broadcast.
    #[staticmethod]
    fn elementwise() -> Rule {
        Rule(Sizes::Elementwise)
    }

    /// Of an op by its name and overload, if it is one of those that have a rule of their own.
    #[staticmethod]
    fn named(base: &str, overload: &str) -> Option<Rule> {
        by_name(base)
            .or_else(|| by_name(&format!("{base}.{overload}")))
            .map(Rule)
    }

    /// Numbers in each result of a call; `None` if the rule was not written for such a call.
    #[pyo3(name = "numels")]
    fn numels_of(&self, args: &Bound<'_, PyTuple>) -> Option<Vec<Option<u64>>> {
        let args: Vec<_> = args.iter().map(|arg| argument_of(&arg)).collect();
        Some(self.numels(&args)?.to_vec())
    }
}

/// A Python argument.
fn argument_of(value: &Bound<'_, PyAny>) -> Argument {
    if let Some(number) = number_of(value) {
        return Argument::Number(number);
    }
    if value.is_none() {
        return Argument::Nothing;
    }
    let items: Vec<_> = match (value.cast::<PyList>(), value.cast::<PyTuple>()) {
        (Ok(list), _) => list.iter().collect(),
        (_, Ok(tuple)) => tuple.iter().collect(),
        _ => return sizes_of(value).map_or(Argument::Other, Argument::Tensor),
    };
    if let Some(numbers) = items.iter().map(number_of).collect() {
        return Argument::Numbers(numbers);
    }
    let tensor = |item: &Bound<'_, PyAny>| {
        if item.is_none() {
            Some(None)
        } else {
            sizes_of(item).map(Some)
        }
    };
    let tensors: Option<Vec<_>> = items.iter().map(tensor).collect();
    tensors.map_or(Argument::Other, Argument::Tensors)
}

/// A whole number, or a flag; `None` for anything else. A tensor with one whole number could be read as one too.
fn number_of(value: &Bound<'_, PyAny>) -> Option<u64> {
    let number: i64 = value.cast::<PyInt>().ok()?.extract().ok()?;
    Some(number as u64)
}

/// The sizes of a tensor; `None` for anything else.
fn sizes_of(value: &Bound<'_, PyAny>) -> Option<Numbers> {
    let sizes: Vec<u64> = value.getattr("shape").ok()?.extract().ok()?;
    Some(sizes.into())
}

/// Arguments by their places.
struct Arguments<'a>(&'a [Argument]);

impl<'a> Arguments<'a> {
    fn tensor(&self, at: usize) -> Option<&'a [u64]> {
        match self.0.get(at)? {
            Argument::Tensor(sizes) => Some(sizes),
            _ => None,
        }
    }

    fn tensors(&self, at: usize) -> Option<&'a [Option<Numbers>]> {
        match self.0.get(at)? {
            Argument::Tensors(tensors) => Some(tensors),
            _ => None,
        }
    }

    fn size(&self, at: usize, dim: usize) -> Option<u64> {
        self.tensor(at)?.get(dim).copied()
    }

    fn numel(&self, at: usize) -> Option<u64> {
        product(self.tensor(at)?)
    }

    fn list(&self, at: usize) -> Option<&'a [u64]> {
        match self.0.get(at)? {
            Argument::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    fn number(&self, at: usize) -> Option<u64> {
        match self.0.get(at)? {
            Argument::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Which results are wanted.
    fn wanted<const N: usize>(&self, at: usize, numels: [u64; N]) -> Option<Numels> {
        let flags = self.list(at)?;
        let each = numels.into_iter().zip(flags);
        (flags.len() == N)
            .then(|| each.map(|(numel, &wanted)| (wanted != 0).then_some(numel)))
            .map(Iterator::collect)
    }

    fn broadcast(&self, tensors: impl Iterator<Item = &'a [u64]> + Clone) -> Option<u64> {
        let first = tensors.clone().next()?;
        if tensors.clone().all(|sizes| sizes == first) {
            return product(first);
        }
        let dims = tensors.clone().map(<[u64]>::len).max()?;
        let mut sizes: Numbers = smallvec::smallvec![1; dims];
        for tensor in tensors {
            let beyond = dims - tensor.len();
            for (size, &own) in sizes[beyond..].iter_mut().zip(tensor) {
                if own != 1 {
                    *size = own;
                }
            }
        }
        product(&sizes)
    }
}

/// The product of sizes; `None` if it is too large for a number.
pub fn product(sizes: &[u64]) -> Option<u64> {
    let mut sizes = sizes.iter();
    sizes.try_fold(1u64, |product, &size| product.checked_mul(size))
}

fn one(numel: u64) -> Numels {
    smallvec::smallvec![Some(numel)]
}

fn all<const N: usize>(numels: [u64; N]) -> Numels {
    numels.into_iter().map(Some).collect()
}

/// A dimension that may be counted from the end.
fn dimension(dim: u64, dims: usize) -> Option<usize> {
    let dim = dim as i64;
    let from_start = if dim < 0 { dim + dims as i64 } else { dim };
    usize::try_from(from_start).ok().filter(|&dim| dim < dims)
}

impl Rule {
    /// Numbers in each result of a call; `None` if the rule was not written for such a call.
    pub fn numels(&self, args: &[Argument]) -> Option<Numels> {
        let args = Arguments(args);
        Some(match self.0 {
            Sizes::Shared(results) => smallvec::smallvec![None; results],
            Sizes::Like(at, results) => smallvec::smallvec![Some(args.numel(at)?); results],
            Sizes::Listed(at) => one(product(args.list(at)?)?),
            Sizes::Elementwise => {
                let tensors = args.0.iter().filter_map(|arg| match arg {
                    Argument::Tensor(sizes) => Some(sizes.as_slice()),
                    _ => None,
                });
                one(args.broadcast(tensors)?)
            }
            Sizes::One => one(1),
            Sizes::Reduced => one(reduced(&args)?),
            Sizes::Joined => {
                let mut numels = args
                    .tensors(0)?
                    .iter()
                    .map(|sizes| product(sizes.as_ref()?));
                one(numels.try_fold(0u64, |sum, numel| sum.checked_add(numel?))?)
            }
            Sizes::Product(at) => one(args.size(at, 0)?.checked_mul(args.size(at + 1, 1)?)?),
            Sizes::Products(at) => one(product(&[
                args.size(at, 0)?,
                args.size(at, 1)?,
                args.size(at + 1, 2)?,
            ])?),
            Sizes::Embedding => one(args.numel(1)?.checked_mul(args.size(0, 1)?)?),
            Sizes::EmbeddingBackward => {
                one(args.number(2)?.checked_mul(*args.tensor(0)?.last()?)?)
            }
            Sizes::IndexSelect => one(selected(&args)?),
            Sizes::Indexed => one(indexed(&args)?),
            Sizes::Padded => one(padded(&args)?),
            Sizes::LayerNorm => {
                let (sizes, normalized) = (args.tensor(0)?, args.list(1)?.len());
                let rows = product(&sizes[..sizes.len().checked_sub(normalized)?])?;
                all([product(sizes)?, rows, rows])
            }
            Sizes::LayerNormBackward => {
                let weights = product(args.list(2)?)?;
                args.wanted(7, [args.numel(1)?, weights, weights])?
            }
            // In evaluation the two statistics are empty in truth, and as large as here by torch's own rule.
            Sizes::BatchNorm => {
                let channels = args.size(0, 1)?;
                all([args.numel(0)?, channels, channels])
            }
            Sizes::BatchNormBackward => {
                let channels = args.size(1, 1)?;
                args.wanted(9, [args.numel(1)?, channels, channels])?
            }
            Sizes::GroupNorm => {
                let groups = args.number(3)?.checked_mul(args.number(6)?)?;
                all([args.numel(0)?, groups, groups])
            }
            Sizes::GroupNormBackward => {
                let channels = args.number(6)?;
                args.wanted(9, [args.numel(1)?, channels, channels])?
            }
            Sizes::Loss(reduction) => match args.0.get(reduction) {
                Some(Argument::Number(0)) => one(args.broadcast(two(&args, 0)?.into_iter())?),
                _ => one(1),
            },
            Sizes::LossBackward => one(args.broadcast(two(&args, 1)?.into_iter())?),
            Sizes::NllLoss => {
                let losses = if args.number(3)? == 0 {
                    args.numel(1)?
                } else {
                    1
                };
                all([losses, 1])
            }
            Sizes::Attention => {
                let (_, sizes) = args.tensor(0)?.split_last()?;
                let rows = product(sizes)?;
                all([rows.checked_mul(*args.tensor(2)?.last()?)?, rows])
            }
            Sizes::AttentionBackward => all([args.numel(1)?, args.numel(2)?, args.numel(3)?]),
            Sizes::Convolution => one(convolved(&args)?),
            Sizes::ConvolutionBackward => {
                let transposed = args.number(7)? != 0;
                let bias = if transposed {
                    args.size(2, 1)?.checked_mul(args.number(9)?)?
                } else {
                    args.size(2, 0)?
                };
                args.wanted(10, [args.numel(1)?, args.numel(2)?, bias])?
            }
            Sizes::Resized => {
                let places = product(args.list(1)?)?;
                one(product(&[args.size(0, 0)?, args.size(0, 1)?, places])?)
            }
        })
    }
}

/// The sizes of two tensors, of which the first is at a place.
fn two<'a>(args: &Arguments<'a>, at: usize) -> Option<[&'a [u64]; 2]> {
    Some([args.tensor(at)?, args.tensor(at + 1)?])
}

fn reduced(args: &Arguments<'_>) -> Option<u64> {
    let sizes = args.tensor(0)?;
    let dims = args.list(1).unwrap_or(&[]);
    if dims.is_empty() || sizes.is_empty() {
        return Some(1);
    }
    let mut kept = Numbers::from_slice(sizes);
    for &dim in dims {
        kept[dimension(dim, sizes.len())?] = 1;
    }
    product(&kept)
}

fn selected(args: &Arguments<'_>) -> Option<u64> {
    let sizes = args.tensor(0)?;
    if sizes.is_empty() {
        return Some(1);
    }
    let mut kept = Numbers::from_slice(sizes);
    kept[dimension(args.number(1)?, sizes.len())?] = args.numel(2)?;
    product(&kept)
}

/// Numbers in a tensor with margins, which may be negative. The first two are of the last dimension.
fn padded(args: &Arguments<'_>) -> Option<u64> {
    let (sizes, margins) = (args.tensor(0)?, args.list(1)?);
    let pairs = margins.len() / 2;
    let (whole, widened) = sizes.split_at_checked(sizes.len().checked_sub(pairs)?)?;
    let wide = |(&size, margins): (&u64, &[u64])| {
        let mut margins = margins.iter();
        margins.try_fold(size, |size, &margin| size.checked_add_signed(margin as i64))
    };
    let widened = widened.iter().zip(margins.chunks_exact(2).rev()).map(wide);
    let sizes: Option<Numbers> = whole.iter().copied().map(Some).chain(widened).collect();
    product(&sizes?)
}

/// Numbers in a result by indices: one for each place that the indices name together, in each of the places that the
/// dimensions without an index have.
fn indexed(args: &Arguments<'_>) -> Option<u64> {
    let (sizes, indices) = (args.tensor(0)?, args.tensors(1)?);
    let (named, others) = sizes.split_at_checked(indices.len())?;
    let without = named
        .iter()
        .zip(indices)
        .filter(|(_, index)| index.is_none());
    let kept: Numbers = without
        .map(|(&size, _)| size)
        .chain(others.iter().copied())
        .collect();
    let indices = indices.iter().flatten().map(SmallVec::as_slice);
    product(&kept)?.checked_mul(args.broadcast(indices)?)
}

/// Numbers in the result of a convolution: of each place where the kernel fits, for each channel and sample.
fn convolved(args: &Arguments<'_>) -> Option<u64> {
    let (sizes, weight) = (args.tensor(0)?, args.tensor(1)?);
    let lists = [args.list(3)?, args.list(4)?, args.list(5)?, args.list(7)?];
    let (transposed, groups) = (args.number(6)? != 0, args.number(8)?);
    let channels = if transposed {
        weight.get(1)?.checked_mul(groups)?
    } else {
        *weight.first()?
    };
    let mut places = 1u64;
    for (i, (&size, &extent)) in sizes.get(2..)?.iter().zip(weight.get(2..)?).enumerate() {
        // One number may stand for all dimensions.
        let each = lists.map(|list| match *list {
            [] => None,
            [number] => i64::try_from(number).ok(),
            _ => list.get(i).and_then(|&number| i64::try_from(number).ok()),
        });
        let [step, pad, spread, beyond] = each;
        let (step, pad, spread) = (step?, pad?, spread?);
        let (size, extent) = (i64::try_from(size).ok()?, i64::try_from(extent).ok()?);
        let reach = spread.checked_mul(extent.checked_sub(1)?)?.checked_add(1)?;
        let padding = pad.checked_mul(2)?;
        let fits = if transposed {
            let spread_out = size.checked_sub(1)?.checked_mul(step)?;
            let inside = spread_out.checked_sub(padding)?.checked_add(reach)?;
            inside.checked_add(beyond?)?
        } else {
            let room = size.checked_add(padding)?.checked_sub(reach)?;
            room.checked_div_euclid(step)?.checked_add(1)?
        };
        places = places.checked_mul(u64::try_from(fits.max(0)).ok()?)?;
    }
    product(&[*sizes.first()?, channels, places])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(sizes: &[u64]) -> Argument {
        Argument::Tensor(sizes.into())
    }

    fn numbers(numbers: &[i64]) -> Argument {
        Argument::Numbers(numbers.iter().map(|&number| number as u64).collect())
    }

    fn numels(name: &str, args: &[Argument]) -> Option<Vec<Option<u64>>> {
        let rule = by_name(name).map(Rule).unwrap();
        rule.numels(args).map(|numels| numels.to_vec())
    }

    #[test]
    fn dimensions_may_be_counted_from_the_end() {
        let x = tensor(&[2, 3, 5]);
        let of = |dims| numels("sum.dim_IntList", &[x.clone(), numbers(dims)]);
        assert_eq!(of(&[-1, 0]), Some(vec![Some(3)]));
        assert_eq!(of(&[]), Some(vec![Some(1)]));
        assert_eq!(of(&[3]), None);
        assert_eq!(of(&[-4]), None);
    }

    #[test]
    fn margins_begin_with_the_last_dimension_and_may_be_negative() {
        let of =
            |x: &[u64], margins: &[i64]| numels("constant_pad_nd", &[tensor(x), numbers(margins)]);
        assert_eq!(of(&[2, 3, 5], &[1, 2]), Some(vec![Some(2 * 3 * 8)]));
        assert_eq!(of(&[2, 3, 5], &[1, 2, -1, 0]), Some(vec![Some(2 * 2 * 8)]));
        assert_eq!(of(&[2, 3], &[0, 0, 0, 0, 1, 1]), None);
        assert_eq!(of(&[2, 3], &[-4, 0]), None);
    }

    #[test]
    fn indices_name_places_together() {
        let indices = |indices: &[Option<&[u64]>]| {
            Argument::Tensors(
                indices
                    .iter()
                    .map(|index| index.map(Numbers::from))
                    .collect(),
            )
        };
        let of =
            |x: &[u64], listed: &[Option<&[u64]>]| numels("index", &[tensor(x), indices(listed)]);
        assert_eq!(of(&[7, 5], &[Some(&[3])]), Some(vec![Some(15)]));
        assert_eq!(of(&[7, 5], &[None, Some(&[2, 3])]), Some(vec![Some(42)]));
        assert_eq!(
            of(&[7, 5, 4], &[Some(&[3, 1]), Some(&[6])]),
            Some(vec![Some(72)])
        );
        assert_eq!(
            of(&[7], &[Some(&[3]), Some(&[3])]),
            None,
            "more indices than dimensions"
        );
        assert_eq!(of(&[7], &[None]), None, "no index");
        assert_eq!(numels("cat", &[indices(&[Some(&[3]), None])]), None);
    }

    #[test]
    fn results_that_are_not_wanted_have_no_numbers() {
        let x = tensor(&[8, 4, 9]);
        let others = vec![Argument::Other; 6];
        let args = [
            vec![x.clone(), x],
            others,
            vec![Argument::Other, numbers(&[1, 0, 1])],
        ];
        let found = numels("native_batch_norm_backward", &args.concat());
        assert_eq!(found, Some(vec![Some(288), None, Some(4)]));
    }

    #[test]
    fn absurd_arguments_have_no_results() {
        let vast = tensor(&[u64::MAX, 2]);
        assert_eq!(numels("clone", std::slice::from_ref(&vast)), None);
        assert_eq!(numels("mm", &[vast.clone(), tensor(&[2, 2])]), None);
        assert_eq!(numels("full.default", &[numbers(&[-1, 7])]), None);
        assert_eq!(numels("mm", &[tensor(&[3]), Argument::Other]), None);
        let convolution = |step, list: &[i64]| {
            let x = [
                tensor(&[1, 3, 8, 8]),
                tensor(&[4, 3, 3, 3]),
                Argument::Other,
            ];
            let lists = [numbers(&[step]), numbers(&[1, 1]), numbers(list)];
            let others = [Argument::Number(0), numbers(&[0, 0]), Argument::Number(1)];
            numels("convolution", &[&x[..], &lists, &others].concat())
        };
        assert_eq!(convolution(2, &[1]), Some(vec![Some(4 * 16)]));
        assert_eq!(convolution(0, &[1]), None);
        assert_eq!(convolution(1, &[i64::MAX]), None);
        assert_eq!(convolution(1, &[]), None);
    }
}
