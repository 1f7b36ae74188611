"""Families of calls: calls that differ in sizes and other numbers alone.

Programs whose batches differ in length call the same ops with ever new shapes. Once torch's own rule has agreed with
the short one of `shapes.py` about a call, the results of its family go by that. Where an op needs next to no workspace,
whatever the sizes, but for copies of what does not lie in one piece, its family's calls are no longer measured either.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .copies import is_read_by_blas, strided_bytes
from .indexing import FEW, picks_by_mask
from .precision import products_are_exact
from .shapes import numels_by_rule, rule_of
from .tensors import possible, tensors_of
from .workspace import Workspace

#: Calls of new shapes that are measured before a family's others are not.
MEASURED = 8


@dataclass
class Family:
    """A family, and what is known of its calls."""

    #: The dtype of each result, ``None`` for one without bytes of its own.
    dtypes: tuple[torch.dtype | None, ...]
    #: The name of their device, and the device.
    place: tuple[str, torch.device]
    #: Enough workspace for each call; ``None`` where that depends on sizes.
    enough: int | None = None
    #: Whether each call copies what does not lie in one piece beside that, and beside what is told of its calls.
    copies_strided: bool = False
    #: Calls that are measured before that is made use of.
    to_measure: int = 0
    #: The most that any of them took.
    taken: int = 0

    def sizes(self, overload: Any, args: tuple[Any, ...]) -> list[int | None] | None:
        """Bytes of a call's results; ``None`` where torch's own rule has to tell, or to refuse the call."""
        numels = numels_by_rule(overload, args)
        if numels is None or len(numels) != len(self.dtypes):
            return None
        sizes: list[int | None] = []
        for numel, dtype in zip(numels, self.dtypes, strict=True):
            if (numel is None) != (dtype is None):
                return None
            sizes.append(None if numel is None or dtype is None else numel * dtype.itemsize)
        return possible(sizes)

    def settle(self, workspace: Workspace) -> None:
        """Takes the estimate of one call's workspace for all, if it is the same for all."""
        if workspace.of_family is not None and self.enough is None:
            self.enough, self.copies_strided = workspace.of_family, workspace.copies_strided
            self.to_measure = 0 if workspace.exact else MEASURED

    def measured(self, copied: int, workspace: int) -> None:
        """Takes in what a call took that may have copied so many bytes. If that is more than was enough by the
        estimate, all calls are measured."""
        if self.enough is not None and self.to_measure > 0:
            self.taken = max(self.taken, workspace - copied)
            self.to_measure = MEASURED if self.taken > self.enough else self.to_measure - 1

    def copied(self, tensors: Sequence[torch.Tensor]) -> int:
        """Bytes that a call with these tensors may copy."""
        return strided_bytes(tensors) if self.copies_strided else 0

    def settled(self) -> int | None:
        """The workspace of the next call beside what it copies, if it need not be measured.

        Where little is enough, that is what the calls took that were measured. Others may take as much more as is
        enough, twice `FEW` at most, which is less than what is kept back of each budget.
        """
        if self.enough is None or self.to_measure > 0:
            return None
        return self.taken if self.enough <= 2 * FEW else self.enough


class Families:
    """The families of calls whose results the short rules tell."""

    def __init__(self) -> None:
        # `None` for a family of whose results torch's own rule says something else.
        self._known: dict[Hashable, Family | None] = {}

    def find(self, overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Family | None:
        """The family of a call, if the short rule holds for it."""
        return None if rule_of(overload) is None else self._known.get(_outlines(overload, args, kwargs))

    def learn(
        self,
        overload: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        sizes: Sequence[int | None],
        dtypes: Sequence[torch.dtype | None],
        place: tuple[str, torch.device],
    ) -> None:
        """Compares the short rule with what torch's own said of a call: its family goes by the rule from now on, or
        never.

        `dtypes` are of the results, ``None`` for those without bytes of their own.
        """
        if rule_of(overload) is None or picks_by_mask(overload, args):
            return
        tensors = tensors_of(args) + tensors_of(kwargs)
        if any(t.layout != torch.strided or t.is_nested for t in tensors):
            return
        key = _outlines(overload, args, kwargs)
        if key in self._known and self._known[key] is None:
            return
        family = Family(tuple(dtypes), place)
        agreed = family.sizes(overload, args) == list(sizes)
        self._known[key] = family if agreed else None


def _outlines(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """All of a call but sizes and other numbers: what decides dtypes, which results there are, and what is copied."""
    named = tuple((name, _outline(value)) for name, value in kwargs.items()) if kwargs else ()
    settings = torch.get_default_dtype(), products_are_exact()
    return overload, settings, tuple(map(_outline, args)), named


def _outline(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_nested:
            return value.layout, value.is_nested
        lies = 2 if value.is_contiguous() else int(is_read_by_blas(value))
        # Among tensors with dimensions, those without decide a dtype as numbers do.
        return value.dtype, value.dim() == 0, lies, value.device
    if isinstance(value, (list, tuple)):
        return tuple(value) if value and isinstance(value[0], bool) else frozenset(map(_outline, value))
    return value if isinstance(value, _DECIDING) else type(value)


#: Values that decide a dtype, or which results there are.
_DECIDING = (bool, str, torch.dtype, torch.layout, torch.memory_format, torch.device)
