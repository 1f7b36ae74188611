"""Runs Python programs and the `remat` command in processes of their own.

What they may take is processor time, not time: `limits` ends a test whose processes wait for ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import warm
from limits import PROCESSOR_SECONDS

PYTHON = [sys.executable]
REMAT = [sys.executable, "-m", "remat"]
# Lines that torch's own libraries print on some machines.
NOISE = ("USDT:", "ERROR:20", "WARNING:20", "[W", "INFO:20")
# What is loaded before a fork is not collected at the end, and triton's bindings say so.
KEPT = ("nanobind:", " - leaked", " - ... skipped", "See https://nanobind")
LIMITED = ["prlimit", f"--cpu={PROCESSOR_SECONDS}"]  # of util-linux; the command takes its place


@dataclass(frozen=True)
class Ended:
    """The output of a process; `code` is negative when a signal killed it."""

    code: int
    out: str
    err: str

    @property
    def error_lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip() and not line.startswith(NOISE)]


def environment() -> dict[str, str]:
    path = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    # Threads that wait leave the core to those that work.
    threads = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p), **threads}


def program(where: Path, source: str, name: str = "script.py") -> Path:
    """Writes a dedented program."""
    path = where / name
    path.write_text(textwrap.dedent(source))
    return path


def ran(command: Sequence[str | Path], given: str | None = None) -> Ended:
    """Runs a command to its end."""
    done = subprocess.run(
        [*LIMITED, *(str(part) for part in command)],
        input=given,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def ran_warm(command: Sequence[str | Path], given: str = "") -> Ended:
    """As `ran`, but for Python programs alone, which need not load torch: they are forked from one that has (`warm`).

    Before Python, variables may be set by `env`.
    """
    words = [str(part) for part in command]
    there = environment()
    if words[0] == "env":
        words.pop(0)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            there[name] = value
    assert words[0] == sys.executable and warm.runs(words[1:]), words
    with TemporaryFile("w+") as stdin, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        stdin.write(given)
        stdin.seek(0)
        streams = (stdin.fileno(), out.fileno(), err.fileno())
        code = warm.run(words[1:], there, streams, processor_seconds=PROCESSOR_SECONDS)
        out.seek(0)
        err.seek(0)
        said = err.read().splitlines(keepends=True)
        return Ended(code, out.read(), "".join(line for line in said if not line.startswith(KEPT)))


def signalled(command: Sequence[str | Path], number: signal.Signals, ready: str) -> Ended:
    """Runs a command, sends it a signal once it has printed `ready`, and waits for its end."""
    with subprocess.Popen(
        [*LIMITED, *(str(part) for part in command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        seen = process.stdout.readline()
        assert seen.strip() == ready, (seen, process.stderr.read() if process.stderr else "")
        process.send_signal(number)
        out, err = process.communicate()
        return Ended(process.returncode, seen + out, err)


def two_ranks_agree(script: Path, where: Path, *arguments: str) -> None:
    """Runs a program as two ranks that meet in `where`; each must end well and say that its bits are the same."""
    ranks = [
        subprocess.Popen(
            [*LIMITED, sys.executable, script, *arguments, str(rank), str(where / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for number, (rank, (out, err)) in enumerate(zip(ranks, said, strict=True)):
        assert rank.returncode == 0, err
        assert f"rank {number} same" in out
