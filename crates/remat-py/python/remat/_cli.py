"""The ``remat`` command: ``run`` is written in Python, all else is the code of the Rust binary."""

from __future__ import annotations

import sys


def main() -> int:
    """Entry point of the command."""
    if sys.argv[1:2] == ["run"]:
        from ._online.script import main as run

        return run(sys.argv[2:])
    from ._native import cli

    return cli(["remat", *sys.argv[1:]])
