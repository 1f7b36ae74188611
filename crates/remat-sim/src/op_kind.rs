//! Cost density of ops, by the names that frameworks give them (Coop section 3.4, table 1).

use remat_core::Kind;

/// Parts of the names of ops whose cost grows faster than their size.
const EXPENSIVE: [&str; 13] = [
    "conv",
    "mm",
    "matmul",
    "linear",
    "attention",
    "lstm",
    "gru",
    "rnn",
    "einsum",
    "bilinear.",
    "cholesky",
    "solve",
    "svd",
];

/// The kind of an op. An op not known to be expensive is [`Kind::Unknown`]; the engine then goes by its measured cost.
pub(crate) fn of(name: &str) -> Kind {
    if EXPENSIVE.iter().any(|part| name.contains(part)) {
        Kind::Expensive
    } else {
        Kind::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_convolutions_are_expensive() {
        for name in [
            "aten.convolution.default",
            "cudnn_convolution_backward",
            "aten.addmm.default",
            "bmm",
        ] {
            assert_eq!(of(name), Kind::Expensive, "{name}");
        }
        for name in [
            "aten.add.Tensor",
            "relu_",
            "cudnn_batch_norm",
            "aten.clone.default",
        ] {
            assert_eq!(of(name), Kind::Unknown, "{name}");
        }
    }
}
