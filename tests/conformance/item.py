"""An item: one entry of a database with one dtype, in one variant."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32


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

    @property
    def drawn(self) -> int:
        """A number by which its part is chosen and its samples are made."""
        return crc32(self.name.encode())

    def in_part(self, part: int, parts: int) -> bool:
        """Whether the item belongs to a part, by the hash of its name: an addition moves no other item."""
        return self.drawn % parts == part - 1
