"""The backward pass of a compiled graph, as autograd sees it."""

from __future__ import annotations

from typing import Any

import torch

from ..eager import storage_id

_DEPTH = 4


def backward_node(outputs: list[torch.Tensor]) -> Any:
    """The node of autograd that runs the compiled backward pass of these outputs; ``None`` if there is none."""
    level = [output.grad_fn for output in outputs if output.grad_fn is not None]
    for _ in range(_DEPTH):
        for node in level:
            if type(node).__name__ == "CompiledFunctionBackward":
                return node
        level = [before for node in level for before, _ in node.next_functions if before is not None]
    return None


def saved_storages(node: Any) -> dict[int, int]:
    """Bytes of the tensors that a node keeps, by storage."""
    kept = [tensor for tensor in node.saved_tensors if isinstance(tensor, torch.Tensor)]
    return {storage_id(tensor): int(tensor.untyped_storage().nbytes()) for tensor in kept}
