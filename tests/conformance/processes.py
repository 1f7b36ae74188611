"""Worker processes, one a core: each checks one item at a time, and one that dies takes only its item with it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from .check import State, Verdict

STUCK_SECONDS = 600
"""Without a word from any worker: an item that computes is ended by the worker's own limit long before."""


class _Worker:
    """A process, and the name of the item that it checks."""

    def __init__(self, samples: int) -> None:
        self.item: str | None = None
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", str(samples)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        )

    def give(self, item: str) -> None:
        """Has an item checked."""
        self.item = item
        try:
            self._pipe.write(item + "\n")
        except BrokenPipeError:
            pass  # the process has died, and `verdict` says how

    @property
    def _pipe(self) -> Any:
        return self.process.stdin

    def verdict(self) -> tuple[Verdict, bool]:
        """What the process found, and whether it still lives."""
        assert self.item is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            found = json.loads(line)
            return Verdict(**{**found, "state": State(found["state"])}), True
        return Verdict(self.item, State.FAILING, self._death()), False

    def _death(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        last = next((line for line in reversed(said) if "rror" in line or "panic" in line), "")
        if code == -signal.SIGPROF:
            return "computed for longer than an item may"
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"the process was {how}" + (f": {last[:200]}" if last else "")

    def end(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        self.errors.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


def checked(items: Iterable[str], samples: int, processes: int) -> Iterator[Verdict]:
    """The verdicts on items, as they come."""
    waiting = list(items)[::-1]
    workers = selectors.DefaultSelector()

    def start() -> None:
        worker = _Worker(samples)
        worker.give(waiting.pop())
        workers.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]

    try:
        for _ in range(min(processes, len(waiting))):
            start()
        while workers.get_map():
            ready = workers.select(STUCK_SECONDS)
            for worker in [key.data for key, _ in ready] or [key.data for key in workers.get_map().values()]:
                if not ready:
                    worker.process.kill()
                verdict, lives = worker.verdict()
                yield verdict
                if lives and waiting:
                    worker.give(waiting.pop())
                    continue
                workers.unregister(worker.process.stdout)
                worker.end()
                if waiting:
                    start()
    finally:
        for key in list(workers.get_map().values()):
            key.data.end()
        workers.close()
