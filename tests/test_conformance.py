"""Torch's own databases under Remat: a part that is chosen by hash runs always, all of it with `--all`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conformance.item import Item
from conformance.skipped import Skipped
from process import PYTHON, Ended, environment, program, ran_warm

CONFORMANCE = [*PYTHON, "-m", "conformance"]
PARTS = 100


def conformance(*arguments: str) -> tuple[Ended, list[dict[str, Any]]]:
    ended = ran_warm([*CONFORMANCE, "--json", *arguments])
    return ended, [json.loads(line) for line in ended.out.splitlines()]


def holds(*arguments: str) -> None:
    """Nothing fails, and under pressure nearly everything was computed again."""
    ended, verdicts = conformance(*arguments)
    failing = [f"{verdict['item']}: {verdict['reason']}" for verdict in verdicts if verdict["state"] == "failing"]
    assert (failing, ended.code) == ([], 0), ended.err[-2000:]
    identical = [verdict for verdict in verdicts if verdict["state"] == "identical"]
    assert len(identical) > 0.8 * len(verdicts), [verdict for verdict in verdicts if verdict not in identical]
    assert sum(verdict["recomputed"] > 0 for verdict in identical) > 0.9 * len(identical)


def test_a_part_of_the_databases() -> None:
    holds("--part", f"1/{PARTS}", "--processes", "1")


@pytest.mark.full
@pytest.mark.parametrize("part", range(2, PARTS + 1))
def test_all_other_parts(part: int) -> None:
    holds("--part", f"{part}/{PARTS}", "--processes", "1")


def test_an_item_that_crashes_takes_no_other_with_it(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import ctypes
        from conformance.check import State, Verdict
        from conformance.processes import checked

        def check(name):
            if name == "crashes":
                ctypes.string_at(0)
            if name == "ends":
                raise SystemExit(3)
            return Verdict(name, State.IDENTICAL)

        for verdict in checked(["first", "crashes", "second", "ends", "last"], check, processes=2):
            print(verdict.item, verdict.state.value, verdict.reason, sep="|")
        """,
    )
    ended = ran_warm([*PYTHON, script])
    said = dict(line.split("|", 1) for line in ended.out.splitlines())
    assert {name for name in said if said[name] == "identical|"} == {"first", "second", "last"}, ended.err
    assert said["crashes"].startswith("failing|the process was killed by SIGSEGV")
    assert said["ends"].startswith("failing|the process ended with code 3")


def test_an_interrupt_leaves_no_process_behind() -> None:
    command = [*CONFORMANCE, "--json", "--part", "1/10"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        rest, said = process.communicate()
    assert process.returncode == 130, said
    assert all(json.loads(line)["state"] for line in (first + rest).splitlines())
    assert "interrupted" in said and "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_the_command_teaches() -> None:
    ended = ran_warm([*CONFORMANCE, "--help"])
    assert ended.code == 0
    assert "examples:" in ended.out and "--part K/N" in ended.out


@pytest.mark.parametrize("wrong", [["--part", "3/2"], ["--only", "("], ["--samples", "0"]])
def test_wrong_arguments_say_what_is_expected(wrong: list[str]) -> None:
    ended = ran_warm([*CONFORMANCE, *wrong])
    assert ended.code == 2
    assert "expected" in ended.err or "regular expression" in ended.err


def test_parts_hold_every_item_once() -> None:
    items = [Item("op", f"name{number}", "float32", "function") for number in range(600)]
    parts = [[item for item in items if item.in_part(part, 3)] for part in (1, 2, 3)]
    assert sorted(item for part in parts for item in part) == sorted(items)
    assert all(len(part) > 150 for part in parts)


def test_what_is_skipped_has_a_reason() -> None:
    skipped = Skipped("# a comment\n\nop:add:.* it is slow\n")
    assert skipped.reason("op:add:float32:out") == "it is slow"
    assert skipped.reason("op:addmm:float32:out") is None
    assert skipped.share(["op:add:float32:out", "op:mm:float32:out"]) == 0.5
    with pytest.raises(ValueError, match="no reason"):
        Skipped("op:add:.*\n")
