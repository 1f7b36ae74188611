"""Workspace of the usual convolutions on the CPU: float32, dense, of one or two dimensions, not transposed.

oneDNN copies what it reads and writes into blocks of 16 channels. `benchmarks/estimates.py` holds these bytes against
those taken by random convolutions: mostly they are equal.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

# Beside the copies: what goes back through small convolutions takes more than is known here.
_FORWARD, _BACKWARD = 1 << 16, 1 << 17
# Weights of images, of up to 3 channels, have no blocks of channels; their gradients are summed in such copies.
_IMAGE, _SUMS = 3, 6.2
# Gradients of weights that are computed from columns instead take so many copies of them for each thread, and beside.
_IN_COLUMNS, _BESIDE_COLUMNS = 4, 2


@dataclass(frozen=True)
class Usual:
    """Such a convolution, by the shapes of its tensors."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    #: Numbers of one channel of a result.
    outside: int
    threads: int
    #: Whether the numbers of the input lie place by place, as those of tokens do, and not channel by channel.
    by_places: bool = False
    #: Whether the gradient of the result lies otherwise than channel by channel.
    strided_gradient: bool = False

    def forward(self) -> int | None:
        """Bytes that it takes beside its result; ``None`` where torch runs a kernel that is not known here."""
        if (known := self._without_blocks()) is not None:
            return known or None
        if self.by_places:
            return _with_margin(2 * self._weights + 2 * _FORWARD)
        if self._is_beyond:
            return None
        result = self._result
        # The blocks of the input are given back before the result is copied out of its own.
        highest = max(self._inputs + self._outputs + self._weights + self._beside, self._outputs + result)
        return _with_margin(highest - result + _FORWARD)

    def backward(self, of_input: bool) -> int | None:
        """Bytes that its backward pass takes beside its results, with the gradient of the input or without."""
        if (known := self._without_blocks()) is not None:
            return known or None
        copies, weight = self._inputs + self._outputs + self._beside, 4 * prod(self.weight)
        if self.by_places:
            if self._is_by_channels:
                return None
            times = 7 if self._is_of_images else 2
            return _with_margin(copies + times * self._weights + self._gradients + self._result + _BACKWARD)
        # A copy of the gradient that lies channel by channel, to the end.
        dense = self._result if self.strided_gradient else 0
        copies += 2 * dense
        first = result = 0
        if of_input:
            result = 4 * prod(self.x)
            turned = 3 * self._inputs if self._steps else self._inputs + result
            first = max(copies + self._weights, dense + turned)
            if self._is_of_images:
                # Unlike the images themselves, their gradient may have blocks of channels.
                in_blocks = 4 * self.x[0] * _blocked(self.x[1]) * prod(self.x[2:])
                first = max(first, dense + self._outputs + in_blocks + self._weights)
        second = result + max(copies + self._gradients, dense + self._weights + weight)
        biases = 8 * _blocked(self.weight[0])
        return _with_margin(max(first, second) - result - weight + biases + _BACKWARD)

    def _without_blocks(self) -> int | None:
        """Bytes where oneDNN does not run: 0 if they are not known. ``None`` where it does."""
        kernel = _kernel(self.x, self.weight, self.stride, self.padding, self.dilation, self.groups, self.threads)
        if kernel == "Mkldnn":
            return None
        # A product of matrices in place.
        is_product = kernel == "Slow2d" and self.groups == 1 and not (self._steps or any(self.padding))
        copied = self._result if self.strided_gradient or self.x[1] == 1 else 0
        copied += 2 * self._weights + 4 * prod(self.x) if self.by_places else 0
        return _FORWARD + copied if is_product and self._extent == 1 else 0

    @property
    def _extent(self) -> int:
        return prod(self.weight[2:])

    @property
    def _steps(self) -> bool:
        return any(step > 1 for step in self.stride)

    @property
    def _is_of_images(self) -> bool:
        return self.x[1] <= _IMAGE and self.groups == 1 and self._extent > 1

    @property
    def _is_by_channels(self) -> bool:
        return self.groups == self.x[1] == self.weight[0]

    @property
    def _is_beyond(self) -> bool:
        """Whether the kernel reads places that lie wholly in the padding."""
        return any(pad and extent == 1 for pad, extent in zip(self.padding, self.weight[2:], strict=True))

    @property
    def _is_small(self) -> bool:
        return is_small(self.x[2:], self.weight[2:], self.dilation)

    @property
    def _result(self) -> int:
        return 4 * self.x[0] * self.weight[0] * self.outside

    @property
    def _inputs(self) -> int:
        channels = self.x[1] if self._is_of_images else _blocked(self.x[1])
        return 4 * self.x[0] * channels * prod(self.x[2:])

    @property
    def _outputs(self) -> int:
        return 4 * self.x[0] * _blocked(self.weight[0]) * self.outside

    @property
    def _weights(self) -> int:
        if self._is_by_channels:
            return 4 * self._extent * _blocked(self.groups)
        if self._is_of_images:
            return 4 * self._extent * self.x[1] * _blocked(self.weight[0])
        return 4 * self._extent * self.groups * _blocked(self.weight[1]) * _blocked(self.weight[0] // self.groups)

    @property
    def _beside(self) -> int:
        """Columns of groups, or an input without what steps leave out, for each thread."""
        columns = unit = 0
        if self.groups > 1 and not self._is_by_channels:
            columns = min(self.threads, self.x[0]) * 4 * self._extent * self.weight[1] * self.outside
        if self._extent == 1 and self._steps:
            unit = self.threads * 4 * _blocked(self.x[1]) * self.outside
        return max(columns, unit)

    @property
    def _gradients(self) -> int:
        """Bytes in which gradients of weights are summed: a copy for each thread, and samples turned around."""
        sums = (_SUMS if self._is_of_images else 1) + self.threads - 1
        sample = 4 * (_blocked(self.x[1]) * prod(self.x[2:]) + _blocked(self.weight[0]) * self.outside)
        at_once = min(self.threads, self.x[0])
        turned = 0
        if self._is_of_images:
            turned = 2 * at_once * sample + _BACKWARD
        elif self._steps and self.x[0] <= 4:
            turned = at_once * sample
        if self._extent == 1 and self._steps:
            turned += self._inputs
        summed = int(sums * self._weights) + turned
        in_columns = (_IN_COLUMNS * self.threads + _BESIDE_COLUMNS) * 4 * prod(self.weight)
        return max(summed, in_columns) if self.groups > 1 or self._is_beyond or self._is_small else summed


def is_small(sides: Sequence[int], extents: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether oneDNN leaves the gradient of the weight to columns, as the input is smaller than the kernel reaches."""
    reaches = [spread * (extent - 1) + 1 for extent, spread in zip(extents, dilation, strict=True)]
    both = zip(sides, reaches, strict=True)
    return any(side < reach and (reach > 3 or not _in_blocks_of_16()) for side, reach in both)


@functools.cache
def _in_blocks_of_16() -> bool:
    """Whether oneDNN has the kernels of AVX-512. Others leave small inputs to columns."""
    limited = any(name in os.environ for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"))
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and not limited


def _with_margin(taken: int) -> int:
    """An eighth more where kernels are less well known."""
    return taken if _in_blocks_of_16() else taken + taken // 8 + (1 << 17)


def _blocked(channels: int) -> int:
    return -(-channels // 16) * 16


@functools.lru_cache(maxsize=4096)
def _kernel(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    threads: int,
) -> str | None:
    """Torch's name of the kernel that it runs for contiguous tensors of such shapes, with so many threads."""
    if len(x) == 3:
        # Torch would copy the whole image before it takes it for one of a single row.
        x, weight = ((*shape[:2], 1, shape[2]) for shape in (x, weight))
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    # It looks at shapes alone: these tensors are of one number.
    stand_ins = (torch.empty(()).expand(shape) for shape in (x, weight))
    choose = torch._C._select_conv_backend
    return str(choose(*stand_ins, None, stride, padding, dilation, False, [0] * len(stride), groups).name)
