"""Evicted values can be had again, whatever becomes of the values they were computed from."""

from __future__ import annotations

import pytest
import remat
import torch
from true_peak import room

N = 65536


def pressure() -> None:
    """Results that push out what can be evicted."""
    source = torch.full((N,), 1.0)
    kept = [source + n for n in range(3)]
    del kept


def test_dropped_after_its_source_was_overwritten() -> None:
    x = torch.ones(N)
    with remat.budget(room(5 * 4 * N)) as run:
        y = x * 2
        z = y + 1
        x.add_(1)  # from here on y cannot be computed again
        del y
        pressure()
        assert run.stats().evictions > 0
        assert torch.equal(z, torch.full((N,), 3.0))


def test_dropped_after_it_was_shown() -> None:
    x = torch.ones(N)
    with remat.budget(room(5 * 4 * N)) as run:
        y = x * 2
        z = y + 1
        y.numpy()
        del y
        pressure()
        assert run.stats().evictions > 0
        assert torch.equal(z, torch.full((N,), 3.0))


def test_source_freed_by_hand() -> None:
    x = torch.ones(N)
    with remat.budget(room(6 * 4 * N)) as run:
        y = x * 2
        z = y + 1
        y.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError):
            y.sum()
        pressure()
        assert torch.equal(z, torch.full((N,), 3.0))
        y.untyped_storage().resize_(4 * N)
        y.fill_(7)
        pressure()
        assert y.sum() == 7 * N
        assert run.stats().peak <= run.stats().budget


def test_constants_that_the_program_dropped_make_room(way: str) -> None:
    """They are kept for what was computed from them, until that is cheaper to keep."""
    sources = [torch.randn(64, 64) for _ in range(32)]
    expected = [(source[:8] * 2).sin().tolist() for source in sources]
    with remat.budget("1GiB", policy="lru") as run:
        results = [(source[:8] * 2).sin() for source in sources]
        shown = sources[0].untyped_storage()  # a Python object that nobody holds keeps no storage
        del sources, shown
        run.set_budget(run.base + (200 << 10))
        blocks = []
        for _ in range(30):  # 480 KiB
            blocks.append(torch.ones(64, 64))
            blocks[-1].data_ptr()  # from here on it cannot be evicted
        assert [result.tolist() for result in results] == expected
