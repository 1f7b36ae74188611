"""Copies of a sample's tensors, made inside of the budget: they can be evicted, and keep strides and shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

Copies = Callable[[], Any]
"""Makes a fresh copy of a structure of tensors."""


def _whole(tensor: Tensor) -> bool:
    """Whether a tensor is all that its storage holds, in order."""
    plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return plain and tensor.untyped_storage().nbytes() == tensor.nbytes


def _bytes_of(tensor: Tensor) -> Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))


def _viewed(flat: Tensor, like: Tensor) -> Tensor:
    """A tensor with the form of another one, over other bytes."""
    found = flat.view(like.dtype).as_strided(like.shape, like.stride(), like.storage_offset())
    found = torch._conj(found) if like.is_conj() else found
    return torch._neg_view(found) if like.is_neg() else found


def copies(values: Any) -> Copies:
    """A maker of copies of all tensors in a structure; tensors over the same memory have copies over the same.

    To ask a copy for its storage would keep it from being evicted: what is to be known of the constants is found here.
    """
    form = {id(leaf): _Form(leaf) for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}

    def fresh() -> Any:
        flats: dict[int, Tensor] = {}
        made: dict[int, Tensor] = {}

        def copy(tensor: Tensor) -> Tensor:
            if id(tensor) not in made:
                made[id(tensor)] = form[id(tensor)].copied(flats).requires_grad_(tensor.requires_grad)
            return made[id(tensor)]

        with torch.no_grad():
            return tree_map_only(Tensor, copy, values)

    return fresh


class _Form:
    """A constant, and how it is copied."""

    def __init__(self, tensor: Tensor) -> None:
        self._constant = tensor.detach()
        self._strided = tensor.layout is torch.strided and type(tensor) in (Tensor, torch.nn.Parameter)
        if self._strided:
            self._whole = _whole(self._constant)
            self._key = self._constant.untyped_storage()._cdata
            self._flat = _bytes_of(self._constant)

    def copied(self, flats: dict[int, Tensor]) -> Tensor:
        """A copy over the memory of an earlier one, if the constant shares memory with that one's."""
        if not self._strided:
            return self._constant.clone()
        if self._key not in flats and self._whole:
            copy = self._constant.clone(memory_format=torch.contiguous_format)
            flats[self._key] = copy.reshape(-1).view(torch.uint8)
            return copy
        if self._key not in flats:
            flats[self._key] = self._flat.clone()
        return _viewed(flats[self._key], self._constant)
