"""Worker processes, one a core: each checks one item at a time, and one that dies takes only its item with it.

They are forked: the databases are imported once. Torch has run nothing in parallel until then.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait

from .check import State, Verdict
from .worker import Check, work

STUCK_SECONDS = 600
"""Without a word from any worker: an item that computes is ended by the worker's own limit long before."""
_fork = multiprocessing.get_context("fork")


class _Worker:
    """A process, and the name of the item that it checks."""

    def __init__(self, check: Check) -> None:
        self.item = ""
        self.connection, theirs = _fork.Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by `end`
        self._process = _fork.Process(target=work, args=(theirs, self._errors, check), daemon=True)
        self._process.start()
        theirs.close()  # else the end of the process would not be seen

    def give(self, item: str) -> None:
        """Has an item checked."""
        self.item = item
        self._errors.truncate(0)
        self.connection.send(item)

    def verdict(self) -> tuple[Verdict, bool]:
        """The verdict on the item, and whether the process still lives."""
        try:
            verdict: Verdict = self.connection.recv()
            return verdict, True
        except (EOFError, ConnectionResetError):
            return Verdict(self.item, State.FAILING, self._death()), False

    def _death(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        if code == -signal.SIGPROF:
            return "computed for longer than an item may"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip("\0").splitlines()
        last = next((line for line in said if "rror" in line or "panic" in line), "")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"the process {how}" + (f": {last[:200]}" if last else "")

    def kill(self) -> None:
        """Ends the process amid an item."""
        self._process.kill()

    def end(self) -> None:
        """Ends the process, and gives back what it held."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.connection.close()
        self._errors.close()


def checked(items: Iterable[str], check: Check, processes: int) -> Iterator[Verdict]:
    """The verdicts on items, as they come."""
    waiting = list(items)[::-1]
    workers: dict[object, _Worker] = {}

    def start() -> None:
        worker = _Worker(check)
        workers[worker.connection] = worker
        worker.give(waiting.pop())

    try:
        for _ in range(min(processes, len(waiting))):
            start()
        while workers:
            ready = [workers[connection] for connection in wait(list(workers), STUCK_SECONDS)]
            if not ready:
                ready = list(workers.values())
                for worker in ready:
                    worker.kill()
            for worker in ready:
                verdict, lives = worker.verdict()
                yield verdict
                if lives and waiting:
                    worker.give(waiting.pop())
                    continue
                del workers[worker.connection]
                worker.end()
                if waiting:
                    start()
    finally:
        for worker in workers.values():
            worker.end()
