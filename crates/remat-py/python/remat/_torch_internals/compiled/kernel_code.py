"""The Python that Inductor generates around its kernels, taken apart into ops that read and make values.

Only code for processors is: the parameters of a C++ kernel say what it reads and what it writes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from .blocks import Blocks
from .generated_code import main_function, without_memory
from .kernel_ops import NotTakenApart, Pass
from .kernel_reading import Reading


class KernelCode:
    """Takes the passes of one graph apart, the forward pass first. Values of both have one numbering."""

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)

    def take(
        self, source: str, inputs: Sequence[Any], backward: bool, known: Callable[[str], torch.Tensor | None]
    ) -> tuple[Pass, list[Any]]:
        """Takes one pass apart; returns it and its results, tensors without memory.

        ``known`` gives the tensor that an input is, if an earlier pass returned it. Raises :class:`NotTakenApart`.
        """
        code = ast.parse(source)
        function, names = main_function(code)
        if not all(isinstance(value, torch.Tensor) for value in inputs):
            raise NotTakenApart("sizes that depend on the input")
        with self._mode:
            given = [known(name) for name in names]
            fresh = [without_memory(value) if one is None else one for one, value in zip(given, inputs, strict=True)]
            for name, tensor, before in zip(names, fresh, given, strict=True):
                value = inputs[names.index(name)]
                if (tensor.shape, tensor.stride(), tensor.dtype) != (value.shape, value.stride(), value.dtype):
                    raise NotTakenApart(f"a saved value laid out otherwise than the backward pass takes it: {name}")
                if tensor.device.type != "cpu":
                    raise NotTakenApart(f"code for {tensor.device.type}")
                if before is None:
                    self._blocks.enter(tensor, None if backward else name)
            reading = Reading(self._blocks, backward, code, dict(zip(names, fresh, strict=True)))
            seen = {name: self._blocks.seen(tensor) for name, tensor in zip(names, fresh, strict=True)}
            values = reading.run(function.body)
        for op in reading.ops:
            overwritten = {old for other in reading.ops if other is not op for old, _, _ in other.restores}
            op.once |= not overwritten.isdisjoint(op.reads)
            copies = {old: copy for old, _, copy in op.restores}
            op.reads = [copies.get(value, value) for value in op.reads]
        one = Pass(backward, source, function, names, seen, reading.ops, reading.results)
        return one, values
