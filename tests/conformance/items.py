"""The items of a run: every entry of torch's databases, with each dtype and variant that the database claims."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

from . import modules, optimizers, variants

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "complex64", "int64")}


@dataclass(frozen=True, order=True)
class Item:
    """One entry of a database with one dtype, in one variant."""

    database: str
    entry: str
    dtype: str
    variant: str

    @property
    def name(self) -> str:
        """As it is reported, and matched by ``--only``."""
        return f"{self.database}:{self.entry}:{self.dtype}:{self.variant}"

    @classmethod
    def named(cls, name: str) -> Item:
        """The item of a name."""
        return cls(*name.split(":"))

    def in_part(self, part: int, parts: int) -> bool:
        """Whether the item belongs to a part, by the hash of its name: an addition moves no other item."""
        return crc32(self.name.encode()) % parts == part - 1

    def programs(self) -> Iterator[Any]:
        """The item's programs, one for each sample of the database; the best samples first."""
        info, dtype = entries()[self.database][self.entry], DTYPES[self.dtype]
        torch.manual_seed(crc32(self.name.encode()))
        if self.database == "op":
            return variants.programs(info, dtype, self.variant)
        if self.database == "module":
            return modules.programs(info, dtype, self.variant)
        return optimizers.programs(info, dtype, self.variant)


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
