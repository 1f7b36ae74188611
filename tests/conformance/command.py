"""The run that the arguments ask for."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict

from .check import State, Verdict, check
from .databases import every_item
from .item import Item
from .processes import checked
from .report import progress, report
from .skipped import LARGEST_SHARE, Skipped


def chosen(only: re.Pattern[str] | None, part: tuple[int, int]) -> list[Item]:
    """The items of a part that a pattern finds."""
    return [item for item in every_item() if item.in_part(*part) and (only is None or only.search(item.name))]


def _told(verdict: Verdict) -> str:
    return json.dumps({**asdict(verdict), "state": verdict.state.value, "seconds": round(verdict.seconds, 3)})


def run(asked: argparse.Namespace) -> int:
    """Runs what is asked for, and returns the exit code."""
    skipped = Skipped.read()
    names = [item.name for item in chosen(asked.only, asked.part)]
    if asked.list:
        print("\n".join(names))
        return 0
    if not names:
        print("conformance: no item has such a name: see --list", file=sys.stderr)
        return 2
    if (share := skipped.share([item.name for item in every_item()])) > LARGEST_SHARE:
        print(f"conformance: {share:.1%} of all items are skipped, {LARGEST_SHARE:.0%} may be", file=sys.stderr)
        return 2
    to_run = [name for name in names if skipped.reason(name) is None]
    verdicts = [Verdict(name, State.SKIPPED, reason) for name in names if (reason := skipped.reason(name))]
    interrupted = False

    def check_named(name: str) -> Verdict:
        return check(Item.named(name), asked.samples)

    try:
        for verdict in progress(checked(to_run, check_named, asked.processes), len(to_run)):
            verdicts.append(verdict)
            if asked.json:
                print(_told(verdict), flush=True)
    except KeyboardInterrupt:
        interrupted = True
        print("\nconformance: interrupted", file=sys.stderr)
    if not asked.json:
        print(report(verdicts))
    return 130 if interrupted else int(any(verdict.state is State.FAILING for verdict in verdicts))
