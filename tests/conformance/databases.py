"""Torch's databases: the items that they claim, and the programs of an item."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

from . import modules, optimizers, variants
from .item import Item
from .pressure import Program

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "complex64", "int64")}


@functools.cache
def entries() -> dict[str, dict[str, Any]]:
    """The entries of each database by their names."""
    return {
        "op": {op.full_name.replace(":", "_"): op for op in op_db},
        "module": {module.formatted_name: module for module in module_db},
        "optim": {optim.name: optim for optim in optim_db},
    }


def every_item() -> list[Item]:
    """The items of all databases, in the databases' order."""
    claims = {"op": variants.claimed, "module": modules.claimed, "optim": optimizers.claimed}
    return [
        Item(database, entry, name, variant)
        for database, known in entries().items()
        for entry, info in known.items()
        for name, dtype in DTYPES.items()
        for variant in claims[database](info, dtype)
    ]


def programs(item: Item) -> Iterator[Program]:
    """An item's programs, one for each sample of the database; the best samples first."""
    info, dtype = entries()[item.database][item.entry], DTYPES[item.dtype]
    torch.manual_seed(item.drawn)
    made = {"op": variants.programs, "module": modules.programs, "optim": optimizers.programs}
    yield from made[item.database](info, dtype, item.variant)
