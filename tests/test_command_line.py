"""`remat run` is the script's own process: arguments, exit code, signals, tracebacks; the report is ours."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from process import PYTHON, REMAT, Ended, environment, program, ran, ran_warm, signalled
from remat._online.choices import DEFAULT_POLICIES
from sample import one_of_each

RUN = [*REMAT, "run", "--budget"]

TRAINING = """
    import torch
    torch.manual_seed(0)
    weights = [(torch.randn(64, 64) / 8).requires_grad_() for _ in range(12)]
    x = torch.randn(512, 64)
    for step in range(3):
        hidden = x
        for weight in weights:
            hidden = torch.dropout((hidden @ weight).tanh(), 0.1, True)
        loss = hidden.square().mean()
        loss.backward()
        with torch.no_grad():
            for weight in weights:
                weight -= 0.1 * weight.grad
                weight.grad = None
        print(loss.item().hex(), flush=True)
"""


def both(script: Path, *arguments: str, given: str | None = None) -> tuple[Ended, Ended]:
    """The same script by plain Python and inside an ample budget."""
    return ran([*PYTHON, script, *arguments], given), ran([*RUN, "1GiB", script, *arguments], given)


def test_losses_and_report(tmp_path: Path) -> None:
    script = program(tmp_path, TRAINING)
    plain, budgeted = (
        ran_warm([*PYTHON, script]),
        ran_warm([*RUN, "3MiB", "--policy", "dtr-eq", "--device", "cpu", script]),
    )
    assert budgeted.code == 0, budgeted.err
    assert budgeted.out == plain.out
    report = "\n".join(budgeted.error_lines).lower()
    for word in ("peak", "evict", "recomput", "decid"):
        assert word in report, report
    assert re.search(r"3(\.0+)? ?mib", report), report
    assert re.search(r"\d+(\.\d+)? ?%", report), report


SCRIPTS = {
    "arguments": """
        import json, os, sys
        print(json.dumps([sys.argv, __name__, __file__, sys.path[0], os.getcwd(), sys.stdin.read()]))
        assert sys.modules["__main__"].__dict__ is globals()
        """,
    "exit code": "import sys; print('leaving'); sys.exit(3)",
    "exit message": "import sys; sys.exit('no data')",
    "exit inside a function": """
        import atexit
        atexit.register(lambda: print("at exit"))
        def leave():
            raise SystemExit(5)
        leave()
        """,
    "exception": """
        import torch
        def inner(x):
            return x / 0
        def outer():
            inner(len(torch.ones(3)))
        outer()
        """,
    "chained exception": """
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("boom") from error
        """,
    "torch error": """
        import torch
        torch.ones(2, 3) @ torch.ones(2, 3)
        """,
    "syntax error": "print('never')\ndef (:\n",
    "killed by itself": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "raises interrupt": "raise KeyboardInterrupt",
    "imports a neighbour": "import neighbour; print(neighbour.value)",
    "pickles its own class": """
        import pickle
        class Own: value = 4
        print(pickle.loads(pickle.dumps(Own())).value)
        """,
    "never uses torch": "print('hello')",
    "no future import": "def own(x: int) -> str: ...\nprint(own.__annotations__, type(__builtins__))",
}


def traceback_of(ended: Ended) -> list[str]:
    """From the first traceback (or the first line of a syntax error) to the exception's own line."""
    lines = [line for line in ended.error_lines if not set(line.strip()) <= {"^", "~"}]
    starts = [n for n, line in enumerate(lines) if line.startswith(("Traceback", '  File "'))]
    ends = [n for n, line in enumerate(lines) if re.match(r"^[A-Za-z.]*(Error|Interrupt|Exception)\b", line)]
    return lines[starts[0] : ends[-1] + 1] if starts and ends else []


ALSO_THERE = (
    "exit message",
    "exit inside a function",
    "exception",
    "syntax error",
    "raises interrupt",
    "never uses torch",
    "imports a neighbour",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in ALSO_THERE else []) for name in SCRIPTS]
)
def test_script_is_its_own_process(tmp_path: Path, name: str) -> None:
    program(tmp_path, "value = 7", "neighbour.py")
    script = program(tmp_path, SCRIPTS[name])
    plain, budgeted = both(script, "--budget", "x", "-v", "two words", given="some input")
    assert budgeted.code == plain.code, budgeted.err
    assert budgeted.out == plain.out
    assert traceback_of(budgeted) == traceback_of(plain)
    assert "remat" not in "\n".join(traceback_of(budgeted)).replace(str(tmp_path), "")
    if name == "arguments":
        assert json.loads(budgeted.out)[1] == "__main__"


def test_a_link_to_a_script_runs_in_the_folder_of_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    program(tmp_path / "own", "value = 7", "neighbour.py")
    program(tmp_path / "own", "import neighbour, sys; print(sys.argv, sys.path[0], __file__)")
    (tmp_path / "link.py").symlink_to("own/script.py")
    monkeypatch.chdir(tmp_path)
    plain, budgeted = both(Path("link.py"), "two")
    assert (budgeted.code, budgeted.out) == (0, plain.out), budgeted.err
    assert f"'{tmp_path / 'own'}'" not in plain.out and f"{tmp_path / 'own'} {tmp_path / 'link.py'}" in plain.out


@pytest.mark.parametrize("number, handled", one_of_each([signal.SIGTERM, signal.SIGINT], [False, True]))
def test_signals_are_the_scripts_own(tmp_path: Path, number: signal.Signals, handled: bool) -> None:
    handler = """
        import signal, sys
        def leave(number, frame):
            print("handled", number, float(x.sum()) == float(x.sum()))
            sys.exit(40)
        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGINT, leave)
        """
    script = program(tmp_path, "import torch, time\nx = torch.ones(100)\nprint('ready', flush=True)\n")
    waiting = "while True:\n    x = x * 1.0\n    time.sleep(0.001)\n"
    source = script.read_text()
    if handled:
        program(tmp_path, handler, "handler.py")
        source = source.replace("print(", (tmp_path / "handler.py").read_text() + "print(")
    script.write_text(source + waiting)
    plain = signalled([*PYTHON, script], number, "ready")
    budgeted = signalled([*RUN, "1GiB", script], number, "ready")
    assert budgeted.code == plain.code == (40 if handled else -number)
    assert budgeted.out == plain.out
    if number is signal.SIGINT and not handled:
        assert any(line.startswith("KeyboardInterrupt") for line in budgeted.error_lines)


def test_interrupted_budget_leaves_tensors_usable(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import torch, remat
        weights = torch.randn(16, 64, 64) / 8
        x = torch.randn(512, 64)
        def chain(kept):
            del kept[:]
            hidden = x
            for weight in weights:
                hidden = (hidden @ weight).tanh()
                kept.append(hidden)
        expected, kept = [], []
        chain(expected)
        sums = [t.sum() for t in expected]
        del expected[:]
        try:
            with remat.budget("1400KiB") as run:
                chain(kept)
                print("ready", flush=True)
                while True:
                    chain(kept)
                    assert run.stats().evictions > 0
        except KeyboardInterrupt:
            pass
        assert all(torch.equal(t.sum(), s) for t, s in zip(kept, sums))
        print("usable")
        """,
    )
    ended = signalled([*PYTHON, script], signal.SIGINT, "ready")
    assert (ended.code, ended.out) == (0, "ready\nusable\n"), ended.err


def test_interrupt_ends_a_simulation() -> None:
    trace = Path(__file__).parent.parent / "traces" / "treelstm.trace.zst"
    work = [*REMAT, "simulate", trace, "--json", "--jobs", "1", "--policy", "dtr-eq", "--ratio", "0.9,0.3,0.2,0.15,0.1"]
    with subprocess.Popen([str(part) for part in work], stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ratio"] == 0.9
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == -signal.SIGINT


def test_policies_are_listed() -> None:
    import remat

    ended = ran([*REMAT, "policies"])
    assert ended.code == 0
    for policy in remat.policies():
        assert policy in ended.out
    for pool, used in (("fungible", "(default in training)"), ("arena", "(default in training in an arena)")):
        (line,) = (line for line in ended.out.splitlines() if line.endswith(used))
        assert line.split()[0] == DEFAULT_POLICIES[pool]
    for policy in ("dtr", "dtr-eq", "dtr-local", "lru", "size", "msps", "random", "e-star"):
        assert policy in remat.policies()


def test_trace_is_valid_and_converts(tmp_path: Path) -> None:
    script, trace, log = program(tmp_path, TRAINING), tmp_path / "step.trace.zst", tmp_path / "step.log"
    recorded = ran_warm([*RUN, "3MiB", "--trace", trace, script])
    assert recorded.code == 0, recorded.err
    assert trace.stat().st_size > 0
    for command in ("check", "info"):
        ended = ran([*REMAT, "trace", command, trace])
        assert ended.code == 0, ended.err
        if command == "info":
            assert "cpu" in ended.out
    ended = ran([*REMAT, "trace", "convert", "--to", "dtr", trace, log])
    assert ended.code == 0, ended.err
    instructions = [json.loads(line)["INSTRUCTION"] for line in log.read_text().splitlines() if line.strip()]
    assert {"CALL", "MEMORY", "RELEASE"} <= set(instructions)
    assert ran([*REMAT, "trace", "check", log]).code == 0


def test_trace_by_the_context(tmp_path: Path) -> None:
    import remat
    import torch

    trace = tmp_path / "context.trace"
    with remat.budget("64MiB", trace=str(trace)):
        (torch.ones(64, 64) @ torch.ones(64, 64)).relu_().sum()
    assert ran([*REMAT, "trace", "check", trace]).code == 0


def test_a_trace_of_plentiful_memory_is_simulated_in_little(tmp_path: Path) -> None:
    import remat
    import torch

    trace = tmp_path / "chain.trace"
    with remat.budget("16GiB", trace=str(trace)):
        kept = [torch.ones(512)]
        for _ in range(60):
            kept.append(kept[-1] * 1.5)
    info = ran([*REMAT, "trace", "info", trace])
    assert "(0 cannot be replayed)" in info.out
    ended = ran([*REMAT, "simulate", trace, "--json", "--policy", "dtr-anc", "--ratio", "0.5"])
    (row,) = map(json.loads, ended.out.splitlines())
    assert row["status"] == "ok" and row["evictions"] > 20
