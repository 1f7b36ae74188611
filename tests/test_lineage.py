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
