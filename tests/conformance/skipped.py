"""Items that are not run, each with its reason: the lines of ``skipped.txt``."""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path(__file__).with_name("skipped.txt")
LARGEST_SHARE = 0.01


class Skipped:
    """Patterns of names, with reasons."""

    def __init__(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        pairs = [line.partition(" ") for line in lines if line and not line.startswith("#")]
        for pattern, _, reason in pairs:
            if not reason.strip():
                raise ValueError(f"{FILE.name}: {pattern!r} has no reason: write one after a space")
        self._reasons = [(re.compile(pattern), reason.strip()) for pattern, _, reason in pairs]

    @classmethod
    def read(cls) -> Skipped:
        """Those of the file."""
        return cls(FILE.read_text())

    def reason(self, name: str) -> str | None:
        """The reason not to run an item, if there is one."""
        return next((reason for pattern, reason in self._reasons if pattern.fullmatch(name)), None)

    def share(self, names: list[str]) -> float:
        """The share of items that are not run."""
        return sum(self.reason(name) is not None for name in names) / max(len(names), 1)
