"""Cuts kept beside torch's compile cache: a graph found there is not cut again, but still reported."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from ..._torch_internals import compiler
from ..capture.cut import Cut
from .report import Report

_FACTS = [field.name for field in fields(Cut)]


def reported(compile_graph: Callable[[], Any], report: Report, number: int) -> Any:
    """Compiles the graph. If torch had it in its cache, the report gets the cut that was kept with it."""
    with compiler.watched_cache() as use:
        compiled = compile_graph()
    if use.key is None:
        return compiled
    path = compiler.cache_folder() / "remat" / f"{use.key}.json"
    if use.found:
        cut, known = _read(path)
        report.found(number, cut, known=known)
    else:
        _write(path, report.cut(number))
    return compiled


def _write(path: Path, cut: Cut | None) -> None:
    """Keeps a cut, ``None`` for a graph without a backward pass. A cache that cannot be written stays without it."""
    facts = None if cut is None else {name: getattr(cut, name) for name in _FACTS}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
            json.dump(facts, file)
        os.replace(file.name, path)
    except OSError:
        return


def _read(path: Path) -> tuple[Cut | None, bool]:
    """The cut, and whether anything is known of it."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return (None if facts is None else Cut(**facts)), True
    except (OSError, ValueError, TypeError):
        return None, False
