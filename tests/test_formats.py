"""The pages of file formats: the real commands read their examples, and print what the pages say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from format_examples import Read, examples, reads, write_examples
from process import environment


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command line in a folder with the examples, whose `remat` is this environment's."""
    program = folder / "bin" / "remat"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m remat "$@"\n')
    program.chmod(0o755)
    there = {**environment(), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=there, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("one", reads(), ids=[f"{one.page}: {one.command}" for one in reads()])
def test_a_command_reads_the_example_as_the_page_says(tmp_path: Path, one: Read) -> None:
    write_examples(tmp_path)
    done = run(one.command, tmp_path)
    assert (done.returncode, done.stdout) == (0, one.output), done.stderr


def test_each_example_is_read_by_a_command() -> None:
    commands = " ".join(one.command for one in reads())
    assert examples() and all(name in commands for name in examples())


CHANGED = {
    "example.trace": ('"remat-trace":1', '"remat-trace":2', "remat trace check example.trace", "version 2"),
    "example.plan.json": (
        '"remat-step-plan": 1',
        '"remat-step-plan": 2',
        "remat verify step example.trace example.plan.json",
        "version 2",
    ),
    "example.chain.json": (
        '"forward_time"',
        '"forwards_time"',
        "remat plan chain example.chain.json --budget 24MiB",
        "unknown field `forwards_time`",
    ),
    "example.graph.json": ('"cost"', '"costs"', "remat plan cut example.graph.json", "unknown field `costs`"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_example_is_refused_by_name(tmp_path: Path, name: str) -> None:
    was, now, command, said = CHANGED[name]
    write_examples(tmp_path)
    text = (tmp_path / name).read_text()
    assert was in text
    (tmp_path / name).write_text(text.replace(was, now))
    done = run(command, tmp_path)
    assert done.returncode == 1 and name in done.stderr and said in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["plan chain example.chain.json", "plan cut example.graph.json"])
def test_plans_have_the_keys_of_the_page(tmp_path: Path, command: str) -> None:
    write_examples(tmp_path)
    done = run(f"remat {command} --budget 24MiB --json", tmp_path)
    page = "chain.md" if "chain" in command else "joint-graph.md"
    text = (Path(__file__).parent.parent / "docs/reference/formats" / page).read_text()
    missing = [key for key in json.loads(done.stdout) if f"`{key}`" not in text and key != "seconds"]
    assert not missing, f"{page} says nothing of {missing}"
