"""Sizes of results by short rules.

Torch's own rules for shapes are written in Python, and check what the call itself checks again. The short ones are
those of the extension, so that calls that do without Python go by them too.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..._native import SizeRule
from .indexing import picks_by_mask
from .ops import RESTRUCTURE


@functools.cache
def rule_of(overload: Any) -> SizeRule | None:
    """The rule of an op, if it has one."""
    schema = overload._schema
    aliased = [result.alias_info is not None for result in schema.returns]
    namespace, base = schema.name.split("::")
    if namespace != "aten" or base in RESTRUCTURE or any(argument.is_out for argument in schema.arguments):
        return None
    if all(aliased):
        return SizeRule.shared(len(aliased))
    if any(aliased):
        return None
    found = SizeRule.named(base, overload._overloadname)
    if found is None and torch.Tag.pointwise in overload.tags:
        single = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
        found = SizeRule.elementwise() if single else None
    return found


def numels_by_rule(overload: Any, args: tuple[Any, ...]) -> list[int | None] | None:
    """Numbers in each of a call's results by the op's rule, ``None`` for one that shares a storage or is not there;
    ``None`` if the rule was not written for such a call."""
    rule = rule_of(overload)
    return None if rule is None or picks_by_mask(overload, args) else rule.numels(args)
