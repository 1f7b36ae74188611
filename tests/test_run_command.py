"""The things `remat run` takes and tells: scripts, modules and texts; amounts of memory; processes; reports."""

from __future__ import annotations

import inspect
import json
import os
import pty
import shutil
import signal
import subprocess
import textwrap
from pathlib import Path

import pytest
import remat
import torch
from native import REASON
from process import PYTHON, REMAT, environment, program, ran, ran_warm, signalled
from remat._memory.amounts import AUTO, Amount, amount_of, auto_of, main_memory
from test_command_line import TRAINING

RUN = [*REMAT, "run", "--budget"]

TELLS_OF_ITSELF = """
    import json, os, sys
    print(json.dumps([sys.argv, __name__, __package__, globals().get("__file__"), sys.path[0], os.getcwd()]))
    print(__spec__ and __spec__.name, __loader__ is not None if "__loader__" in globals() else None)
    assert sys.modules["__main__"].__dict__ is globals()
    if len(sys.argv) > 2:
        sys.exit(int(sys.argv[2]))
"""


def package(where: Path) -> None:
    """A package to run, with a module that imports from it."""
    own = textwrap.dedent(TELLS_OF_ITSELF)
    (where / "trainer").mkdir()
    program(where / "trainer", f"from . import width\nwidth.check()\n{own}", "step.py")
    program(where / "trainer", own, "__main__.py")
    program(where / "trainer", "", "__init__.py")
    program(where / "trainer", "def check(): print('of the package')\n", "width.py")


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "trainer.step", "--epochs", "3"],
        ["-m", "trainer", "x"],
        ["-m", "trainer"],
        ["-mtrainer", "a", "--budget", "-m"],
    ],
)
def test_modules_run_as_by_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    package(tmp_path)
    monkeypatch.chdir(tmp_path)
    plain, budgeted = ran([*PYTHON, *words]), ran_warm([*RUN, "1GiB", *words])
    assert budgeted.out == plain.out
    assert "trainer" in plain.out
    assert budgeted.code == plain.code == (3 if "3" in words else 1 if "-mtrainer" in words else 0)


@pytest.mark.parametrize("flag", [["-c"], []])
def test_texts_run_as_by_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "import sys\ndef own(x: int): sys.exit(4)\nprint(sys.argv, sys.path[0], __name__, own.__annotations__)\nown(1)"
    )
    words = [*flag, text if flag else f"-c{text}", "--budget", "x"]
    plain, budgeted = ran([*PYTHON, *words]), ran_warm([*RUN, "1GiB", *words])
    assert (budgeted.out, budgeted.code) == (plain.out, plain.code)
    assert budgeted.code == 4


@pytest.mark.parametrize("command", ["run", "measure"])
@pytest.mark.parametrize("named", ["-c", "-cCODE", "-m", "-mMODULE", "script", "-- script", "-"])
def test_two_dashes_reach_the_program_as_by_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import sys; print(sys.argv)"
    program(tmp_path, text, "trainer.py")
    ways = {"-c": ["-c", text], "-cCODE": [f"-c{text}"], "-m": ["-m", "trainer"], "-mMODULE": ["-mtrainer"], "-": ["-"]}
    words = [*ways.get(named, named.replace("script", "trainer.py").split()), "--", "a", "--", "-b"]
    own = ["run", "--budget", "1GiB"] if command == "run" else ["measure"]
    plain, within = ran([*PYTHON, *words], text), ran_warm([*REMAT, *own, *words], text)
    assert within.out.splitlines()[:1] == plain.out.splitlines(), within.err
    assert "'a', '--', '-b']" in plain.out


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_folders_and_archives_run_as_by_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    program(tmp_path / "folder", "width = 7", "neighbour.py")
    own = f"from neighbour import width\nprint(width, __file__)\n{textwrap.dedent(TELLS_OF_ITSELF)}"
    program(tmp_path / "folder", own, "__main__.py")
    shutil.make_archive("archive", "zip", "folder")
    words = ["folder/" if kind == "folder" else "archive.zip", "--epochs", "3"]
    plain, budgeted = ran([*PYTHON, *words]), ran_warm([*RUN, "1GiB", *words])
    assert (budgeted.out, budgeted.code, plain.code) == (plain.out, 3, 3), budgeted.err


@pytest.mark.parametrize("kind", ["script", "module", "archive", "text"])
def test_programs_on_a_safe_path_run_as_by_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Their folder is not looked in, and no other entry gives way to it."""
    (tmp_path / "lib").mkdir()
    for folder in (tmp_path, tmp_path / "lib"):
        program(folder, f"place = {folder.name!r}", "neighbour.py")
    own = "import sys, neighbour\nprint(neighbour.place, sys.path[:3], __name__)"
    program(tmp_path / "lib", own, "trainer.py")
    program(tmp_path / "lib", own, "__main__.py")
    monkeypatch.chdir(tmp_path)
    shutil.make_archive("archive", "zip", "lib")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "lib"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    words = {"script": [program(tmp_path, own)], "module": ["-m", "trainer"], "archive": ["archive.zip"]}
    command = words.get(kind, ["-c", own])
    plain, budgeted = ran([*PYTHON, *command]), ran([*RUN, "1GiB", *command])
    assert (budgeted.out, budgeted.code, plain.code) == (plain.out, 0, 0), budgeted.err


@pytest.mark.parametrize("words", [[], ["-mx", "-1"]])
def test_a_program_on_standard_input_runs_as_by_python(words: list[str]) -> None:
    text = "import sys\nprint(sys.argv, sys.path[0], __name__, __file__, repr(sys.stdin.read()))\nsys.exit(4)"
    plain, budgeted = ran([*PYTHON, "-", *words], text), ran_warm([*RUN, "1GiB", "-", *words], text)
    assert (budgeted.out, budgeted.code, plain.code) == (plain.out, 4, 4), budgeted.err


@pytest.mark.full
def test_a_program_on_standard_input_runs_in_an_arena() -> None:
    """For which the command starts again."""
    ended = ran([*RUN, "64MiB", "--pool", "arena", "-"], "import torch; print(torch.ones(2**18).sum().item())")
    assert ended.out == f"{float(2**18)}\n", ended.err
    assert "arena: true peak" in ended.err


REFUSED = {
    "a folder without a program": (["/"], "'/': there is no __main__.py in it"),
    "standard input for two": (["--nproc", "2", "-"], "cannot share a program on standard input; save it as a file"),
    "no budget": (["--budget", "-m", "x"], "argument --budget: expected one argument; see remat run --help"),
    "an option that there is not": (["--iterations", "1.5", "-c", "pass"], "unrecognized arguments: --iterations"),
    "a seed with a fraction": (["--seed", "1.5", "-c", "pass"], "--seed: '1.5': expected a whole number, such as 2"),
    "no limit": (["--thrash-limit", "x", "-c", "pass"], "--thrash-limit: 'x': expected a number, such as 2.5"),
    "a policy of arenas": (["--policy", "coop", "-c", "pass"], "'coop' goes by addresses, which a count of bytes has"),
    "no program": ([], "no program to run"),
    "no such module": (["-m", "no_such_module"], "there is no module 'no_such_module'"),
    "a package that cannot be run": (["-m", "logging"], "without a module __main__"),
    "-m without a module": (["-m"], "argument -m: expected one argument"),
    "torchrun": (["torchrun", "train.py"], "would run without a budget"),
    "torchrun as a module": (["-m", "torch.distributed.run", "train.py"], "--nproc"),
    "accelerate": (["/usr/bin/accelerate", "launch", "train.py"], "would run without a budget"),
    "accelerate in a word": (["accelerate-launch", "train.py"], "would run without a budget"),
    "accelerate as a module": (["-m", "accelerate.commands.accelerate_cli", "launch", "x.py"], "would run without a"),
    "Lightning's": (["/usr/bin/fabric", "run", "train.py"], "would run without a budget"),
    "Lightning's as a module": (["-m", "lightning.fabric.cli", "run", "train.py"], "would run without a budget"),
    "no process": (["--nproc", "0", "train.py"], "--nproc 0"),
    "a thousand processes": (["--nproc", "1025", "train.py"], "--nproc 1025: expected a number of processes of this"),
    "one report for two": (["--nproc", "2", "--report", "run.json", "train.py"], "put {rank} into its name"),
    "a report nowhere": (["--report", "/no/such/folder/run.json", "-c", "pass"], "cannot write the report"),
    "a report on standard output": (["--report", "-", "-c", "pass"], "--report '-': standard output is the program's"),
    "plans on standard output": (["--plan-out", "-", "-c", "pass"], "plan_out '-': standard output is the program's"),
    "a folder for a trace": (["--trace", "/", "-c", "pass"], "cannot write the trace '/': Is a directory"),
    "a trace without a name": (["--trace", "", "-c", "pass"], "cannot write the trace ''"),
    "a seed below 0": (["--seed", "-1", "-c", "pass"], f"seed -1: expected a whole number from 0 to {2**64 - 1}"),
    "a seed of 65 bits": (["--seed", str(2**64), "-c", "pass"], f"seed {2**64}: expected a whole number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_in_one_line(name: str) -> None:
    words, why = REFUSED[name]
    ended = ran_warm([*RUN, "1GiB", *words])
    assert ended.code == 2
    assert why in ended.err
    assert len(ended.error_lines) == 1, ended.err


ONE_FILE = {
    "a report and a page": (["--report", "run.html", "--timeline", "run.html"], "--report and --timeline"),
    "two ways to write it": (["--trace", "run.json", "--report", "./x/../run.json"], "--trace and --report"),
    "a link": (["--plan-out", "link.json", "--report", "run.json"], "--report and --plan-out"),
    "plans that are read": (["--plan", "run.json", "--report", "run.json"], "--report and --plan"),
    "of all processes": (["--nproc", "2", "--trace", "{rank}.json", "--report", "{rank}.json"], "--trace and --report"),
    "of the first": (["--trace", "{rank}.json", "--report", "0.json"], "--trace and --report"),
    "the script": (["--report", "script.py"], "--report and the script"),
}


@pytest.mark.parametrize("name", ONE_FILE)
def test_one_file_for_two_outputs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "run.json").write_text("as before")
    (tmp_path / "link.json").symlink_to("run.json")
    words, which = ONE_FILE[name]
    ended = ran_warm([*RUN, "1GiB", *words, program(tmp_path, "print('ran')")])
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1), ended.err
    assert f"{which} name one file, " in ended.err and "give each a file of its own" in ended.err
    assert (tmp_path / "run.json").read_text() == "as before"


def test_one_file_for_two_outputs_of_a_budget_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with pytest.raises(ValueError, match="trace and timeline name one file"):
        remat.budget("1GiB", trace=file, timeline=str(file))
    assert not file.exists()


def test_a_device_takes_several_outputs() -> None:
    ended = ran_warm([*RUN, "1GiB", "--trace", os.devnull, "--report", os.devnull, "-c", "import torch; print('ran')"])
    assert (ended.code, ended.out) == (0, "ran\n"), ended.err


@pytest.mark.parametrize(
    "words, why",
    [
        (["-1%", "-c", "print('ran')"], "'-1%': expected a share of the device's memory above 0% and at most 100%"),
        (["-1GiB", "-c", "print('ran')"], '"-1GiB" is not a byte count: it is negative; write for example 6GiB'),
        (
            ["cpu=1GiB", "--budget", "cpu=2GiB", "-"],
            "'cpu=2GiB': 'cpu' has a budget of 1GiB already: give it one budget",
        ),
        (["cpu=1GiB", "--budget", "cpu:0=2GiB", "-"], "'cpu' and 'cpu:0' are of one device: give it one budget"),
        (["50%peak", "-"], "no peak is kept of a program on standard input: save it as a file, or give bytes"),
    ],
)
def test_budgets_that_make_no_sense_are_refused_in_one_line(words: list[str], why: str) -> None:
    ended = ran_warm([*RUN, *words], "print('ran')")
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1), ended.err
    assert why in ended.err


@pytest.mark.parametrize("wrong", [["--policy", "none"], ["--trace", "/"], ["--seed", "-1"], ["--budget", "cpu=1"]])
def test_a_refused_command_leaves_the_files_of_the_last_run(tmp_path: Path, wrong: list[str]) -> None:
    report, timeline, new = tmp_path / "run.json", tmp_path / "run.html", tmp_path / "new.json"
    for file in (report, timeline):
        file.write_text("of the last run")
    ended = ran_warm([*RUN, "1GiB", "--report", report, "--timeline", timeline, *wrong, "-c", "print('ran')"])
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1), ended.err
    ran_warm([*RUN, "1GiB", "--report", new, *wrong, "-c", "print('ran')"])
    assert {file.read_text() for file in (report, timeline)} == {"of the last run"} and not new.exists()


def test_files_are_named_from_where_the_command_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    files = {"--report": "run.json", "--timeline": "run.html", "--trace": "run.trace", "--plan-out": "run.plan.json"}
    words = [word for pair in files.items() for word in pair]
    ended = ran_warm([*RUN, "1GiB", *words, "-c", "import os, torch; os.chdir('other'); torch.ones(3).add(1)"])
    assert ended.code == 0, ended.err
    assert all((tmp_path / file).stat().st_size > 0 for name, file in files.items() if name != "--plan-out")
    assert not list((tmp_path / "other").iterdir())


def test_files_of_a_budget_are_named_from_where_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with remat.budget("1GiB", trace="run.trace", timeline="run.html", plan_out="run.plan.json"):
        monkeypatch.chdir("other")
        torch.ones(3).add(1)
    assert (tmp_path / "run.trace").stat().st_size > 0 and (tmp_path / "run.html").stat().st_size > 0
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused_by_name(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed {seed}: expected a whole number from 0 to {2**64 - 1}"):
        remat.budget("1GiB", seed=seed)


def test_a_choice_of_the_log_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_LOG", "loud")
    ended = ran([*RUN, "1GiB", "-c", "pass"])
    assert ended.code == 2
    assert "REMAT_LOG 'loud': expected off, report or status" in ended.err


def test_amounts() -> None:
    assert amount_of("80%") == Amount(share=0.8)
    assert amount_of(" 12.5% ") == Amount(share=0.125)
    assert amount_of("auto") == AUTO
    assert amount_of("6GiB") == amount_of(6 << 30) == Amount(bytes=6 << 30)
    for wrong in ("0%", "101%", "-5%", "%", "nan%", "inf%"):
        with pytest.raises(ValueError, match="expected a share of the device's memory"):
            amount_of(wrong)
    assert auto_of(1600) == 1500


def first_version(proc: Path, groups: Path) -> None:
    """Turns the files of control groups into those of version 1."""
    (proc / "self" / "cgroup").write_text("5:cpu,cpuacct:/\n7:memory:/jobs/one\n0::/\n")
    (groups / "memory").mkdir(parents=True)
    for folder in ("jobs", "jobs/one"):
        (groups / "memory" / folder).mkdir()
        if (limit := groups / folder / "memory.max").exists():
            text = limit.read_text().replace("max", "9223372036854771712")
            (groups / "memory" / folder / "memory.limit_in_bytes").write_text(text)
            used = groups / folder / "memory.current"
            used.rename(groups / "memory" / folder / "memory.usage_in_bytes")
            told = (groups / folder / "memory.stat").read_text().replace("inactive", "total_inactive")
            (groups / "memory" / folder / "memory.stat").write_text(told)


def machine(where: Path, limits: dict[str, tuple[str, int, int]]) -> tuple[Path, Path]:
    """Files as the kernel shows them: what is available, and by control group its limit, use and pages of files."""
    proc, groups = where / "proc", where / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 4000 kB\nMemFree: 100 kB\nMemAvailable: 3000 kB\n")
    (proc / "self" / "cgroup").write_text("0::/jobs/one\n")
    for name, (limit, used, files) in limits.items():
        folder = groups / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 7\ninactive_file {files}\n")
    return proc, groups


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("limits", "free"),
    [
        ({}, 3000 << 10),
        ({"jobs/one": ("max", 100, 0)}, 3000 << 10),
        ({"jobs/one": ("1000000", 400000, 100000)}, 700000),
        ({"jobs/one": ("1000000", 400000, 0), "jobs": ("500000", 450000, 0)}, 50000),
        ({"jobs/one": ("1000000", 1200000, 0)}, 0),
    ],
)
def test_free_memory_is_that_of_the_control_group(
    tmp_path: Path, limits: dict[str, tuple[str, int, int]], free: int, version: int
) -> None:
    files = machine(tmp_path, limits)
    if version == 1:
        first_version(*files)
    total, found = main_memory(*files)
    assert found == free
    assert found <= total


def test_shares_and_what_is_free() -> None:
    import remat

    total = main_memory()[0]
    with remat.budget("50%", device="cpu") as run:
        assert run.stats().budget == total // 2
        run.set_budget("25%")
        assert run.stats().budget == total // 4
    with remat.budget("auto", device="cpu") as run:
        budget = run.stats().budget
        assert budget is not None
        assert 0 < budget <= total


def test_a_report_for_programs(tmp_path: Path) -> None:
    script, report = program(tmp_path, TRAINING), tmp_path / "run.json"
    ended = ran_warm([*RUN, "3MiB", "--policy", "dtr-eq", "--device", "cpu", "--report", report, script, "--flag"])
    assert ended.code == 0, ended.err
    told = json.loads(report.read_text())
    assert (told["format"], told["version"], told["end"]) == ("remat-run", 1, "done")
    assert told["argv"] == [str(script), "--flag"]
    assert told["budget"] == 3 << 20
    assert 0 < told["peak"] <= told["budget"]
    assert told["evictions"] > 0
    assert told["slowdown"] >= 1
    natively = REASON is None and os.environ.get("REMAT_DISPATCH") != "python"
    assert told["dispatch"] == ("native" if natively else "python")
    assert (told["watch_seconds"] is not None, "watching" in ended.err) == (natively, natively)
    parts = [told[f"{part}_seconds"] or 0 for part in ("recompute", "decide", "watch")]
    assert 0 < sum(parts) < told["seconds"]


ENDS = {
    "exit": "raise SystemExit(3)",
    "error": "raise KeyError('no data')",
    "done": "raise SystemExit",
    "no text": "class Mute(Exception):\n    def __str__(self): raise ValueError('no text')\nraise Mute",
}
TOLD = {
    "exit": "exit 3",
    "error": "KeyError: 'no data'",
    "done": "done",
    "no text": "Mute: <exception str() failed>",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_report_however_the_program_ends(tmp_path: Path, end: str) -> None:
    report = tmp_path / "run.json"
    ended = ran_warm(
        [*RUN, "1GiB", "--report", report, program(tmp_path, f"import torch\ntorch.ones(3).add(1)\n{ENDS[end]}")]
    )
    assert ended.code == {"exit": 3, "done": 0}.get(end, 1)
    told = json.loads(report.read_text())
    assert told["end"] == TOLD[end]
    assert told["ops"] >= 2
    assert "remat: peak" in ended.err


REFUSED_WITHIN_TORCHSCRIPT = """
    import sys, torch, torch.multiprocessing as mp
    from torch.autograd import forward_ad

    def keep(number):
        kept = []
        while len(kept) < 400:
            with forward_ad.dual_level():
                x = torch.rand(64, 64)
                torch.ops.aten._softmax_backward_data(forward_ad.make_dual(x, x * 0.5), x, 1, torch.float32)
            kept.append(torch.ones(256))
            kept[-1].numpy()

    if sys.argv[1] == "here":
        keep(0)
    else:
        mp.start_processes(keep, nprocs=1, start_method="fork")
"""


@pytest.mark.parametrize("place", ["here", "in a process"])
def test_a_refusal_within_torchscript_is_one(tmp_path: Path, place: str) -> None:
    """Torch takes this op apart in its interpreter, which raises an error of its own."""
    script = program(tmp_path, REFUSED_WITHIN_TORCHSCRIPT)
    options = ["--policy", "lru", "--costs", "bytes", "--report", tmp_path / "run-{rank}.json"]
    ended = ran_warm([*RUN, "200KiB", *options, script, place])
    assert ended.code == 1
    report = json.loads((tmp_path / ("run-0.json" if place == "here" else "run-0-0.json")).read_text())
    assert report["end"].startswith("BudgetError: aten."), report["end"]
    assert f"remat._errors.{report['end']}" in ended.err


ERRORS = {
    "closed": ('exec "$@" 2>&-', "pass"),
    "closed by the program": ('exec "$@"', "sys.stderr.close()"),
    "read by nobody": ('exec "$@"', "pass"),
}


@pytest.mark.parametrize("errors", ERRORS)
def test_standard_error_that_cannot_be_written_does_not_fail_the_program(tmp_path: Path, errors: str) -> None:
    report, (start, end) = tmp_path / "run.json", ERRORS[errors]
    words = [*RUN, "1GiB", "--report", str(report), "-c", f"import sys, torch; torch.ones(3).add(1); {end}"]
    ours, theirs = os.pipe()
    os.close(ours)
    shell = ["sh", "-c", start, "sh", *words]
    done = subprocess.run(shell, env=environment(), stdout=subprocess.PIPE, stderr=theirs, check=False)
    os.close(theirs)
    assert (done.returncode, done.stdout) == (0, b"")
    assert json.loads(report.read_text())["end"] == "done"


def test_a_report_has_the_arguments_as_they_were_given(tmp_path: Path) -> None:
    report, timeline = tmp_path / "run.json", tmp_path / "timeline.json"
    spoils = "import sys, torch; torch.ones(3).add(1); sys.argv[1:] = [object()]"
    ended = ran_warm([*RUN, "1GiB", "--report", report, "--timeline", timeline, "-c", spoils, "one"])
    assert ended.code == 0, ended.err
    assert json.loads(report.read_text())["argv"] == ["-c", "one"]
    assert "one" in timeline.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_report_after_signals(tmp_path: Path, number: signal.Signals) -> None:
    script = program(
        tmp_path,
        """
        import torch, time
        torch.ones(100).add(1)
        print("ready", flush=True)
        while True:
            torch.ones(100).add(1)
            time.sleep(0.01)
        """,
    )
    report = tmp_path / "run.json"
    ended = signalled([*RUN, "1GiB", "--report", report, script], number, "ready")
    assert ended.code == -number
    told = json.loads(report.read_text())
    assert told["end"].startswith({signal.SIGINT: "KeyboardInterrupt", signal.SIGTERM: "SIGTERM"}[number])
    assert told["ops"] >= 2
    assert ended.err.count("remat: peak") == 1


@pytest.mark.parametrize("first", [signal.SIGHUP, signal.SIGTERM])
def test_sighup_ends_a_run_with_whole_files_though_it_comes_twice(tmp_path: Path, first: signal.Signals) -> None:
    """The system and a shell both send it where a terminal is closed; others send it after SIGTERM."""
    report, timeline = tmp_path / "run.json", tmp_path / "run.html"
    code = f"""
    import json, os, signal, torch
    def write(*given, write=json.dumps, **named):
        os.kill(os.getpid(), signal.SIGHUP)
        return write(*given, **named)
    json.dumps = write
    torch.ones(3).add(1)
    os.kill(os.getpid(), {int(first)})
    """
    files = ["--report", report, "--timeline", timeline]
    ended = ran_warm([*RUN, "1GiB", *files, program(tmp_path, code)])
    assert ended.code == -first, ended.err
    assert json.loads(report.read_text())["end"] == first.name
    assert timeline.stat().st_size > 0
    assert ended.err.count("remat: peak") == 1


ENDS_AS_IT_WRITES = """
    import json, os, signal, sys, torch
    number, place = signal.Signals[sys.argv[1]], sys.argv[2]
    def end():
        global place
        place = None
        os.kill(os.getpid(), number)
    def within(name):
        write = getattr(json, name)
        def writes(what, *given, **named):
            if ("report" if "format" in what else "timeline") == place:
                end()
            return write(what, *given, **named)
        return writes
    for name in "dump", "dumps":
        setattr(json, name, within(name))
    def opened(event, given):
        if event == "open" and str(given[0]).endswith(f"{place}.partial"):
            end()
    sys.addaudithook(opened)
    torch.ones(3).add(1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("place", ["timeline", "report", "run.html", "run.json"])
def test_a_signal_as_a_file_is_written_leaves_a_whole_one(tmp_path: Path, place: str, number: signal.Signals) -> None:
    """Ctrl-C leaves the file of the run before, the others write all files."""
    report, timeline = tmp_path / "run.json", tmp_path / "run.html"
    before = "of the run before"
    for file in (report, timeline):
        file.write_text(before)
    files = ["--report", report, "--timeline", timeline]
    script = program(tmp_path, ENDS_AS_IT_WRITES)
    ended = ran_warm([*RUN, "1GiB", *files, script, number.name, place])
    assert ended.code == -number, ended.err
    interrupted = number == signal.SIGINT
    if interrupted and place in ("report", report.name):
        assert report.read_text() == before
    else:
        end = "KeyboardInterrupt: " if interrupted else "done" if place == report.name else number.name
        assert json.loads(report.read_text())["end"] in (end, number.name)
    if interrupted and place in ("timeline", timeline.name):
        assert timeline.read_text() == before
    else:
        assert timeline.read_text().rstrip().endswith("</html>")
    assert sorted(file.name for file in tmp_path.iterdir()) == [timeline.name, report.name, script.name]


def test_sigterm_ends_a_program_whose_report_nobody_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code = """
    import os, signal, sys, threading, torch
    def opened(event, given):
        if event == "open" and str(given[0]).endswith("/pipe"):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    sys.addaudithook(opened)
    torch.ones(3).add(1)
    """
    ended = ran_warm([*RUN, "1GiB", "--report", tmp_path / "pipe", program(tmp_path, code)])
    assert ended.code == -signal.SIGTERM, ended.err


def test_sighup_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As nohup has it."""
    code = """
    import os, remat, signal, torch
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with remat.budget("1GiB", timeline="run.json"):
        torch.ones(3).add(1)
        os.kill(os.getpid(), signal.SIGHUP)
    print(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGTERM).name)
    """.replace("run.json", str(tmp_path / "run.json"))
    ended = ran_warm([*PYTHON, program(tmp_path, code)])
    assert (ended.code, ended.out) == (0, "SIG_IGN SIG_DFL\n"), ended.err


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGTERM)"], ids=["the program ends", "SIGTERM"])
def test_a_report_that_cannot_be_written_fails_no_program(tmp_path: Path, end: str) -> None:
    (tmp_path / "gone").mkdir()
    report = tmp_path / "gone" / "run.json"
    code = f"import os, signal, torch; torch.ones(3).add(1); os.rmdir({str(report.parent)!r}); {end}"
    ended = ran_warm([*RUN, "1GiB", "--report", report, "-c", code])
    assert ended.code == (-signal.SIGTERM if end else 0), ended.err
    assert f"remat: the report '{report}' was not written: No such file" in ended.err
    assert ended.err.count("remat: peak") == 1
    assert "Traceback" not in ended.err


def test_threads_that_outlive_the_program_stay_within_the_budget(tmp_path: Path) -> None:
    """As under Python itself, the program ends once they have ended."""
    code = """
    import threading, torch
    from concurrent.futures import ThreadPoolExecutor
    def work():
        threading.Event().wait(0.2)  # the program's last line has run by then
        kept = [torch.ones(2**18) + i for i in range(8)]
        print(sum(x.sum().item() for x in kept))
    threading.Thread(target=work).start()
    left_open = ThreadPoolExecutor(1)  # Python ends its thread, which waits for more work
    left_open.submit(torch.ones, 3).result()
    """
    report = tmp_path / "run.json"
    ended = ran_warm([*RUN, "4MiB", "--report", report, program(tmp_path, code)])
    assert ended.out == f"{float(2**18 * sum(range(1, 9)))}\n", ended.err
    told = json.loads(report.read_text())
    assert told["evictions"] > 0
    assert told["peak"] <= 4 * 2**20


def test_forked_processes_report_after_sigterm_too(tmp_path: Path) -> None:
    """Torch ends the others by it where one has failed."""
    code = """
    import os, signal, torch, torch.multiprocessing as processes
    def train(number):
        torch.ones(3).add(1)
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            pass
    if __name__ == "__main__":
        try:
            processes.start_processes(train, (), nprocs=1, start_method="fork")
        except processes.ProcessExitedException as error:
            print(error.signal_name)
    """
    ended = ran_warm([*RUN, "1GiB", "--report", tmp_path / "run-{rank}.json", program(tmp_path, code)])
    assert ended.out == "SIGTERM\n", ended.err
    reports = [json.loads(path.read_text())["end"] for path in tmp_path.glob("run-*.json")]
    assert sorted(reports) == ["SIGTERM", "done"]


def test_a_process_that_was_forked_does_not_report(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import os, signal, torch
        torch.ones(3).add(1)
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        """,
    )
    ended = ran([*RUN, "1GiB", script])
    assert ended.code == 0, ended.err
    assert ended.err.count("remat: peak") == 1


@pytest.mark.parametrize("command", ["run", "measure"])
def test_signals_end_a_forked_process_whatever_it_waits_for(tmp_path: Path, command: str) -> None:
    """A handler in Python would wait for a call of C to return, such as one that waits for a lock of the parent."""
    code = """
    import os, signal, torch
    def told():
        print([signal.getsignal(number).name for number in (signal.SIGTERM, signal.SIGHUP)], flush=True)
    torch.ones(3).add(1)
    child = os.fork()
    if child == 0:
        told()
        os._exit(0)
    os.waitpid(child, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        told()
        os._exit(0)
    os.waitpid(child, 0)
    """
    words = [*RUN, "1GiB"] if command == "run" else [*REMAT, command]
    ended = ran_warm([*words, program(tmp_path, code)])
    said = [line for line in ended.out.splitlines() if line.startswith("[")]
    assert said == ["['SIG_DFL', 'SIG_DFL']", "['SIG_IGN', 'SIG_DFL']"], ended.err


def test_a_signal_as_a_process_is_forked_is_not_lost(tmp_path: Path) -> None:
    """Python forgets signals that come to a child before it knows itself, unless they wait."""
    code = """
    import os, signal, sys
    def begins():
        print(sorted(number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
    os.register_at_fork(after_in_child=begins)  # before Remat's own
    import remat, torch
    with remat.budget("1GiB", timeline=sys.argv[1]):
        torch.ones(3).add(1)
        child = os.fork()
        if child == 0:
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """
    ended = ran([*PYTHON, program(tmp_path, code), tmp_path / "run.json"])
    assert ended.out.splitlines() == ["['SIGHUP', 'SIGTERM']", "-15 set()"], ended.err


def test_a_process_that_was_forked_amid_a_write_is_ended_with_whole_files(tmp_path: Path) -> None:
    code = """
    import os, signal, sys, remat, torch
    from remat._online.endings import put_off
    with put_off():
        child = os.fork()
        if child == 0:
            with remat.budget("1GiB", timeline=sys.argv[1]):
                torch.ones(3).add(1)
                os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    timeline = tmp_path / "run.json"
    ended = ran([*PYTHON, program(tmp_path, code), timeline])
    assert (ended.out, ended.code) == ("-15\n", 0), ended.err
    assert json.loads(timeline.read_text())["traceEvents"]


STARTS_PROCESSES = r"""
    import sys, torch, torch.multiprocessing as mp
    from torch import nn

    def train(number, steps):
        torch.set_num_threads(1)
        torch.manual_seed(number)
        layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.GELU())]
        optimizer = torch.optim.SGD(nn.Sequential(*layers).parameters(), 0.1)
        for _ in range(steps):
            loss = nn.Sequential(*layers)(torch.randn(512, 64)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"{number} {loss.item().hex()}\n", end="", flush=True)  # in one piece

    def start(number, steps):
        mp.start_processes(train, (steps,), nprocs=2, start_method="fork")

    if __name__ == "__main__":
        if sys.argv[1] == "spawn":
            mp.spawn(train, (2,), nprocs=2)
        elif sys.argv[1] == "nested":
            mp.start_processes(start, (2,), nprocs=1, start_method="fork")
        elif sys.argv[1] == "fork":
            mp.start_processes(train, (2,), nprocs=2, start_method="fork")
        else:
            for number in range(2):
                process = mp.get_context("fork").Process(target=train, args=(number, 2))
                process.start()
                process.join()
"""


@pytest.mark.parametrize(
    ("method", "pool"),
    [("spawn", "arena"), ("fork", "fungible"), pytest.param("spawn", "fungible", marks=pytest.mark.full)],
)
def test_processes_that_the_program_starts_have_budgets_of_their_own(tmp_path: Path, method: str, pool: str) -> None:
    script = program(tmp_path, STARTS_PROCESSES)
    plain = ran_warm([*PYTHON, script, "fork"])
    options = ["--pool", pool, "--report", tmp_path / "run-{rank}.json"]
    ended = ran_warm([*RUN, "1200KiB", *options, script, method])
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == sorted(plain.out.splitlines()) and len(plain.out.splitlines()) == 2
    for number in range(2):
        report = json.loads((tmp_path / f"run-0-{number}.json").read_text())
        assert report["end"] == "done" and report["recomputed"] > 0
        assert report["peak"] <= report["budget"] == 1200 << 10
        assert (report["arena"] is not None) == (pool == "arena")
    assert ended.err.count("remat: peak") == 3 and "without a budget" not in ended.err


@pytest.mark.full
def test_lightning_starts_processes_within_budgets(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import lightning, torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(128, 128), nn.GELU())])

            def training_step(self, batch, at):
                return self.net(batch[0]).square().mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

        if __name__ == "__main__":
            torch.manual_seed(0)
            torch.set_num_threads(1)
            model, batches = Model(), DataLoader(TensorDataset(torch.randn(2048, 128)), batch_size=512)
            quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar"], False)
            trainer = lightning.Trainer(accelerator="cpu", strategy="ddp_spawn", devices=2, max_epochs=1, **quiet)
            trainer.fit(model, batches)
            print("sum", sum(parameter.double().sum().item() for parameter in model.parameters()).hex())
        """,
    )
    plain = ran([*PYTHON, script])
    ended = ran([*RUN, "7MiB", "--report", tmp_path / "run-{rank}.json", script])
    sums = [next(line for line in run.out.splitlines() if line.startswith("sum ")) for run in (plain, ended)]
    assert sums[0] == sums[1]
    for number in range(2):
        report = json.loads((tmp_path / f"run-0-{number}.json").read_text())
        assert report["recomputed"] > 0 and report["peak"] <= report["budget"]


def test_processes_that_such_a_process_starts_have_budgets_too(tmp_path: Path) -> None:
    script = program(tmp_path, STARTS_PROCESSES)
    plain = ran_warm([*PYTHON, script, "fork"])
    ended = ran_warm([*RUN, "1200KiB", script, "nested"])
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == sorted(plain.out.splitlines())
    assert ended.err.count("remat: peak") == 4


def test_a_process_without_a_budget_is_told_of_once(tmp_path: Path) -> None:
    script = program(tmp_path, STARTS_PROCESSES)
    plain = ran_warm([*PYTHON, script, "fork"])
    ended = ran_warm([*RUN, "1200KiB", script, "by itself"])
    assert (ended.code, ended.out.splitlines()) == (0, sorted(plain.out.splitlines())), ended.err
    assert ended.err.count("remat: train runs without a budget") == 1
    assert ended.err.count("remat: peak") == 1


def test_workers_of_a_data_loader_and_copies_of_models_say_nothing(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import copy, torch
        from torch.utils.data import DataLoader, TensorDataset

        if __name__ == "__main__":  # workers that are not forked, as by default from Python 3.14 on, load this again
            torch.manual_seed(0)
            print(copy.deepcopy(torch.nn.BatchNorm2d(64)).running_var.sum().item())
            data = TensorDataset(torch.randn(64, 3, 64, 64))
            for _ in range(2):
                batches = DataLoader(data, batch_size=16, num_workers=2)
                print(sum(float(images.double().sum()) for (images,) in batches).hex())
        """,
    )
    plain, ended = ran_warm([*PYTHON, script]), ran_warm([*RUN, "1GiB", script])
    assert (ended.code, ended.out) == (0, plain.out), ended.err
    assert "unknown size" not in ended.err and ended.err.count("remat: peak") == 1


@pytest.mark.parametrize("method", ["fork", "by itself"])
def test_measuring_tells_of_processes_that_are_not_measured(tmp_path: Path, method: str) -> None:
    script = program(tmp_path, STARTS_PROCESSES)
    ended = ran_warm([*REMAT, "measure", script, method])
    assert ended.err.count("remat: train is not measured, in a process that the program starts for it") == 1, ended.err


def on_a_terminal(command: list[str | Path], log: str | None, until: bytes) -> str:
    """The output of a command on a terminal. Its standard input ends once this was seen."""
    ours, theirs = pty.openpty()
    told = environment()
    told.pop("REMAT_LOG", None)
    if log is not None:
        told["REMAT_LOG"] = log
    words, nowhere = [str(part) for part in command], subprocess.DEVNULL
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=nowhere, stderr=theirs, env=told) as process:
        os.close(theirs)
        assert process.stdin is not None
        seen = b""
        while True:
            if until in seen:
                process.stdin.close()
            try:
                part = os.read(ours, 4096)
            except OSError:
                break  # Linux says so at the end
            if not part:
                break
            seen += part
    os.close(ours)
    assert process.returncode == 0, seen
    return seen.decode(errors="replace")


@pytest.mark.parametrize("log", [None, "report", "off"])
def test_a_line_tells_of_the_run_on_a_terminal(tmp_path: Path, log: str | None) -> None:
    script = program(
        tmp_path,
        """
        import sys, torch
        x = torch.ones(100).add(1)
        print("here", file=sys.stderr, flush=True)
        sys.stdin.read()
        x.add(1)
        """,
    )
    seen = on_a_terminal([*RUN, "1GiB", script], log, b" in use, " if log is None else b"here")
    assert ("\r\x1b[Kremat: " in seen and " in use, " in seen) == (log is None), seen
    assert ("remat: peak" in seen) == (log != "off"), seen


def gradients_of_rank(rank: int) -> list[torch.Tensor]:
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    weights = [(torch.randn(64, 64) / 8).requires_grad_() for _ in range(12)]
    hidden = torch.randn(512, 64)
    for weight in weights:
        hidden = (hidden @ weight).tanh()
    hidden.square().mean().backward()  # type: ignore[no-untyped-call]
    return [weight.grad for weight in weights if weight.grad is not None]


RANK = f"""
import os, torch, torch.distributed as dist

{inspect.getsource(gradients_of_rank)}
dist.init_process_group("gloo")
gradients = gradients_of_rank(dist.get_rank())
for gradient in gradients:
    dist.all_reduce(gradient)
total = sum(gradient.double().sum() for gradient in gradients)
with open(os.environ["OUT"] + f"/sum-{{dist.get_rank()}}", "w") as file:
    file.write(total.item().hex())
dist.destroy_process_group()
"""


def test_each_process_has_its_own_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = program(tmp_path, RANK)
    monkeypatch.setenv("OUT", str(tmp_path))
    pairs = zip(gradients_of_rank(0), gradients_of_rank(1), strict=True)
    expected = sum(float((first + second).double().sum()) for first, second in pairs).hex()
    report = tmp_path / "run-{rank}.json"
    ended = ran([*RUN, "1900KiB", "--device", "cpu", "--nproc", "2", "--report", report, script])
    assert ended.code == 0, ended.err
    for rank in range(2):
        assert (tmp_path / f"sum-{rank}").read_text() == expected
        told = json.loads((tmp_path / f"run-{rank}.json").read_text())
        assert told["peak"] <= told["budget"] == 1900 << 10
        assert told["evictions"] > 0


def test_the_last_number_of_processes_holds_and_the_programs_own_stays(tmp_path: Path) -> None:
    script = program(tmp_path, "import os, sys, torch; print(os.environ['WORLD_SIZE'], sys.argv[1:])")
    words = ["--nproc", "2", "--device", "cpu", "--nproc=1", script, "--nproc", "3"]
    ended = ran([*RUN, "1GiB", *words])
    assert (ended.code, ended.out) == (0, "1 ['--nproc', '3']\n"), ended.err


def test_a_run_that_thrashes_says_so_once(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import torch, warnings
        x = torch.ones(256, 256, requires_grad=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            more = 0
            while more < 3:
                hidden = x
                for _ in range(150):
                    hidden = hidden.tanh()
                hidden.sum().backward()
                x.grad = None
                more += bool(told)
        print(*(warning.message for warning in told), sep="\\n")
        """,
    )
    ended = ran_warm([*RUN, "3MiB", "--policy", "lru", "--device", "cpu", script])
    assert ended.code == 0, ended.err
    (line,) = ended.out.splitlines()
    assert "recomputing and deciding took" in line
    assert "within a budget of 3.00 MiB" in line
    assert "holds up to 38." in line
    assert "for example 20." in line


def test_an_interrupt_during_an_op_that_python_sees_is_not_lost(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import signal, sys, torch, remat

        class Came(BaseException):
            pass

        def unraisable(told):
            # Python itself drops what a handler raises amid an object's end.
            global dropped
            dropped += told.exc_type is Came

        def handler(*_):
            global fired
            fired = True
            raise Came

        sys.unraisablehook = unraisable
        signal.signal(signal.SIGALRM, handler)
        torch.set_num_threads(1)
        lost, dropped, size = 0, 0, 300
        with remat.budget("4GiB"):
            modes = torch._C._len_torch_dispatch_stack()
            for number in range(100):
                fired = False
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.01 + number * 0.0005)
                    while not fired:
                        size += 1  # a new form, which Python sees some times
                        x = torch.ones(size, 300)
                        for _ in range(5):
                            x.exp()
                    lost += 1
                except Came:
                    pass
                assert torch._C._len_torch_dispatch_stack() == modes, number
        print("lost", lost - dropped)
        """,
    )
    ended = ran_warm([*PYTHON, script])
    assert (ended.code, ended.out) == (0, "lost 0\n"), ended.err


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_pauses_amid_an_op_tell_no_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    """One op in so many is timed, so a pause in it would count for many times the run."""
    monkeypatch.setenv("REMAT_DISPATCH", "native")
    with remat.budget("1GiB") as run:
        torch.ones(3).sin()
        counters = run._mode.stats
        monkeypatch.setattr(run._mode, "stats", lambda: {**counters(), "seconds": 2.0, "watch_seconds": 9.0})
        stats = run.stats()
    assert stats.watch_seconds is not None and 1 < stats.watch_seconds <= 2
    assert stats.slowdown == pytest.approx(1000)
