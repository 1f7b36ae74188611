"""Freed main memory is kept for the next tensors, and the process holds no more of it than the budget."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
import remat
import torch
from process import program, ran_warm
from remat import _native
from remat._online.caching import _warn_once
from remat._torch_internals.eager import caching
from torch import nn
from true_peak import room

MIB = 2**20

pytestmark = pytest.mark.skipif(os.environ.get("REMAT_CACHING") == "off", reason="torch's own allocator serves")


def served(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory comes from Remat's allocator: freeing it frees as many bytes there."""
    size = tensor.untyped_storage().nbytes()
    before = blocks()
    tensor.untyped_storage().resize_(0)
    return blocks() == before - size


def blocks() -> int:
    """Bytes of all blocks of Remat's allocator."""
    read = _native.read_caching()
    return 0 if read is None else read[0]


def held() -> int:
    """Bytes of pages of Remat's allocator that take memory, and of small blocks that it keeps."""
    read = _native.read_caching()
    return 0 if read is None else read[1]


def come_and_go() -> None:
    """Makes tensors of 24 MiB, and as much again beside them if nothing is let go of."""
    for _ in range(4):
        parts = [torch.ones(MIB) for _ in range(6)]
        joined = torch.ones(6 * MIB)
        del parts, joined


@pytest.mark.parametrize("dispatch", ["native", "python"])
def test_the_process_holds_no_more_than_the_budget(tmp_path: Path, dispatch: str) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from torch import nn

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096

        torch.set_num_threads(1)
        # Widths of many sizes, so that freed blocks do not fit the next ones.
        widths = [8 + 5 * k % 17 for k in range(24)]
        model = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:]))
        images = torch.randn(4, widths[0], 96, 96)
        images[:, :, :16, :16].sum()

        def step(seen):
            x = images
            for layer in model:
                x = layer(x).relu()
                seen.append(resident())
            x.square().mean().backward()
            seen.append(resident())
            model.zero_grad()

        with remat.budget("4GiB") as run:
            step([])
        budget = int(run.stats().peak * 0.6)
        before, seen = resident(), []
        with remat.budget(budget) as run:
            for _ in range(4):
                step(seen)
        stats = run.stats()
        print(budget, stats.reserved, max(seen) - before, stats.recomputed)
        """,
    )
    ended = ran_warm(["env", f"REMAT_DISPATCH={dispatch}", sys.executable, script])
    assert ended.code == 0, ended.err
    budget, reserved, grown, recomputed = map(int, ended.out.split())
    assert recomputed > 0
    assert budget * 0.9 < reserved <= budget + 64 * 4096  # blocks cover parts of pages
    # Python's objects, oneDNN's scratch memory and tensors below 32 KiB are torch's and the C library's.
    assert grown <= budget + 6 * MIB


def test_freed_small_blocks_are_kept_for_tensors_of_their_size() -> None:
    budget = room(64 * MIB)
    before = held()
    with remat.budget(budget):
        first = torch.ones(1000)
        address = first.data_ptr()
        del first
        other = torch.ones(2000)
        again = torch.zeros(1001)  # both and what is kept beside them take 63 times 64 bytes
        assert (again.data_ptr() == address, other.data_ptr() == address) == (True, False)
        assert not again.any()
        kept = held()
        many = [torch.ones(4000) for _ in range(budget // 12 // 16000)]
        assert held() <= kept
        del many
        assert 0 < held() - kept <= budget // 16
        # Where pages need the room, small blocks go back.
        filled = torch.ones(63 * MIB // 4)
        assert held() - before <= 64 * MIB
        del filled
    assert held() == before


def test_torchs_own_allocator_serves_outside_of_budgets() -> None:
    outside = torch.ones(MIB)
    with remat.budget(room(64 * MIB)):
        inside = torch.ones(MIB)
        small = torch.ones(1024)
        reader = inside * 2
    afterwards = torch.ones(MIB)
    assert torch.equal(reader, inside + 1)
    assert [served(tensor) for tensor in (outside, inside, small, reader, afterwards)] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_what_is_kept_goes_back_as_the_budget_ends() -> None:
    with remat.budget(room(64 * MIB)) as run:
        tensor = torch.ones(MIB)
        for _ in range(3):
            tensor = tensor + 1
        kept = held() - blocks()
    assert kept >= 4 * MIB
    pages = -(-blocks() // 4096) * 4096
    assert held() <= pages + 2 * 4096 * 8  # blocks of other tests share pages at their ends
    reserved = run.stats().reserved
    assert reserved is not None and reserved >= 8 * MIB
    assert torch.equal(tensor, torch.full((MIB,), 4.0))


def test_a_tensor_of_an_ended_budget_can_grow() -> None:
    with remat.budget(room(64 * MIB)):
        tensor = torch.ones(MIB // 4)
    tensor.resize_(MIB)
    assert torch.equal(tensor[: MIB // 4], torch.ones(MIB // 4))
    assert not served(tensor)


def test_tensors_that_existed_before_leave_less_to_keep() -> None:
    before = torch.ones(8 * MIB)  # 32 MiB
    budget = room(32 * MIB)
    with remat.budget(budget, policy="lru") as run:
        before.sum()
        come_and_go()
        assert 24 * MIB <= held() <= 32 * MIB
        reserved = run.stats().reserved
    assert reserved is not None and reserved <= budget + 8 * 4096  # parts of pages


@pytest.mark.parametrize("reads", [True, False])
def test_tensors_that_existed_before_and_are_dropped_leave_more_to_keep(reads: bool) -> None:
    """Whether a record reads them still, so that the session drops them later, or not."""
    before = [torch.ones(MIB // 4) for _ in range(8)]  # 8 MiB
    budget = room(4 * MIB)
    with remat.budget(budget, policy="lru", plan="off") as run:
        read = []
        for at in range(8):
            if reads:
                read.append(before[at][:1000] * 2)
            before[at] = torch.empty(0)
            torch.ones(5000) * 3  # the session looks at what was dropped
        several = [torch.ones(MIB // 4) * 2 for _ in range(9)]
        assert run.stats().evictions == 0
        reserved = run.stats().reserved
    assert reserved is not None and reserved <= budget + 8 * 4096  # parts of pages
    assert all(bool((tensor == 2).all()) for tensor in [*read, *several])


def test_memory_that_torch_did_not_allocate_leaves_less_to_keep() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(8 * MIB, dtype=numpy.float32)
    with remat.budget(room(64 * MIB), policy="lru"):
        tensor = torch.from_numpy(array)
        assert float(tensor.sum()) == 8 * MIB
        come_and_go()
        assert 24 * MIB <= held() <= 32 * MIB


def test_a_smaller_budget_takes_kept_memory_back() -> None:
    with remat.budget(room(64 * MIB)) as run:
        torch.ones(8 * MIB)
        assert held() - blocks() >= 32 * MIB
        run.set_budget(room(16 * MIB))
        assert held() - blocks() <= 16 * MIB
        tensor = torch.ones(MIB)
        assert float(tensor.sum()) == MIB


def test_torch_says_what_it_cannot_allocate() -> None:
    with remat.budget(room(MIB)):
        pass
    assert _native.enter_caching(MIB)
    try:
        with pytest.raises(RuntimeError, match="memory"):
            torch.empty(2**50, dtype=torch.uint8)
        tensor = torch.ones(MIB)
    finally:
        _native.leave_caching()
    assert served(tensor)


def test_threads_share_the_allocator() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        kept: list[torch.Tensor] = []
        for index in range(200):
            kept.append(torch.full((9000 + 1000 * (index * 7 % 11),), float(number)))
            if len(kept) == 8:
                wrong.extend(number for tensor in kept if not bool((tensor == number).all()))
                del kept[index % 5 :]

    with remat.budget(room(8 * MIB)):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_forked_child_has_its_own_copy(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import os, threading
        import remat, torch

        torch.set_num_threads(1)
        stopped = threading.Event()

        def allocate():
            while not stopped.is_set():
                torch.ones(20_000).sum()

        with remat.budget("64MiB"):
            kept = [torch.full((50_000,), float(k)) for k in range(8)]
            thread = threading.Thread(target=allocate)
            thread.start()
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    kept[3].add_(1)
                    fresh = [torch.full((50_000,), 9.0) for _ in range(4)]
                    well = bool((kept[3] == 4).all()) and all(bool((f == 9).all()) for f in fresh)
                    os._exit(0 if well else 1)
                _, status = os.waitpid(child, 0)
                assert status == 0, status
            stopped.set()
            thread.join()
            assert all(bool((tensor == k).all()) for k, tensor in enumerate(kept))
        print("same")
        """,
    )
    ended = ran_warm([sys.executable, script])
    assert (ended.code, ended.out) == (0, "same\n"), ended.err


def test_another_allocator_stays(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import ctypes, pathlib
        import remat, torch

        def reserved():
            with remat.budget("64MiB") as run:
                torch.ones(1_000_000).exp().sum()
            return run.stats().reserved

        assert reserved() > 8_000_000
        c10 = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libc10.so"))
        mobile = c10._ZN3c1028GetDefaultMobileCPUAllocatorEv
        mobile.restype = ctypes.c_void_p
        c10._ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh(ctypes.c_void_p(mobile()), 0)
        print(reserved())
        """,
    )
    ended = ran_warm([sys.executable, script])
    assert (ended.code, ended.out) == (0, "None\n"), ended.err
    assert "main memory" not in ended.err


def test_a_torch_that_differs_keeps_its_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlike(library: str) -> None:
        raise RuntimeError(f"{library} has no SetCPUAllocator")

    monkeypatch.setattr(_native, "register_caching", unlike)
    caching.prepare_caching.cache_clear()
    _warn_once.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="libc10.so has no SetCPUAllocator"), remat.budget(room(MIB)) as run:
            torch.ones(20_000).exp().sum()
    finally:
        caching.prepare_caching.cache_clear()
        _warn_once.cache_clear()
    assert run.stats().reserved is None


def test_where_addresses_are_limited_torchs_allocator_stays(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import resource
        import remat, torch

        resource.setrlimit(resource.RLIMIT_AS, (2**39, 2**39))
        with remat.budget("64MiB") as run:
            torch.ones(1_000_000).exp().sum()
        print(run.stats().reserved)
        """,
    )
    ended = ran_warm([sys.executable, script])
    assert (ended.code, ended.out) == (0, "None\n"), ended.err
    assert "the system does not reserve addresses (ulimit -v" in ended.err


def test_the_first_budget_of_a_process_is_entered_within_its_bytes(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from true_peak import true_peak
        with true_peak() as peak, remat.budget("128KiB") as run:
            torch.ones(1000).exp().sum()
        print(run.stats().reserved is not None, 4000 <= peak.highest - peak.base <= 128 << 10)
        """,
    )
    ended = ran_warm([sys.executable, script])
    assert (ended.code, ended.out) == (0, "True True\n"), ended.err


def test_the_allocator_can_be_left_to_torch(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        with remat.budget("64MiB") as run:
            torch.ones(1_000_000).exp().sum()
        print(run.stats().reserved)
        """,
    )
    ended = ran_warm(["env", "REMAT_CACHING=off", sys.executable, script])
    assert (ended.code, ended.out) == (0, "None\n"), ended.err
    ended = ran_warm(["env", "REMAT_CACHING=no", sys.executable, script])
    assert ended.code != 0
    assert "REMAT_CACHING=no: expected 'on' or 'off'" in ended.err


def test_a_budget_of_another_device_leaves_the_allocator_alone() -> None:
    layer = nn.Linear(512, 512)
    with remat.budget(None, device="cpu") as run:
        layer(torch.ones(512, 512)).sum()
    assert run.stats().reserved is None
