"""Touching an evicted tensor from anywhere waits, rematerializes or raises; it never kills the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from native import WATCHING, needed, needs
from process import PYTHON, program, ran_warm
from remat._torch_internals import eager

#: Layers, and the sum of what each makes. It stands in programs where they say `CHAIN`.
CHAIN = """torch.manual_seed(0)
    weights = torch.randn(16, 64, 64) / 8
    def chain():
        hidden = torch.arange(512 * 64, dtype=torch.float32).view(512, 64).sin()
        kept = []
        for weight in weights:
            hidden = (hidden @ weight).tanh()
            kept.append(hidden)
        return kept
    expected = [float(t.sum()) for t in chain()]
"""

PROGRAM = """
    import sys, threading
    import torch, remat

    torch.set_num_threads(2)
    where, touch = sys.argv[1:]
    TOUCHES = {
        "sum": lambda t: float(t.sum()),
        "in place": lambda t: float(t.mul_(1).sum()),
        "numpy": lambda t: float(torch.tensor(t.numpy().copy()).sum()),
        "list": lambda t: float(torch.tensor(t.tolist()).sum()),
        "item": lambda t: float(t.sum()) + t[5, 5].item() * 0,
        "view": lambda t: float(t.t()[:, ::1].sum() * 0 + t.view(-1).view(512, 64).sum()),
        "pointer": lambda t: float(torch.frombuffer(__import__("ctypes").string_at(t.data_ptr(), t.nbytes),
                                                    dtype=torch.float32).view(512, 64).sum()),
        "print": lambda t: float(t.sum()) + 0 * len(repr(t)),
        "backward": lambda t: (t.detach().requires_grad_().sin().sum().backward(), float(t.sum()))[1],
        "copy": lambda t: float(__import__("copy").deepcopy(t).sum()),
        "clone": lambda t: float(t.clone().sum()),
    }

    CHAIN

    kept, errors, sums = [], [], []
    begin = threading.Event()
    def work():
        begin.wait()
        for tensor in kept:
            try:
                sums.append(TOUCHES[touch](tensor))
            except Exception as error:
                errors.append(type(error).__name__)
                sums.append(None)
    thread = threading.Thread(target=work)
    if where == "before":
        thread.start()
    with remat.budget("1200KiB") as run:
        kept += chain()
        assert run.stats().evictions > 0
        if where in ("before", "inside"):
            begin.set()
            if where == "inside":
                thread.start()
            for _ in range(20):  # this thread goes on evicting meanwhile
                try:
                    chain()
                except remat.BudgetError:
                    pass  # the other thread's arrays and copies take their share
            thread.join()
        if where == "leaving":
            thread.start()
            begin.set()
    if where == "after":
        begin.set()
        work()
    elif where == "leaving":
        thread.join()
    assert all(s is None or s == e for s, e in zip(sums, expected)), (sums, expected)
    assert [float(t.sum()) for t in kept] == expected
    print("ended", len(sums), sorted(set(errors)))
"""


TOUCHES = {
    "before": ("sum", "backward", "numpy", "pointer", "in place"),
    "inside": ("backward", "sum", "list", "item", "copy", "view"),
    "leaving": ("sum", "numpy"),
    "after": ("sum", "print", "numpy"),
}
# The first of each place, with --all every one.
CASES = [
    pytest.param((where, touch), marks=pytest.mark.full if at > 0 else [])
    for where, touches in TOUCHES.items()
    for at, touch in enumerate(touches)
]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_touch_never_crashes(tmp_path: Path, case: tuple[str, str]) -> None:
    where, touch = case
    script = program(tmp_path, PROGRAM.replace("CHAIN", CHAIN))
    ended = ran_warm([*PYTHON, script, where, touch])
    assert ended.code >= 0, f"killed by signal {-ended.code}: {ended.err}"
    assert ended.code == 0, ended.err
    assert ended.out.startswith("ended 16"), ended.out
    if where == "after":
        assert ended.out.strip() == "ended 16 []"


DYING = """
    import sys, threading
    import torch, remat
    from remat import _native

    torch.set_num_threads(1)
    sys.setswitchinterval(2e-6)
    CHAIN
    kept, ended = [], []
    def work():
        # Each backward pass lets go of what it saved in C++, without the GIL.
        for _ in range(20):
            for tensor, total in zip(kept, expected):
                try:
                    tensor.detach().requires_grad_().sin().sum().backward()
                    assert float(tensor.sum()) == total
                except remat.BudgetError:
                    pass  # what the others hold takes its share
        ended.append("well")
    with remat.budget("1500KiB") as run:
        kept += chain()
        assert run.stats().evictions > 0
        print(run.stats().dispatch, _native.is_watched(kept[0].untyped_storage()._cdata))
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            try:
                chain()  # evicts what they made
            except remat.BudgetError:
                pass
    assert ended == ["well", "well"]
    assert [float(t.sum()) for t in kept] == expected
"""


@pytest.mark.parametrize("way", [pytest.param("native", marks=needed), "python"])
def test_storages_die_in_some_threads_while_another_evicts(tmp_path: Path, way: str) -> None:
    """With releases of torch that free a storage twice as its Python object goes with its last owner, it has none."""
    script = program(tmp_path, DYING.replace("CHAIN", CHAIN))
    ended = ran_warm(["env", f"REMAT_DISPATCH={way}", *PYTHON, script])
    assert ended.code == 0, (ended.code, ended.err)
    watched = way == "native" or eager.objects_race()
    assert ended.out.split() == [way, str(watched)]


def test_training_in_a_thread_of_its_own(tmp_path: Path) -> None:
    """The whole context in a thread that is not the main one, while the main one computes too."""
    script = program(
        tmp_path,
        """
        import threading, torch, remat
        from bits import bits, differences
        from scenarios import SCENARIOS
        torch.set_num_threads(2)
        run = SCENARIOS["views_and_slices"].run
        torch.manual_seed(0)
        expected = bits(run())
        found = []
        def work():
            torch.manual_seed(0)
            with remat.budget("3200KiB") as budget:
                result = run()
            found.extend(bits(result))
        thread = threading.Thread(target=work)
        thread.start()
        own = torch.arange(1000.0)
        while thread.is_alive():
            own = own.sin() + own.view(10, 100).t().reshape(-1)
        thread.join()
        assert differences(expected, found) == [], differences(expected, found)
        print("same")
        """,
    )
    ended = ran_warm([*PYTHON, script])
    assert (ended.code, ended.out.strip()) == (0, "same"), ended.err


UNHELD = """
    import ctypes, sys, threading, time
    import torch, remat

    torch.set_num_threads(1)

    @torch.jit.script
    def work(x: torch.Tensor, count: torch.Tensor, rounds: int):
        # Torch takes the GIL itself as it lets go of what has a Python object: these have none.
        y, z, done = x + 0.0, x + 1.0, count[:1]
        for _ in range(rounds):
            z = y * 1.5 - y * 0.5
            done.add_(1.0)
        return z

    x, count = torch.ones(1024), torch.zeros(1024)
    done, switches = ctypes.c_float.from_address(count.data_ptr()), sys.getswitchinterval()
    with remat.budget("1GiB") as run:
        for _ in range(8):
            work(x, count, 8)
        through_python, rounds, early = run.stats().through_python, 5_000, True
        while early:
            done.value = 0.0
            thread = threading.Thread(target=work, args=(x, count, rounds))
            thread.start()
            while done.value < 8:
                pass
            # From here on no other thread gets the GIL until this one gives it back.
            sys.setswitchinterval(1e6)
            early, limit = done.value == rounds, time.monotonic() + 60
            while done.value < rounds and time.monotonic() < limit:
                pass
            finished = done.value == rounds
            sys.setswitchinterval(switches)
            thread.join()
            rounds *= 2
        assert finished, "ops waited for the GIL"
        assert run.stats().through_python == through_python
        assert run.stats().dispatch == "native"
"""


@needed
@needs(WATCHING)
def test_ops_of_known_forms_take_no_gil(tmp_path: Path) -> None:
    """A thread runs ops of known forms to their end while another one keeps the GIL."""
    ended = ran_warm(["env", "REMAT_DISPATCH=native", *PYTHON, program(tmp_path, UNHELD)])
    assert ended.code == 0, ended.err


FORKS = """
    import os, signal, threading
    import remat, torch
    from remat import _native

    torch.set_num_threads(1)
    tensor = torch.ones(400)
    stopped = threading.Event()

    def split():
        while not stopped.is_set():
            torch.tensor_split(tensor, 400)  # so many ops, without the GIL

    with remat.budget("64MiB", plan="off"):
        # Threads that wait for a processor stand anywhere in an op.
        threads = [threading.Thread(target=split, daemon=True) for _ in range(24)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(1000)  # one that hangs is not there for good
                _native.leave_native()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0, status
        stopped.set()
        for thread in threads:
            thread.join()
    print("left")
"""


@needed
def test_a_child_forked_amid_ops_of_other_threads_leaves_the_budget(tmp_path: Path) -> None:
    """Ops take locks for a moment, which nobody would unlock in the child."""
    ended = ran_warm([*PYTHON, program(tmp_path, FORKS)])
    assert (ended.code, ended.out) == (0, "left\n"), ended.err
