"""Workspace of a convolution on the CPU before it first runs: an upper estimate."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from .blocked_convolutions import Usual, is_small
from .copies import strided_bytes
from .precision import convolutions_are_exact
from .shapes import numels_by_rule


class _Sizes(NamedTuple):
    """Sizes of a convolution: channels, samples, and places of an image, of its result and of the kernel."""

    samples: int
    read: int
    written: int
    inside: int
    outside: int
    kernel: int


def convolution(args: tuple[Any, ...], backward: bool) -> int | None:
    """Bytes that a convolution takes on the CPU; ``None`` for other types and devices."""
    x, weight = (args[1], args[2]) if backward else (args[0], args[1])
    if x.device.type != "cpu" or x.dim() not in (3, 4, 5):
        return None
    transposed, groups = (args[7], args[9]) if backward else (args[6], args[8])
    written = weight.shape[1] * groups if transposed else weight.shape[0]
    if backward:
        outside = prod(args[0].shape[2:])
    else:
        (made,) = numels_by_rule(torch.ops.aten.convolution.default, args) or (None,)
        if made is None:
            return None
        outside = made // max(1, x.shape[0] * written)
    sizes = _Sizes(x.shape[0], x.shape[1], written, prod(x.shape[2:]), outside, prod(weight.shape[2:]))
    if x.dtype == torch.float64:
        return _in_columns(args, backward, sizes)
    return _in_blocks(args, backward, sizes) if x.dtype in (torch.float32, torch.bfloat16) else None


def _in_columns(args: tuple[Any, ...], backward: bool, sizes: _Sizes) -> int:
    """Bytes that torch's own kernels take, which lay out all that the kernel reads at each place in a column.

    Those of all samples lie there at once but where a kernel goes back through a transposed convolution or has gaps.
    Groups run one by one, on copies of their parts. What does not lie in one piece is copied. An eighth is for safety.
    """
    x = args[1] if backward else args[0]
    stride, padding, dilation, transposed, _, groups = args[4:10] if backward else args[3:9]
    samples, read, written, inside, outside, kernel = sizes
    spread, volumes = any(d > 1 for d in dilation), x.dim() == 5
    item = x.element_size()
    inputs, outputs = item * samples * read * inside, item * samples * written * outside
    weights = item * kernel * read * written // groups
    columns = item * kernel * (written * inside if transposed else read * outside)
    if transposed or spread or not volumes:
        columns //= groups
    one_by_one = (backward or volumes) if transposed else spread
    moves = transposed or spread or volumes or any(padding) or any(step > 1 for step in stride)
    whole = columns * (1 if one_by_one else samples) if moves or kernel > 1 else 0
    if transposed and volumes and not backward:
        whole += inputs
    if not x.is_contiguous():
        whole += inputs + weights
    if backward and not args[0].is_contiguous():
        whole += outputs
    if groups > 1:
        whole += (inputs + weights) // groups
        whole += inputs + weights + outputs // groups if backward else outputs
    return whole + whole // 8 + (1 << 13)


def _in_blocks(args: tuple[Any, ...], backward: bool, sizes: _Sizes) -> int:
    """Bytes that oneDNN takes, or torch's own kernels where they run instead.

    oneDNN copies inputs, outputs and weights into blocks of 16 channels. One sample, bfloat16, groups and what goes
    back through transposed ones may be laid out in columns, a sample for each thread. Gradients of weights are summed
    over threads, in a copy for each. An eighth is for safety. `benchmarks/estimates.py` draws random shapes.
    """
    x, weight = (args[1], args[2]) if backward else (args[0], args[1])
    stride, padding, dilation, transposed, _, groups = args[4:10] if backward else args[3:9]
    samples, read, written, inside, outside, kernel = sizes
    extents, low = weight.shape[2:], x.dtype != torch.float32
    strided = not x.is_contiguous() or (backward and not args[0].is_contiguous())
    threads = torch.get_num_threads()
    by_places = x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    known = None
    dense = by_places or (x.is_contiguous() and weight.is_contiguous())
    if dense and not (low or transposed or x.dim() == 5) and convolutions_are_exact():
        steps, pads, spreads = (tuple(_each(numbers, x.dim() - 2)) for numbers in (stride, padding, dilation))
        usual = Usual(
            tuple(x.shape), tuple(weight.shape), steps, pads, spreads, groups, outside, threads, by_places, strided
        )
        known = usual.backward(args[10][0]) if backward else usual.forward()

    inputs = 4 * samples * _blocked(read) * inside
    outputs = 4 * samples * _blocked(written) * outside
    in_groups = 4 * kernel * groups * _blocked(read // groups) * _blocked(written // groups)
    by_channels = read == written == groups > 1 and not (backward and strided and (low or transposed))
    weights = 4 * kernel * _blocked(groups) if by_channels else in_groups
    columns = 4 * kernel * (written * inside if transposed else read * outside)
    if backward:
        copies = 2 + low + strided + (threads - 1) + 2 * (1 < groups < read)
        copies += 4 * any(d > 1 for d in dilation) + 2 * (x.dim() == 5) + 2 * transposed
        copies += 4 * threads * is_small(x.shape[2:], extents, _each(dilation, x.dim() - 2))
        whole = inputs + outputs + copies * weights
        if by_channels and not x.is_contiguous():
            whole += in_groups  # some kernels go by groups here, and then copy the weights once
        if strided or transposed or (args[10][0] and any(step > 1 for step in stride)):
            # Once more, in another layout.
            whole += max(inputs, outputs, strided_bytes((args[0], x)) if not by_places else 0)
        elif x.dim() == 3:
            whole += min(inputs, outputs) // 2
    else:
        whole = inputs + outputs + (1 + strided) * weights
        if not (x.is_contiguous() or by_places or _is_by_places_of_volumes(x)):
            # A copy that lies channel by channel, while the result is not there yet.
            whole += max(0, x.nbytes - x.element_size() * samples * written * outside)
        if transposed:
            whole += max(inputs, outputs) + weights
    at_once = min(threads, samples)
    if samples == 1 or low or (backward and transposed):
        whole += columns * (samples if low and not _is_bfloat16_packed() else at_once)
    elif 1 < groups < read:
        whole += columns // groups * at_once
    if kernel == 1 and any(padding):
        whole += samples * columns
    whole += whole // 8 + (1 << 17)
    return whole if known is None else min(whole, known)


def _is_by_places_of_volumes(x: torch.Tensor) -> bool:
    return x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d)


@functools.cache
def _is_bfloat16_packed() -> bool:
    """Whether oneDNN runs convolutions in bfloat16 on this processor. Otherwise they take columns of all samples."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _blocked(channels: int) -> int:
    return -(-channels // 16) * 16


def _each(numbers: Sequence[int], dims: int) -> list[int]:
    """A number for each dimension; one that is given alone is that of all."""
    return [numbers[i % len(numbers)] for i in range(dims)]
