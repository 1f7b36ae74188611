"""Bad input gives one line that says what to do, a non-zero exit, and loses nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import sysconfig
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from native import needed
from process import PYTHON, REMAT, Ended, program, ran, ran_warm
from remat._torch_internals import eager
from true_peak import room

BAD_BUDGETS: dict[str, Any] = {
    "zero": 0,
    "zero bytes": "0B",
    "zero GiB": "0GiB",
    "negative": -5,
    "negative GiB": "-1GiB",
    "potatoes": "12 potatoes",
    "empty": "",
    "unit only": "GiB",
    "not a number": "nanGiB",
    "infinite": "infGiB",
    "digits of nowhere": "1e999GiB",
    "beyond 64 bits": 2**70,
    "beyond 64 bits in words": "99999999999999999999TiB",
    "unknown device": {"potato:0": "1GiB"},
    "one device by two names": {"cpu": "1GiB", "cpu:0": "16MiB"},
    "one device by a name and itself": {"cpu": "1GiB", torch.device("cpu"): "16MiB"},
}


def is_one_line(ended: Ended) -> None:
    assert ended.code > 0, ended
    assert len(ended.error_lines) == 1, ended.err
    assert "panicked" not in ended.err


@pytest.mark.parametrize("name", BAD_BUDGETS)
def test_bad_budget(name: str) -> None:
    with pytest.raises(ValueError) as refused, remat.budget(BAD_BUDGETS[name]):
        pass
    assert "\n" not in str(refused.value)
    with remat.budget(room(2**20)):  # nothing is left half open
        torch.ones(3) + 1


@pytest.mark.parametrize("asked", [[], 1.5j, object()])
def test_budget_of_another_type(asked: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as refused, remat.budget(asked):
        pass
    assert "\n" not in str(refused.value)


def physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize("asked", [physical_memory() + 2**30, "900TiB"])
def test_budget_above_physical_memory(asked: Any) -> None:
    with (
        pytest.raises(ValueError, match=r"(?i)physical memory") as refused,
        remat.budget(asked, device="cpu"),
    ):
        pass
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "seen"),
    [("1MiB", 2**20), ("1.5 MiB", 3 * 2**19), ("2MB", 2 * 10**6), ("3000000", 3 * 10**6), (2**21, 2**21)],
)
def test_good_budgets(asked: Any, seen: int) -> None:
    extra = room(0)
    if extra > 2**19:
        pytest.skip("too much is resident for a small budget")
    with remat.budget(asked) as run:
        assert run.stats().budget == seen


@pytest.mark.parametrize("share", ["x", None, float("nan"), float("inf"), -5])
def test_a_share_of_a_span_is_a_number_from_0(share: Any) -> None:
    measured = remat.measure(lambda: torch.ones(1000).exp())
    with pytest.raises(ValueError, match=r"^fraction\(.*\): expected a number from 0, such as 0\.5$"):
        measured.fraction(share)


def test_unknown_policy_lists_the_known() -> None:
    with pytest.raises(ValueError) as refused, remat.budget("1GiB", policy="clairvoyant"):
        pass
    message = str(refused.value)
    assert "\n" not in message
    assert "clairvoyant" in message
    assert all(policy in message for policy in remat.policies())


def test_python_without_a_gil_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = sysconfig.get_config_var

    def free_threaded(name: str) -> Any:
        return 1 if name == "Py_GIL_DISABLED" else known(name)

    monkeypatch.setattr(sysconfig, "get_config_var", free_threaded)
    refusal = r"^Python 3\.\S+ is a free-threaded build.*GIL: use a build with it$"
    with pytest.raises(remat.RematError, match=refusal), remat.budget("64MiB"):
        pytest.fail("the budget was entered")


def test_budget_below_the_parameters() -> None:
    model = torch.nn.Linear(512, 512)
    before = model.weight.detach().clone()
    with pytest.raises((remat.RematError, ValueError)) as refused, remat.budget("512KiB"):
        model(torch.ones(4, 512))
    assert "\n" not in str(refused.value)
    assert torch.equal(before, model.weight)
    with remat.budget(room(2**22)):
        model(torch.ones(4, 512)).sum().backward()
    assert model.weight.grad is not None and model.weight.grad.shape == before.shape


COMMANDS: dict[str, list[str]] = {
    "zero": ["run", "--budget", "0", "SCRIPT"],
    "negative": ["run", "--budget=-1GiB", "SCRIPT"],
    "potatoes": ["run", "--budget", "12 potatoes", "SCRIPT"],
    "above physical memory": ["run", "--budget", "900TiB", "SCRIPT"],
    "unknown policy": ["run", "--budget", "1GiB", "--policy", "clairvoyant", "SCRIPT"],
    "unknown device": ["run", "--budget", "1GiB", "--device", "potato:0", "SCRIPT"],
    "missing script": ["run", "--budget", "1GiB", "no-such-script.py"],
    "script is a folder": ["run", "--budget", "1GiB", "FOLDER"],
    "trace into nowhere": ["run", "--budget", "1GiB", "--trace", "/no/such/folder/x.trace", "SCRIPT"],
    "no such trace": ["trace", "check", "no-such.trace"],
    "trace is a folder": ["trace", "info", "FOLDER"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_command(tmp_path: Path, name: str) -> None:
    script = program(tmp_path, "print('ran')")
    places = {"SCRIPT": str(script), "FOLDER": str(tmp_path)}
    ended = ran_warm([*REMAT, *(places.get(part, part) for part in COMMANDS[name])])
    is_one_line(ended)
    assert "ran" not in ended.out
    if name == "above physical memory":
        assert "physical memory" in ended.err.lower()
    if name == "unknown policy":
        assert "dtr-eq" in ended.err and "clairvoyant" in ended.err


@pytest.mark.parametrize("name", ["negative", "potatoes", "unknown policy", "missing script", "script is a folder"])
def test_arguments_are_refused_before_torch_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script = program(tmp_path, "print('ran')")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is loaded')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    places = {"SCRIPT": str(script), "FOLDER": str(tmp_path)}
    ended = ran([*REMAT, *(places.get(part, part) for part in COMMANDS[name])])
    is_one_line(ended)
    assert "torch is loaded" not in ended.err


def test_script_below_its_parameters(tmp_path: Path) -> None:
    script = program(tmp_path, "import torch\nmodel = torch.nn.Linear(2048, 2048)\nprint('ran')\n")
    ended = ran_warm([*REMAT, "run", "--budget", "1MiB", script])
    assert ended.code > 0
    assert "ran" not in ended.out
    assert any("BudgetError" in line for line in ended.error_lines)
    assert "panicked" not in ended.err


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "zeros": bytes(4096),
    "noise": bytes((n * 197 + n // 7 * 31) % 256 for n in range(5000)),
    "json of another kind": b'{"hello": [1, 2, 3]}\n' * 10,
    "deep json": b"[" * 200_000,
    "long line": b'{"INSTRUCTION": "' + b"A" * 5_000_000,
    "bad utf-8": b'{"INSTRUCTION": "CALL", "NAME": "\xff\xfe"}\n',
    "huge number": b'{"INSTRUCTION": "MEMORY", "NAME": "x", "MEMORY": "' + b"9" * 400 + b'"}\n',
    "release of nothing": b'{"INSTRUCTION": "RELEASE", "NAME": "x1"}\n',
    "zstd of nothing": b"\x28\xb5\x2f\xfd" + bytes(100),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_trace(tmp_path: Path, name: str) -> None:
    trace = tmp_path / "hostile.trace"
    trace.write_bytes(HOSTILE[name])
    is_one_line(ran([*REMAT, "trace", "check", trace]))


def test_endless_trace() -> None:
    is_one_line(ran([*REMAT, "trace", "check", "/dev/zero"]))


def test_damaged_traces(tmp_path: Path) -> None:
    """A recorded trace cut short is refused; with single bytes changed, it is read or refused."""
    whole, damaged = tmp_path / "whole.trace", tmp_path / "damaged.trace"
    with remat.budget(room(2**22), trace=str(whole)):
        x = torch.ones(64, 64)
        for _ in range(5):
            x = (x @ x).tanh_()
    good = whole.read_bytes()
    for length in (1, len(good) // 3, len(good) * 3 // 4):
        damaged.write_bytes(good[:length])
        is_one_line(ran([*REMAT, "trace", "check", damaged]))
    for place in (0, len(good) // 2, len(good) - 2):
        damaged.write_bytes(good[:place] + bytes([good[place] ^ 0x15]) + good[place + 1 :])
        ended = ran([*REMAT, "trace", "check", damaged])
        if ended.code:
            is_one_line(ended)


@pytest.mark.parametrize("ops", [3, 3000])
def test_a_trace_that_finds_no_room_names_its_file(ops: int) -> None:
    """Whether an op was told so first, or nothing was written before the end."""
    with (
        pytest.raises(OSError, match="cannot write the trace '/dev/full': No space left on device; name") as failed,
        remat.budget(room(2**20), trace="/dev/full"),
    ):
        for _ in range(ops):
            torch.ones(3)
    assert failed.value.errno == errno.ENOSPC
    assert isinstance(failed.value.__context__, OSError) == (ops == 3000)
    with remat.budget(room(2**20)):  # nothing is left half open
        torch.ones(3) + 1


@pytest.mark.parametrize("way", [pytest.param("native", marks=needed), "python"])
def test_an_op_that_tells_of_a_full_disk_has_run(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """It tells so once, in one line, and values from before and after it are replayed."""
    monkeypatch.setenv("REMAT_DISPATCH", way)
    x = torch.arange(2.0**16)
    told = []
    with (
        pytest.raises(OSError, match="cannot write the trace '/dev/full'"),
        remat.budget(room(2**20), trace="/dev/full"),
    ):
        y = x * 2
        tripled, small = y * 3, x[:9] * 1
        kept = [x + k for k in range(4)]  # evicts
        for tensor in [small] * 500 + [y]:
            try:
                tensor.add_(1)
            except OSError as error:
                told.append(str(error))
    assert torch.equal(tripled, x * 6)
    assert torch.equal(y, x * 2 + 1)
    assert torch.equal(small, x[:9] + 500)
    assert all(torch.equal(tensor, x + k) for k, tensor in enumerate(kept))
    assert told == ["cannot write the trace /dev/full: No space left on device (os error 28)"]


@pytest.mark.parametrize("op", ["in place", "filling", "making"])
def test_what_an_op_made_as_the_disk_was_full_is_replayed(op: str) -> None:
    """Each op may be the one that meets the error."""
    x = torch.arange(2.0**16)
    made, evictions = 0, 0
    with (
        pytest.raises(OSError, match="cannot write the trace '/dev/full'"),
        remat.budget(room(2**20), trace="/dev/full") as run,
    ):
        value = x * 2
        with contextlib.suppress(OSError):
            while True:
                made += 1
                if op == "in place":
                    value.add_(1)
                elif op == "filling":
                    value = torch.empty(2**16)
                    value.copy_(x)
                else:
                    value = value + 1
        kept = []
        for k in range(8):
            with contextlib.suppress(OSError):
                kept.append(x + k)
        evictions = run.stats().evictions
    assert evictions > 0
    expected = {"in place": x * 2 + made, "filling": x, "making": x * 2 + made - 1}[op]
    assert torch.equal(value, expected)
    del kept


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="its recurrent layers have a workspace")
def test_results_of_an_op_that_failed_are_released_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those too that it was to return and did not."""
    predict, layer, trace = eager.predict, torch.nn.LSTM(64, 64), tmp_path / "step.trace"

    def predicted(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        def told(_workspace: int) -> None:
            raise KeyError("told of its workspace")

        prediction = predict(overload, args, kwargs)
        return prediction._replace(told=told) if "rnn_layer" in str(overload) else prediction

    monkeypatch.setattr(eager, "predict", predicted)
    with torch.no_grad(), remat.budget(room(2**24), plan="off", trace=str(trace)):
        with pytest.raises(KeyError, match="told of its workspace"):
            layer(torch.ones(16, 8, 64))
        torch.ones(4) + 1
    assert ran([*REMAT, "trace", "check", trace]).code == 0


@pytest.mark.parametrize("freed", ["input", "output", "another"])
def test_extension_op_that_frees_its_own_storage(tmp_path: Path, freed: str) -> None:
    script = program(
        tmp_path,
        f"""
        import torch, remat
        another = []

        @torch.library.custom_op("rematcheck::frees", mutates_args=())
        def frees(x: torch.Tensor) -> torch.Tensor:
            out = x.clone()
            {{"input": x, "output": out, "another": another[0]}}[{freed!r}].untyped_storage().resize_(0)
            return out

        x = torch.arange(65536.0)
        kept = []
        try:
            with remat.budget("2MiB") as run:
                y = x * 2
                another.append(x * 3)
                kept += [y + n for n in range(4)]
                out = frees(y)
                for n in range(20):  # pressure
                    z = x + n
                print(float(out.sum()), float(y.sum()), float(another[0].sum()))
        except (remat.RematError, RuntimeError) as error:
            print("refused", "\\n" in str(error).strip(), type(error).__name__)
        assert all(torch.equal(t, x * 2 + n) for n, t in enumerate(kept))
        print("nothing lost")
        """,
    )
    ended = ran_warm([*PYTHON, script])
    assert ended.code == 0, (ended.code, ended.err)
    assert ended.out.endswith("nothing lost\n")
    assert "panicked" not in ended.err
    first = ended.out.splitlines()[0]
    refusals = ("refused False RematError", "refused False RuntimeError")
    assert first in refusals or first.startswith("4294901760.0 "), first


def test_a_budget_is_not_raised_above_the_memory_that_there_is() -> None:
    with remat.budget("64MiB") as run, pytest.raises(ValueError, match="above the physical memory of cpu"):
        run.set_budget("1024TiB")


def test_the_budget_of_a_run_that_has_ended_is_not_changed() -> None:
    with remat.budget("64MiB") as ended:
        ended.set_budget("32MiB")
    for active in (contextlib.nullcontext(), remat.budget("64MiB")):
        with active, pytest.raises(remat.RematError, match=r"budget '16MiB': the run has ended.*enter another one"):
            ended.set_budget("16MiB")
    assert ended.stats().budget == 32 << 20


def test_functions_whose_body_runs_later_are_not_decorated() -> None:
    """The budget would end as the call returns, before anything runs."""

    async def coroutine() -> None: ...

    async def generator_of_coroutines() -> AsyncIterator[int]:
        yield 1

    def generator() -> Iterator[int]:
        yield 1

    for function in (coroutine, generator_of_coroutines, generator):
        with pytest.raises(ValueError, match=f"cannot decorate .*{function.__name__}.*enter the budget in the body"):
            remat.budget("64MiB")(function)


def _one(*sizes: int) -> torch.Tensor:
    """A tensor of these sizes, over one number."""
    return torch.zeros(1).expand(*sizes)


IMPOSSIBLE = {
    "negative": lambda: torch.empty(-1),
    "ones": lambda: torch.ones(-3),
    "of a tensor": lambda: torch.zeros(2).new_zeros((-4,)),
    "overflow": lambda: _one(2**62) + 1,
    "padding": lambda: torch.constant_pad_nd(torch.zeros(3), (2**62, 2**62)),
    "repeated": lambda: torch.repeat_interleave(torch.tensor([2**62])),
    "counts": lambda: torch.bincount(torch.tensor([1]), minlength=2**61),
    "highest": lambda: torch.bincount(torch.tensor([2**63 - 1])),
    "resized": lambda: torch.empty(4).untyped_storage().resize_(-4),
    "resized by text": lambda: torch.empty(4).untyped_storage().resize_("a"),  # type: ignore[arg-type]
    "resized far": lambda: torch.empty(4).untyped_storage().resize_(2**64),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_sizes_that_no_tensor_has_are_refused_as_without_a_budget(name: str) -> None:
    def told() -> tuple[type, str]:
        with pytest.raises((RuntimeError, ValueError)) as raised:
            IMPOSSIBLE[name]()
        return raised.type, str(raised.value).splitlines()[0]

    plain = told()
    with remat.budget("64MiB"):
        for n in (3, 4):  # calls of the same families with sizes that make sense
            kept = torch.empty(n), torch.ones(n), torch.zeros(2).new_zeros((n,)), _one(n) + 1
            torch.constant_pad_nd(torch.zeros(3), (n, n))
        assert (told(), told()) == (plain, plain)
        assert float(kept[1].sum()) == 4


@pytest.mark.parametrize("tensors", [7, 8, 9])
def test_results_that_are_only_together_beyond_all_numbers_are_refused(tensors: int) -> None:
    with remat.budget("64MiB") as run:
        values = [_one(2**59) for _ in range(tensors)]
        with pytest.raises(remat.RematError):
            torch._foreach_add(values, 1)
        assert float((torch.ones(1024) + 1).sum()) == 2048
        assert run.stats().peak < 1 << 20


@pytest.mark.parametrize("method", ["stats", "set_budget"])
def test_run_is_not_asked_from_within_an_op(method: str) -> None:
    answers: list[object] = []

    @torch.library.custom_op(f"rematcheck::asks_{method}", mutates_args=())
    def asks(x: torch.Tensor) -> torch.Tensor:
        try:
            answers.append(run.stats() if method == "stats" else run.set_budget("32MiB"))
        except RuntimeError as error:
            answers.append(error)
        return x + 1

    with remat.budget("64MiB") as run:
        assert float(asks(torch.zeros(1024)).sum()) == 1024
        before = run.stats().budget
        run.set_budget("32MiB")
        assert (before, run.stats().budget) == (64 << 20, 32 << 20)
    (answer,) = answers
    assert isinstance(answer, remat.RematError)
    assert f"Run.{method}() was called from within an op" in str(answer)
    assert "before or after the op" in str(answer)


@pytest.mark.parametrize("kind", [torch.cuda.CUDAGraph, torch.xpu.XPUGraph])
def test_capturing_a_graph_inside_a_budget_is_refused(kind: type) -> None:
    """Before anything of the device is asked, so that no device is needed here."""
    before = vars(kind)["capture_begin"]
    with (
        remat.budget("64MiB"),
        pytest.raises(remat.RematError, match="capture_begin inside of a budget"),
    ):
        kind.capture_begin(object())  # type: ignore[attr-defined]
    assert vars(kind)["capture_begin"] is before


def restarted(name: str) -> list[int]:
    """The budgets in which an MLP with Adam is started, the first one far too small, until it runs."""
    budgets = [2 << 20]
    while True:
        torch.manual_seed(0)
        layers = [layer for _ in range(5) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        try:
            with remat.budget(budgets[-1], plan="off", costs="bytes"):
                for _ in range(3):
                    optimizer.zero_grad()
                    model(torch.randn(512, 256)).square().mean().backward()
                    optimizer.step()
        except remat.BudgetError as error:
            budgets.append(getattr(error, name))
            assert budgets[-1] > budgets[-2]
            continue
        return budgets


def test_few_restarts_lead_to_a_budget_that_works() -> None:
    needed, suggested = restarted("smallest"), restarted("suggested")
    assert len(suggested) <= 7 and 2 * len(suggested) <= len(needed)
    assert suggested[-1] <= 1.35 * needed[-1]
