"""The table of a run, the lists of names, and the progress on the way."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from .check import State, Verdict

COLUMNS = [State.IDENTICAL, State.FAILING, State.ANY_MODE, State.UNREPEATABLE, State.PLAIN_FAILS, State.SKIPPED]
HEADS = ["items", "samples", "identical", "failing", "any mode", "not repeatable", "plain fails", "skipped"]
NAMES_SHOWN = 10


def _row(kind: str, verdicts: list[Verdict]) -> str:
    states = Counter(verdict.state for verdict in verdicts)
    cells = [len(verdicts), sum(verdict.samples for verdict in verdicts), *(states[state] for state in COLUMNS)]
    return "| " + " | ".join([kind.ljust(24), *(f"{n:>{len(h)}}" for n, h in zip(cells, HEADS, strict=True))]) + " |"


def table(verdicts: list[Verdict]) -> Iterator[str]:
    """A row for each variant of each database."""
    kinds: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        database, _, _, variant = verdict.item.split(":")
        kinds[f"{database} {variant}"].append(verdict)
    yield "| " + " | ".join(["".ljust(24), *HEADS]) + " |"
    yield "| " + " | ".join(["---".ljust(24), *("-" * (len(head) - 1) + ":" for head in HEADS)]) + " |"
    for kind, found in kinds.items():
        yield _row(kind, found)
    yield _row("all", verdicts)


def _names(verdicts: list[Verdict], state: State) -> Iterator[str]:
    """The items in a state, by reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.state is state:
            reasons[verdict.reason].append(verdict.item)
    if reasons:
        yield ""
        yield f"{state.value[:1].upper()}{state.value[1:]}:"
    for reason, names in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        shown = names if state is State.FAILING else names[:NAMES_SHOWN]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        yield f"  {' '.join(shown)}{more}: {reason}"


def report(verdicts: list[Verdict]) -> str:
    """The table, the work that the pressure made, and the names of all that is not identical."""
    lines = [*table(verdicts), ""]
    evictions, replays = sum(v.evictions for v in verdicts), sum(v.recomputed for v in verdicts)
    without = sum(v.state is State.IDENTICAL and not v.recomputed for v in verdicts)
    lines.append(
        f"{evictions} evictions and {replays} ops recomputed; {without} identical items had nothing to recompute. "
        f"{sum(v.seconds for v in verdicts):.0f} s of processor time."
    )
    for state in COLUMNS[1:]:
        lines.extend(_names(verdicts, state))
    return "\n".join(lines)


def progress(verdicts: Iterable[Verdict], items: int) -> Iterator[Verdict]:
    """Passes verdicts on, and says on stderr how many there were: on a terminal in one line, else now and then."""
    failing = 0
    alive = sys.stderr.isatty()
    for number, verdict in enumerate(verdicts, 1):
        if verdict.state is State.FAILING:
            failing += 1
            print(f"{chr(13) if alive else ''}failing: {verdict.item}: {verdict.reason}", file=sys.stderr)
        if alive or number % 500 == 0 or number == items:
            end = "" if alive and number < items else "\n"
            print(f"{chr(13) if alive else ''}{number}/{items} items, {failing} failing", end=end, file=sys.stderr)
            sys.stderr.flush()
        yield verdict
