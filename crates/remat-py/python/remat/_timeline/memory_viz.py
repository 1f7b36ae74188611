"""A recording as a snapshot of memory that torch's own ``torch/cuda/_memory_viz.py`` reads.

An eviction is a free, and a replay's result is an allocation again, with the frame of the line that first made it.
Between two steps that are kept, what changed meanwhile is freed and allocated at once.
"""

from __future__ import annotations

import pickle
from typing import Any

from .recording import BORN, EVICTED, OP, REPLAY, RETURNED, TICKS, Recording

#: Entries of a trace are this many bytes at most in a file, about.
_MOST_ENTRIES = 250_000

#: Addresses of blocks are whole multiples of this.
_APART = 512


def snapshot(recording: Recording) -> bytes:
    """The file: a pickled dictionary of segments and of one device's trace."""
    return pickle.dumps(_Snapshot(recording).of_steps(_fitting(recording.steps)), protocol=4)


def _fitting(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many steps as a file has room for, those of the highest peaks first."""
    left = _MOST_ENTRIES
    kept: list[dict[str, Any]] = []
    for step in sorted(steps, key=lambda step: "the highest peak" not in step["roles"]):
        left -= 2 * (len(step["at"]) + len(step["blocks"]["bytes"]))
        if left >= 0 or not kept:
            kept.append(step)
    return sorted(kept, key=lambda step: int(step["number"]))


class _Snapshot:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._trace: list[dict[str, Any]] = []
        #: Blocks that are there, by their numbers in the run: address, bytes, frames.
        self._there: dict[int, tuple[int, int, list[dict[str, Any]]]] = {}
        self._next = 1 << 20
        self._frames: dict[int, list[dict[str, Any]]] = {}

    def of_steps(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        for step in steps:
            self._take_over(step)
            blocks = step["blocks"]
            for moment, _ in self._recording.walk(step):
                if moment.code in (BORN, RETURNED):
                    self._allocate(moment.at, blocks, moment.of)
                elif moment.code not in (OP, REPLAY) and moment.code <= EVICTED:
                    self._free(moment.at, blocks["serial"][moment.of])
        return {
            "segments": [self._segment(*block) for block in self._there.values()],
            "device_traces": [self._trace],
            "allocator_settings": {},
        }

    def _take_over(self, step: dict[str, Any]) -> None:
        """Frees what is gone as a step begins, and allocates what is there and was not."""
        blocks, at = step["blocks"], step["began"] / TICKS
        there = {serial for serial, is_there in zip(blocks["serial"], blocks["there"], strict=True) if is_there}
        for serial in [serial for serial in self._there if serial not in there]:
            self._free(at, serial)
        for block, serial in enumerate(blocks["serial"]):
            if serial in there and serial not in self._there:
                self._allocate(at, blocks, block)

    def _allocate(self, at: float, blocks: dict[str, Any], block: int) -> None:
        size, serial = blocks["bytes"][block], blocks["serial"][block]
        if not size or serial in self._there:
            return
        address, frames = self._next, self._frames_of(blocks["place"][block], blocks["kind"][block])
        self._next += -(-size // _APART) * _APART
        self._there[serial] = (address, size, frames)
        self._trace.append(self._entry("alloc", at, address, size, frames))

    def _free(self, at: float, serial: int) -> None:
        found = self._there.pop(serial, None)
        if found is not None:
            self._trace.append(self._entry("free_requested", at, *found))
            self._trace.append(self._entry("free_completed", at, *found))

    def _entry(self, action: str, at: float, address: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
        time = self._recording.told["unix"] + int(at)
        return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames}

    def _frames_of(self, place: int, kind: int) -> list[dict[str, Any]]:
        """The op, its module, and the line of the program, as torch lists a stack: the innermost first."""
        key = place * 64 + kind
        if key not in self._frames:
            name, _, module, file, line, function = self._recording.place(place)
            what = self._recording.kinds[kind]
            frames = [{"name": name or "made out of sight", "filename": f"[{what}] {module}".strip(), "line": 0}]
            if file:
                frames.append({"name": function, "filename": file, "line": line})
            self._frames[key] = frames
        return self._frames[key]

    def _segment(self, address: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
        block = {
            "address": address,
            "size": size,
            "requested_size": size,
            "state": "active_allocated",
            "frames": frames,
        }
        return {
            "device": 0,
            "address": address,
            "total_size": size,
            "allocated_size": size,
            "active_size": size,
            "requested_size": size,
            "stream": 0,
            "segment_type": "large" if size > 1 << 20 else "small",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": frames,
            "blocks": [block],
        }
