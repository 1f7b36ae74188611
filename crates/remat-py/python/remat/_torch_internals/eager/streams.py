"""The order of streams, where memory changes hands that a program does not know of.

A program orders its streams by what it reads and writes. Evictions and replays add to that: the bytes of an evicted
tensor are taken by other tensors although a stream may read them yet, and a replay writes a tensor that a stream may
read that never waited for it. So around them all streams of a device on which ops ran wait for one another.
"""

from __future__ import annotations

import torch

from .devices import index_of


class Streams:
    """The streams on which the ops of a session ran, by device. While a device has but one, nothing is done."""

    def __init__(self) -> None:
        self._devices: list[int] = []
        self._seen: dict[int, dict[int, torch.Stream]] = {}

    def meet(self, device: torch.device) -> None:
        """Takes in a device of the accelerator."""
        self._devices.append(index_of(device))
        self._seen[self._devices[-1]] = {}

    def note(self) -> None:
        """Notes the streams of the op that is about to run. One that is new waits for the others first."""
        for device in self._devices:
            stream = torch.accelerator.current_stream(device)
            seen = self._seen[device]
            if stream.stream_id not in seen:
                for other in seen.values():
                    stream.wait_stream(other)
                seen[stream.stream_id] = stream

    def order(self) -> None:
        """Has each stream of a device wait for the work of all others up to now."""
        self.note()
        for seen in self._seen.values():
            if len(seen) > 1:
                events = {number: stream.record_event() for number, stream in seen.items()}
                for number, stream in seen.items():
                    for other, event in events.items():
                        if other != number:
                            stream.wait_event(event)
