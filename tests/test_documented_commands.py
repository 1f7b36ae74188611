"""Every command that the documentation and the `--help` texts show, run at its smallest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from documented import HEAVY, KNOWN, Shown, always, commands_of, desk, examples_of, shown
from limits import PROCESSOR_SECONDS
from process import environment

SHOWN = shown()
RUN = [one for one in SHOWN if not one.suite]
ALWAYS = always(RUN)


def ran(command: list[str], place: Path, error: str | None = None) -> str:
    """Runs a command that must succeed, or end in this error; its standard output."""
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    there = warm.for_a_shell(place.parent / "bin", {**environment(), "PATH": paths})
    done = subprocess.run(
        ["prlimit", f"--cpu={2 * PROCESSOR_SECONDS}", *command],
        cwd=place,
        env=there,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"{command[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert (done.returncode == 0) == (error is None), said
    assert error is None or f"{error}:" in done.stderr, said
    return done.stdout


@pytest.mark.parametrize(
    "one",
    [pytest.param(one, marks=[] if one in ALWAYS else pytest.mark.full) for one in RUN],
    ids=[f"{one.where}: {one.command}" for one in RUN],
)
def test_a_documented_command_works(tmp_path: Path, one: Shown) -> None:
    known = re.match(KNOWN, one.command)
    assert known, (
        f"{one.where} shows a command of a new kind; tests/documented.py must say how it is run: {one.command}"
    )
    if one.needs:
        pytest.skip(f"needs {one.needs}")
    ran(["bash", "-o", "pipefail", "-c", one.smallest], desk(tmp_path, one.command, ran), one.error)


def test_every_option_that_is_shown_runs() -> None:
    light = [one for one in RUN if not re.match(HEAVY, one.command)]
    assert set().union(*(one.parts for one in ALWAYS)) == set().union(*(one.parts for one in light))
    assert len(ALWAYS) < len(light) * 2 // 3
    for words, parts in {
        "remat plan step F.log --budget 4GiB --json": {
            ("remat", "plan", "step", "--budget"),
            ("remat", "plan", "step", "--json"),
        },
        "remat run --plan=off train.py": {("remat", "run", "--plan")},
        "cargo run": {("cargo", "run", "")},
    }.items():
        assert Shown(words, "p").parts == parts
    assert Shown("remat run a.py", "p", "AnError").parts == {("remat", "run", ""), ("AnError",)}


def test_commands_are_found() -> None:
    places = {one.where for one in SHOWN}
    assert "README.md" in places and any(place.startswith("docs/") for place in places)
    for words in ("", " run", " simulate", " trace convert", " plan chain", " verify cut", " plan step"):
        assert f"remat{words} --help" in places


def test_what_is_shown_in_pages_and_helps_is_read() -> None:
    page = "```console\n$ remat run \\\n>   a.py  # so\nx\nAnError: y\n$ echo '#1'\nx\n```\n```python\n$ no\n```\n"
    assert [*commands_of(page, "p")] == [Shown("remat run a.py", "p", "AnError"), Shown("echo '#1'", "p")]
    text = "Usage\n\nExamples:\n  remat a b    one\n  remat a b c  two, which\n  goes on\n  remat a bcde three\n"
    assert [one.command for one in examples_of(text, "")] == ["remat a b", "remat a b c", "remat a bcde"]
