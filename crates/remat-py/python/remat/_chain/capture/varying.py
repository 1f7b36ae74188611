"""Tensors of a recorded forward pass whose values vary with the input, and the reads of them that Python may make."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import torch
from torch import fx

from ... import _native
from ..._errors import RematError
from ..._torch_internals import eager

# Functions whose answer does not depend on the values in a tensor; `__get__` reads an attribute.
_ABOUT = re.compile(
    "size|dim|ndimension|numel|nelement|stride|storage_offset|is_contiguous|is_floating_point|is_complex|is_signed"
    "|is_pinned|is_shared|is_conj|is_neg|is_inference|element_size|type|get_device|data_ptr|is_tensor|is_storage"
    "|is_same_size|result_type|can_cast|__len__|__repr__|__hash__|__get__"
)
# Functions that give sizes away, to Python or by the number of tensors that they return.
_SIZES = re.compile("shape|size|numel|nelement|stride|__len__|is_same_size|unbind|split|chunk|tensor_split")

_OWN = tuple(os.path.dirname(os.path.abspath(str(file))) + os.sep for file in (torch.__file__, _native.__file__))


def refusal(name: str, why: str) -> RematError:
    """The error for a forward pass that cannot be recorded, with the line that the model is at."""
    return RematError(
        f"{name} is no chain that can be seen: {why} ({_place()}); "
        "write it as an nn.Sequential, or use remat.budget, which needs no chain"
    )


def _place() -> str:
    """The innermost line outside torch and Remat."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OWN) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Varying:
    """The nodes of a recorded graph whose values depend on the input, on parameters, buffers or random numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: set[fx.Node] = set()
        # Those of them that depend on more than the input.
        self.learned: set[fx.Node] = set()
        self.sizes: set[fx.Node] = set()
        self._draws = self._sizes = False

    def saw(self, overload: Any, args: tuple[Any, ...]) -> None:
        """Notes an op that the function under way is made of."""
        self._draws |= torch.Tag.nondeterministic_seeded in overload.tags
        self._sizes |= torch.Tag.dynamic_output_shape in overload.tags and not _indexes_by_number(args)

    def begin(self) -> None:
        """Begins the call of a function."""
        self._draws = self._sizes = False

    def asks(self, function: str, attribute: str, given: list[fx.Node], result: Any, made: bool) -> bool:
        """Whether the result is a yes or no that the input alone decides.

        ``made`` says that the result holds tensors. Raises ``RematError`` where the course of the model depends on a
        result that other values in tensors may change.
        """
        if _SIZES.fullmatch(attribute or function) and not self.sizes.isdisjoint(given):
            raise refusal(self.name, f"{attribute or function} depends on values in tensors")
        if made or result is None or _ABOUT.fullmatch(function) or self.values.isdisjoint(given):
            return False
        if isinstance(result, bool) and self.learned.isdisjoint(given):
            return True
        raise refusal(self.name, f"its control flow depends on values in tensors, read by {function}")

    def note(self, given: list[fx.Node], made: list[tuple[fx.Node, torch.Tensor]]) -> None:
        """Ends the call of a function that read nodes and made others."""
        if self._draws or not self.values.isdisjoint(given):
            self.values.update(node for node, _ in made)
        if self._draws or not self.learned.isdisjoint(given):
            self.learned.update(node for node, _ in made)
        if self._sizes or not self.sizes.isdisjoint(given):
            self.sizes.update(node for node, tensor in made if tensor.dim())

    def learns(self, node: fx.Node) -> None:
        """Notes a node that depends on more than the input, or that ops write to without the graph showing it."""
        self.values.add(node)
        self.learned.add(node)


def _indexes_by_number(args: tuple[Any, ...]) -> bool:
    indices = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else None
    return indices is not None and not any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)


class Ops(eager.TorchDispatchMode):
    """A dispatch mode that sees the ops of each function of torch."""

    def __init__(self, varying: Varying) -> None:
        super().__init__()
        self.varying = varying
        self.inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.inside:
            raise refusal(self.varying.name, f"{func} is not called through a function of torch")
        self.varying.saw(func, args)
        return func(*args, **(kwargs or {}))
