"""Programs that are forked from a process which has loaded torch are processes of their own, as if started anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm
from process import PYTHON, Ended, environment, program, ran, ran_warm

TELLS = """
import json, os, sys
main = sys.modules["__main__"]
own = [__name__, main.__dict__ is globals(), globals().get("__file__"), sys.argv, sys.path[:2], sys.orig_argv[1:]]
print(json.dumps([*own, os.getcwd(), os.environ.get("REMAT_LOG"), sys.stdin.read(), "warm" in sys.modules]))
print("said", file=sys.stderr)
sys.exit(int(sys.argv[-1]))
"""


@pytest.mark.parametrize("kind", ["script", "module", "text"])
def test_a_program_finds_all_as_if_it_was_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REMAT_LOG", "report")
    script = program(tmp_path, TELLS, "tells.py")
    words = {"script": [str(script)], "module": ["-m", "tells"], "text": ["-c", TELLS]}[kind]
    anew, forked = (run([*PYTHON, *words, "a b", "3"], "given") for run in (ran, ran_warm))
    assert forked == anew
    assert forked.code == 3 and "given" in forked.out


def test_what_one_program_does_no_other_sees() -> None:
    source = "import os, torch; print(hasattr(torch, 'mark'), os.environ.get('A')); torch.mark = os.environ['A'] = ''"
    once, again = (ran_warm([*PYTHON, "-c", source]) for _ in range(2))
    assert once == again == Ended(0, "False None\n", "")


def test_errors_signals_and_limits_end_a_program() -> None:
    assert ran_warm([*PYTHON, "-c", "raise KeyError('no data')"]).err.endswith("KeyError: 'no data'\n")
    assert ran_warm([*PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"]).code == -signal.SIGKILL
    limit = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU))"
    assert ran_warm([*PYTHON, "-c", limit]).out == ran([*PYTHON, "-c", limit]).out


class Gone(Exception):
    """Ends the wait for a program."""


def test_a_program_that_nobody_waits_for_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "process"
    source = f"""if True:
        import os, signal, time
        open({str(told)!r}, "w").write(str(os.getpid()))
        os.kill({os.getpid()}, signal.SIGUSR1)
        time.sleep(3600)
    """

    def leave(*_: object) -> None:
        raise Gone

    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with pytest.raises(Gone):
            ran_warm([*PYTHON, "-c", source])
    finally:
        signal.signal(signal.SIGUSR1, before)
    process = Path("/proc") / told.read_text()
    while process.exists():
        time.sleep(0.01)


def test_a_shell_finds_programs_that_are_forked(tmp_path: Path) -> None:
    """Where libraries would load otherwise, Python is started anew."""
    there = warm.for_a_shell(tmp_path, {**environment(), "PATH": os.environ["PATH"]})
    asks = "python -c 'import sys; print(\"torch\" in sys.modules)'"
    line = f"{asks}; OMP_NUM_THREADS=1 {asks}; remat policies | head -c 4; exec python -c 'raise SystemExit(4)'"
    done = subprocess.run(["bash", "-c", line], env=there, capture_output=True, text=True, check=False)
    assert done.stdout == "True\nFalse\ndtr ", (done.stdout, done.stderr, sys.executable)
    assert done.returncode == 4
