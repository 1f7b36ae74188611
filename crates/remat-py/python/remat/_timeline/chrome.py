"""A recording in Chrome's trace event format, which Perfetto and ``chrome://tracing`` open."""

from __future__ import annotations

import json
import os
from typing import Any

from .recording import EVICTED, OP, REPLAY, TICKS, Recording

#: A file has so many bytes at most.
MOST_BYTES = 20_000_000

_THREADS = {1: "steps", 2: "ops", 3: "replays", 4: "evictions"}


def trace_events(recording: Recording) -> str:
    """The text of the file. Where it would be too long, the shortest ops and the smallest changes are left out."""
    told = recording.told
    head = [_event("M", "process_name", 0, 1, args={"name": f"remat: {' '.join(told['run']['argv'])}"})]
    head += [_event("M", "thread_name", 0, thread, args={"name": name}) for thread, name in _THREADS.items()]
    lines = told["steps"]
    for at, number in enumerate(lines["number"]):
        count, began, ended = lines["count"][at], lines["began"][at] / TICKS, lines["ended"][at] / TICKS
        name = f"step {number}" if count == 1 else f"steps {number} to {number + count - 1}"
        sums = {key: lines[key][at] for key in ("ops", "evictions", "replays", "planned", "kind")}
        peak = sum(column[at] for column in lines["peak"]) + lines["workspace"][at]
        head.append(_event("X", name, began, 1, dur=ended - began, args={**sums, "peak": peak}))
    texts = [text for event in head for text in (json.dumps(event),)]
    left = MOST_BYTES - 1000 - sum(len(text) + 2 for text in texts)
    share = left // max(len(recording.steps), 1)
    for step in recording.steps:
        texts += _fitting(_of_step(recording, step), share)
    other = {"argv": told["run"]["argv"], "budget": told["run"]["budget"], "remat": told["run"]["version"]}
    events = ",\n".join(texts)
    return f'{{"traceEvents":[\n{events}\n],"displayTimeUnit":"ms","otherData":{json.dumps(other)}}}\n'


def _event(kind: str, name: str, at: float, thread: int, **more: Any) -> dict[str, Any]:
    return {"ph": kind, "name": name, "ts": round(at, 1), "pid": 1, "tid": thread, **more}


def _of_step(recording: Recording, step: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
    """The events of a step, each with its weight among those of its kind: time, or bytes."""
    events: list[tuple[float, dict[str, Any]]] = []
    blocks, budget = step["blocks"], recording.told["run"]["budget"]
    before: list[int] = []
    highest = 0
    for moment, level in recording.walk(step):
        if moment.code in (OP, REPLAY):
            again = moment.code == REPLAY
            args = _args(recording, moment.of) | ({"workspace": moment.workspace} if moment.workspace else {})
            name = recording.place(moment.of)[0] or "unknown"
            category = "replay" if again else recording.place(moment.of)[1]
            event = _event("X", name, moment.at, 3 if again else 2, dur=round(moment.took, 1), cat=category, args=args)
            events.append((moment.took, event))
        elif moment.code == EVICTED:
            size = blocks["bytes"][moment.of]
            args = {"bytes": size, **_args(recording, blocks["place"][moment.of])}
            events.append((float("inf"), _event("i", "evicted", moment.at, 4, s="t", cat="eviction", args=args)))
        if level != before:
            total = sum(level)
            change = float("inf") if total > highest else abs(total - sum(before)) / 1e3
            highest = max(highest, total)
            args = dict(zip(recording.kinds, level, strict=True))
            events.append((change, _event("C", "bytes by kind", moment.at, 1, args=args)))
            before = list(level)
    if budget is not None:
        for at in (step["began"], step["ended"]):
            events.append((float("inf"), _event("C", "budget", at / TICKS, 1, args={"budget": budget})))
    return events


def _args(recording: Recording, place: int) -> dict[str, Any]:
    _, _, module, file, line, function = recording.place(place)
    where = {"line": f"{_beside(file)}:{line} in {function}"} if file else {}
    return ({"module": module} if module else {}) | where


def _beside(file: str) -> str:
    """A file's place as seen from the working folder; its own if that folder is gone."""
    try:
        return os.path.relpath(file)
    except OSError:
        return file


def _fitting(events: list[tuple[float, dict[str, Any]]], most: int) -> list[str]:
    """The texts of events that take so many bytes or fewer together: the heaviest, in their order."""
    texts = [json.dumps(event) for _, event in events]
    if sum(len(text) + 2 for text in texts) <= most:
        return texts
    kept, left = set(), most
    for at in sorted(range(len(events)), key=lambda at: -events[at][0]):
        left -= len(texts[at]) + 2
        if left < 0:
            break
        kept.add(at)
    return [text for at, text in enumerate(texts) if at in kept]
