//! The role of an op in attention, by its name as PyTorch gives it.

/// The role of an op in attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// A matrix product.
    Product,
    /// Softmax, forward.
    Softmax,
    /// A whole core in one op, forward.
    Fused,
    /// Part of a backward pass.
    Backward,
    /// Nothing.
    #[default]
    Other,
}

/// Matrix products, without namespace and overload.
const PRODUCTS: [&str; 7] = [
    "mm", "bmm", "addmm", "baddbmm", "matmul", "einsum", "linear",
];

/// Parts of the names of ops that are a whole core.
const FUSED: [&str; 3] = [
    "scaled_dot_product",
    "flash_attention",
    "efficient_attention",
];

impl Role {
    pub(crate) fn of(name: &str) -> Role {
        let mut parts = name.split(['.', ':']).filter(|part| !part.is_empty());
        let first = parts.next().unwrap_or_default();
        let op = parts.next().unwrap_or(first);
        match op {
            _ if op.contains("backward") => Role::Backward,
            _ if PRODUCTS.contains(&op) || PRODUCTS.contains(&first) => Role::Product,
            _ if FUSED.iter().any(|part| name.contains(part)) => Role::Fused,
            _ if name.contains("softmax") && !name.contains("log_softmax") => Role::Softmax,
            _ => Role::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_told_from_the_names_of_pytorch() {
        for (name, role) in [
            ("bmm", Role::Product),
            ("aten.baddbmm.default", Role::Product),
            ("aten::mm", Role::Product),
            ("_softmax", Role::Softmax),
            ("aten._safe_softmax.default", Role::Softmax),
            ("aten._log_softmax.default", Role::Other),
            ("aten._softmax_backward_data.default", Role::Backward),
            (
                "aten._scaled_dot_product_flash_attention_for_cpu.default",
                Role::Fused,
            ),
            (
                "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
                Role::Backward,
            ),
            ("aten.common.default", Role::Other),
            ("", Role::Other),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }
}
