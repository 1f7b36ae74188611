"""`remat measure` finds the step of a program that it knows nothing of, and says what smaller budgets would cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from process import PYTHON, REMAT, Ended, environment, program, ran, ran_warm, signalled
from remat import _native
from remat._online import peaks

MEASURE = [*REMAT, "measure", "--device", "cpu"]

TRAINING = """
    import sys, torch
    torch.manual_seed(0)
    weights = [(torch.randn(64, 64) / 8).requires_grad_() for _ in range(12)]
    optimizer = torch.optim.Adam(weights, foreach=False)
    for step in range(int(sys.argv[1])):
        hidden = torch.randn(512, 64)
        for weight in weights:
            hidden = (hidden @ weight).tanh()
        loss = hidden.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex(), flush=True)
        if step == 20:
            print("ready", flush=True)
"""


def test_a_table_of_budgets(tmp_path: Path) -> None:
    script, out = program(tmp_path, TRAINING), tmp_path / "step.trace.zst"
    plain = ran_warm([*PYTHON, script, "8"])
    words = ["--ratio", "0.8,0.6", "--seconds", "0.5", "--json", "--out", out]
    ended = ran_warm([*MEASURE, *words, script, "8"])
    assert ended.code == 0, ended.err
    losses, rows = ended.out.splitlines()[:8], [json.loads(line) for line in ended.out.splitlines()[8:]]
    assert losses == plain.out.splitlines()
    whole, *budgets = rows
    # Twelve results of 128 KiB, beside parameters, gradients and the two of Adam's state, of 192 KiB each.
    assert 12 * 131072 + 3 * 196608 < whole["peak_bytes"] < 4 << 20
    assert 3 * 12 * 16384 <= whole["rest_bytes"] < 1 << 20
    assert "a step of" in ended.err
    assert [row["ratio"] for row in budgets] == [0.8, 0.6]
    assert all(row["peak_bytes"] <= row["budget_bytes"] < whole["peak_bytes"] for row in budgets)
    # The run itself within such a budget keeps to it, and the file is a trace like any other.
    assert ran([*REMAT, "trace", "check", out]).code == 0
    budgeted = ran_warm([*REMAT, "run", "--budget", str(budgets[0]["budget_bytes"] + (256 << 10)), script, "8"])
    assert budgeted.out == plain.out, budgeted.err


CONVOLUTIONS = """
    import sys, torch
    from torch import nn
    torch.manual_seed(0)
    blocks = [(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(6)]
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(layer for block in blocks for layer in block))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(int(sys.argv[1])):
        loss = model(torch.randn(8, 3, 24, 24)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex(), flush=True)
"""


@pytest.mark.parametrize(
    "source",
    [pytest.param(TRAINING, id="perceptron", marks=pytest.mark.full), pytest.param(CONVOLUTIONS, id="convolutions")],
)
def test_the_floor_is_true(tmp_path: Path, source: str) -> None:
    """A first run, which has seen no op, gets through the floor; in less than what is needed at once none does."""
    script = program(tmp_path, source)
    ended = ran_warm([*MEASURE, "--ratio", "0.9", "--seconds", "0.1", "--json", script, "5"])
    losses, whole = ended.out.splitlines()[:5], json.loads(ended.out.splitlines()[5])
    assert whole["needed_bytes"] <= whole["floor_bytes"] < whole["peak_bytes"]
    within = ran_warm([*REMAT, "run", "--budget", str(whole["floor_bytes"]), script, "5"])
    assert (within.code, within.out.splitlines()) == (0, losses), within.err
    less = ran_warm([*REMAT, "run", "--budget", str(whole["needed_bytes"] - 65536), script, "5"])
    assert less.code == 1
    assert "BudgetError" in less.err


def test_a_share_of_the_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_CACHE", str(tmp_path / "cache"))
    script = program(tmp_path, TRAINING)

    def run(budget: str, steps: str) -> Ended:
        return ran_warm([*REMAT, "run", "--budget", budget, "--device", "cpu", script, steps])

    unknown = run("60%peak", "5")
    assert (unknown.code, unknown.error_lines) == (2, unknown.error_lines[:1])
    assert f"no peak of {script} on cpu was measured: run `remat measure`" in unknown.err
    measured = ran_warm([*MEASURE, "--ratio", "0.9", "--seconds", "0.1", "--json", script, "5"])
    whole = json.loads(measured.out.splitlines()[5])
    within = run("60%peak", "5")
    assert within.out.splitlines() == measured.out.splitlines()[:5], within.err
    assert f"of {_native.format_bytes(int(0.6 * whole['peak_bytes']))} (" in within.err
    # Too little is refused before the program starts, in one line with the floor.
    refused = run("20%peak", "5")
    assert (refused.code, refused.out, len(refused.error_lines)) == (2, "", 1)
    assert f"({whole['floor_bytes']} bytes)" in refused.err
    others = run("60%peak", "3")
    assert "with other arguments: 5" in others.err
    assert others.out.splitlines() == within.out.splitlines()[:3]


@pytest.mark.parametrize(
    "damage",
    [
        {"device": 1},
        {"device": None},
        {"peak": "much"},
        {"needed": []},
        {"works": "x"},
        {"arguments": "5"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_damaged_peak_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: dict[str, object]) -> None:
    monkeypatch.setenv("REMAT_CACHE", str(tmp_path))
    peak = peaks.Peak(["5"], "cpu", 1 << 20, None, None)
    peaks.keep("train.py", peak)
    assert peaks.peak_of("train.py", ["5"], "cpu:0") == peak
    (kept,) = tmp_path.glob("peaks/*.json")
    told = json.loads(kept.read_text())
    told["measured"][0] |= damage
    kept.write_text(json.dumps(told))
    for device in (None, "cpu"):
        with pytest.raises(ValueError, match=r"no peak of train\.py.* was measured: run `remat measure`"):
            peaks.peak_of("train.py", ["5"], device)


def test_a_peak_that_cannot_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_CACHE", str(tmp_path / "cache"))
    source = """
        import resource
        from remat._online import peaks
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))  # as a disk that is full
        try:
            peaks.keep("train.py", peaks.Peak([], "cpu", 1 << 20, None, None))
        except OSError as error:
            print(error.strerror)
    """
    ended = ran([*PYTHON, program(tmp_path, source)])
    assert (ended.code, ended.out) == (0, "File too large\n"), ended.err
    assert list((tmp_path / "cache" / "peaks").iterdir()) == []


@pytest.mark.parametrize("cache", ["cache", "off"])
def test_the_peak_of_a_program_whose_name_is_no_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    monkeypatch.setenv("REMAT_CACHE", cache if cache == "off" else str(tmp_path / cache))
    script = program(tmp_path, TRAINING, os.fsdecode(b"n\xff.py"))
    measured = ran_warm([*MEASURE, "--ratio", "0.9", "--seconds", "0.1", script, "5"])
    assert measured.code == 0, measured.err
    within = ran_warm([*REMAT, "run", "--budget", "90%peak", "--device", "cpu", script, "5"])
    assert ("90% of the peak of" if cache != "off" else "REMAT_CACHE=off keeps no peaks") in within.err
    assert within.code == (0 if cache != "off" else 2)


def test_a_program_that_fails_spoils_no_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that goes elsewhere: the cache's folder stays where it was."""
    monkeypatch.setenv("REMAT_CACHE", "cache")
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = program(
        tmp_path,
        f"""
        import os, sys, torch
        os.chdir({str(elsewhere)!r})
        if sys.argv[1:] == ["fails"]:
            sys.argv.pop()
            sys.exit("no data")
        kept = torch.ones(2**18) + 1
        """,
    )
    assert ran_warm([*MEASURE, script]).code == 1  # no step repeats, and the peak is known all the same
    (kept,) = tmp_path.glob("cache/peaks/*.json")
    before = kept.read_text()
    assert ran_warm([*MEASURE, script, "fails"]).code == 1
    assert kept.read_text() == before
    assert list(elsewhere.iterdir()) == []
    within = ran_warm([*REMAT, "run", "--budget", "95%peak", "--device", "cpu:0", script, "fails"])
    assert "95% of the peak of" in within.err


def test_an_interrupt_ends_the_program_and_the_table_follows(tmp_path: Path) -> None:
    script = program(tmp_path, TRAINING.replace("print(loss.item().hex(), flush=True)", "loss.item()"))
    ended = signalled([*MEASURE, "--seconds", "0.2", script, "1000000"], signal.SIGINT, "ready")
    assert ended.code == 0, ended.err
    assert "peak " in ended.out
    assert "floor " in ended.out
    assert "ratio       budget" in ended.out


def test_sigterm_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = program(tmp_path, TRAINING.replace("print(loss.item().hex(), flush=True)", "loss.item()"))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    ended = signalled([*MEASURE, script, "1000000"], signal.SIGTERM, "ready")
    assert ended.code == -signal.SIGTERM
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_amid_the_table_leaves_no_temporary_file(tmp_path: Path, number: signal.Signals) -> None:
    """Amid the binary's own code, which here reads the step from a pipe that stays open."""
    source = """
        import argparse, sys
        from remat._online import measured
        measured._table("-", sys.argv[1], argparse.Namespace(out="-", ratio=None, seconds=None, json=False))
    """
    folder = tmp_path / "temporary"
    folder.mkdir()
    (folder / "step.trace.zst").touch()
    command = ["env", "--default-signal=INT,HUP", *PYTHON, str(program(tmp_path, source)), str(folder)]
    event = '{"const":{"t":%d,"b":4096}}\n'
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write('{"remat-trace":1,"created_by":"remat 0.1.0","pools":["cpu"]}\n')
        process.stdin.writelines(event % tensor for tensor in range(20000))  # more than the pipe holds
        process.stdin.flush()
        process.send_signal(number)
        process.wait()
        assert process.returncode == -number, process.stderr.read()
    assert not folder.exists()


def test_sigterm_after_the_program_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = program(tmp_path, TRAINING.replace("print(loss.item().hex(), flush=True)", "loss.item()"))
    waits = """
        import signal, sys
        from remat._online import measured
        measured._tell = lambda *_: print("ready", flush=True) or signal.pause()
        measured.main(sys.argv[1:])
    """
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    ended = signalled([*PYTHON, program(tmp_path, waits, "waits.py"), script, "8"], signal.SIGTERM, "ready")
    assert ended.code == -signal.SIGTERM
    assert list(temporary.iterdir()) == []


def test_children_that_a_program_forks_leave_the_measurement_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    forks = """
        if step in (1, 4):
            import os
            child = os.fork()
            if child == 0:
                sys.exit(3)
            print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ended = ran([*MEASURE, "--ratio", "0.9,0.8", "--seconds", "0.1", program(tmp_path, TRAINING + forks), "8"])
    assert ended.code == 0, ended.err
    assert (ended.out.count("child 3\n"), ended.out.count("\npeak ")) == (2, 1)
    assert "\n0.900 " in ended.out
    assert list(temporary.iterdir()) == []


def test_the_table_names_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ends = "\n    import atexit, os; atexit.register(lambda: print('at', os.getcwd()))\n"
    ended = ran_warm([*MEASURE, "--ratio", "0.9,0.8", "--seconds", "0.1", program(tmp_path, TRAINING + ends), "5"])
    assert ended.code == 0, ended.err
    assert "\nstep.trace.zst: " in ended.out
    assert ended.out.endswith(f"\nat {tmp_path}\n"), "the program is back in its folder"


def test_an_output_that_nobody_reads_ends_the_command_as_the_others(tmp_path: Path) -> None:
    script = program(tmp_path, TRAINING.replace("print(", "str(").replace(", flush=True", ""))
    ours, theirs = os.pipe()
    os.close(ours)
    command = [*MEASURE, script, "5"]
    done = subprocess.run(command, env=environment(), stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr and "a step of" in done.stderr


@pytest.mark.parametrize("steps", ["1", "2"])
def test_what_does_not_repeat_has_no_table(tmp_path: Path, steps: str) -> None:
    ended = ran_warm([*MEASURE, program(tmp_path, TRAINING), steps])
    assert ended.code == 1
    assert "no step repeated" in ended.err
    assert "peak " in ended.out


REFUSED = {
    "a ratio": (["--ratio", "0.5,none"], "--ratio '0.5,none': expected numbers above 0"),
    "no ratio": (["--ratio", ""], "--ratio '': expected numbers above 0"),
    "no seconds": (["--seconds", "0"], "--seconds '0': expected a number of seconds above 0"),
    "a folder": (["--out", "/"], "cannot write the step '/': Is a directory"),
    "no name": (["--out", ""], "cannot write the step ''"),
    "standard output": (["--out", "-"], "--out '-': the step is read again for the table: name a file"),
    "nowhere": (["--out", "/no/such/folder/step.trace"], "cannot write the step '/no/such/folder/step.trace'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused_before_the_program_runs(name: str) -> None:
    words, why = REFUSED[name]
    ended = ran_warm([*MEASURE, *words, "-c", "print('ran')"])
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1), ended.err
    assert why in ended.err


@pytest.mark.parametrize("words", [["torchrun", "train.py"], ["-m", "torch.distributed.run", "train.py"]])
def test_a_launcher_is_not_measured(words: list[str]) -> None:
    """Its processes would not be, and the peak would be 0 bytes."""
    ended = ran_warm([*MEASURE, *words])
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1), ended.err
    assert "starts processes of its own, which would not be measured" in ended.err


def test_what_cannot_be_read_again_is_no_file_for_the_step(tmp_path: Path) -> None:
    """A pipe would be waited for once the program has run."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for out in (tmp_path / "pipe", tmp_path / "link", Path(os.devnull)):
        ended = ran_warm([*MEASURE, "--out", out, "-c", "print('ran')"])
        assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1), ended.err
        assert f"--out {str(out)!r}: the step is read again for the table: name a file" in ended.err


def test_the_script_is_not_overwritten(tmp_path: Path) -> None:
    script = program(tmp_path, "print('ran')")
    ended = ran_warm([*MEASURE, "--out", script, script])
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1), ended.err
    assert "--out and the script name one file" in ended.err
    assert script.read_text() == "print('ran')"


def test_the_programs_exit_code_and_folder_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    script = program(tmp_path, TRAINING + "\n    import os; os.chdir('other'); sys.exit(3)\n")
    ended = ran_warm([*MEASURE, "--ratio", "0.9", "--seconds", "0.1", "--out", "step.trace", script.name, "5"])
    assert ended.code == 3, ended.err
    assert "ratio " in ended.out or "overhead" in ended.out
    assert (tmp_path / "step.trace").is_file()
    # The peak is known of the script, wherever it went.
    budgeted = ran_warm([*REMAT, "run", "--budget", "90%peak", "--device", "cpu", script, "5"])
    assert budgeted.code == 3, budgeted.err


def test_a_program_that_fails_fails(tmp_path: Path) -> None:
    ended = ran_warm([*MEASURE, program(tmp_path, TRAINING + "\n    raise KeyError('no data')\n"), "8"])
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == "KeyError: 'no data'"
    assert "measured.py" not in ended.err
