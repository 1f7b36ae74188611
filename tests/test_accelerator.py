"""Budgets on accelerators, on a stand-in that is built from `accelerator/`: no machine of the tests has another one."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerator.build import NoCompiler, library
from accelerator.cases import CASES
from process import LIMITED, environment


class Device:
    """A process with the stand-in, which runs cases; another one takes its place when it dies."""

    def __init__(self, built: Path) -> None:
        self._built = built
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process's end)
        self._process: subprocess.Popen[str] | None = None

    def run(self, case: str) -> str:
        """Runs a case; returns the error that it ended with, if any."""
        try:
            process = self._process or self._started()
            assert process.stdin is not None
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            return self._answer(process)
        except BaseException:
            self.end()
            raise

    def _started(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [*LIMITED, sys.executable, "-m", "accelerator.serve", str(self._built)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(),
        )
        assert self._answer(self._process) == "ready"
        return self._process

    def _answer(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('"'):
                return str(json.loads(line))
        self._errors.seek(0)
        said = self._errors.read()[-6000:]
        self.end()
        return f"the process ended with {process.wait()}:\n{said}"

    def end(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    try:
        built = library()
    except NoCompiler as reason:
        pytest.skip(str(reason))
    device = Device(built)
    yield device
    device.end()


@pytest.mark.parametrize("case", CASES)
def test_on_the_stand_in(device: Device, case: str) -> None:
    error = device.run(case)
    assert not error, error
