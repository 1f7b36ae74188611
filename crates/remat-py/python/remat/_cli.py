"""The ``remat`` command: ``run`` and ``measure`` are written in Python, all else is the code of the Rust binary."""

from __future__ import annotations

import sys


def main() -> int:
    """Entry point of the command."""
    if sys.argv[1:2] == ["run"]:
        from ._online.script import main as run

        return run(sys.argv[2:])
    if sys.argv[1:2] == ["measure"]:
        from ._online.measured import main as measure

        return measure(sys.argv[2:])
    from ._native import cli

    return cli(["remat", *sys.argv[1:]])
