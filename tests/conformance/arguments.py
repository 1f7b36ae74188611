"""The arguments of ``scripts/conformance``, read before torch is loaded."""

from __future__ import annotations

import argparse
import os
import re

HELP = """\
Runs torch's own databases of ops, modules and optimizers under Remat, and compares with plain eager bit for bit.

An item is one entry of a database with one dtype, in one variant: op:add:float32:in_place. Each runs
  - twice in plain eager, which must agree;
  - with everything evictable dropped before the op, around backward and before the results are read;
  - with everything evictable dropped before every op;
  - in the smallest budget that is not refused, where the true peak is compared with the budget.
"""
EXAMPLES = """\
examples:
  scripts/conformance                         everything: about 10 minutes on two cores
  scripts/conformance --part 1/60             every 60th item, chosen by the hash of its name
  scripts/conformance --only '^op:sort:'      what a pattern finds in the names of items
  scripts/conformance --only conv --list      their names, without running them
  scripts/conformance --json | jq -r 'select(.state == "failing") | .item'
  REMAT_DISPATCH=python scripts/conformance   the same through a dispatch mode

exit codes: 0 nothing fails, 1 something fails, 2 wrong arguments, 130 interrupted
"""


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    part = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= part[0] <= part[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: expected K/N with K from 1 to N, e.g. 1/60")
    return part


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number above 0")
    return int(text)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The arguments as meant."""
    parser = argparse.ArgumentParser(
        "scripts/conformance", description=HELP, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="REGEX", type=_pattern, help="items whose name has a match of it")
    parser.add_argument("--part", metavar="K/N", type=_part, default=(1, 1), help="the K-th of N parts")
    parser.add_argument("--samples", metavar="N", type=_count, default=1, help="samples of each item (default 1)")
    parser.add_argument("--processes", metavar="N", type=_count, default=os.cpu_count(), help="default: one a core")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each item instead of the table")
    parser.add_argument("--list", action="store_true", help="print the names of the items and run none")
    return parser.parse_args(given)
