"""Memory of calls like earlier ones under other settings or on other data: that of those is not theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import remat
import torch
from torch import Tensor
from torch.nn import functional as F
from true_peak import room, true_peak

MIB = 2**20
#: Beside tensors: parts of pages, and what single numbers take.
SMALL = 64 << 10


def counted_and_taken(run: Callable[[], object]) -> tuple[int, int]:
    """The most bytes of a run by its own account, in an ample budget, and those that it really takes."""
    with true_peak() as peak:
        run()
    with remat.budget(room(200 * MIB), plan="off") as session:
        run()
    return session.stats().peak - peak.base, peak.highest - peak.base


@pytest.mark.usefixtures("way")
def test_convolutions_are_counted_by_the_library_that_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without oneDNN the images are laid out as columns."""
    monkeypatch.setenv("REMAT_RECORD", "always")
    images, weight = torch.randn(4, 16, 64, 64), torch.randn(16, 16, 3, 3)

    def run() -> None:
        for on in (True, True, False):
            with torch.backends.mkldnn.flags(enabled=on):  # type: ignore[no-untyped-call]
                F.conv2d(images, weight, padding=1)

    counted, taken = counted_and_taken(run)
    assert taken - SMALL <= counted <= 1.2 * taken


@pytest.mark.usefixtures("way")
def test_results_are_counted_by_the_default_dtype_of_their_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_RECORD", "always")
    whole = torch.randint(1, 9, (512, 512))

    def run() -> None:
        for dtype in (torch.float32, torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            try:
                held = [whole / 3.0 for _ in range(8)]
            finally:
                torch.set_default_dtype(torch.float32)
            assert held[0].dtype == dtype

    counted, taken = counted_and_taken(run)
    assert taken - SMALL <= counted <= taken + SMALL


@pytest.mark.usefixtures("way")
def test_powers_of_matrices_are_counted_by_their_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_RECORD", "always")
    square = torch.randn(256, 256) / 256
    counted, taken = counted_and_taken(lambda: [torch.linalg.matrix_exp(square * scale) for scale in (0, 0, 20)])
    assert taken - SMALL <= counted <= 1.2 * taken


@pytest.mark.usefixtures("way")
def test_fuller_sparse_matrices_stay_inside() -> None:
    empty, full = torch.zeros(300, 300), torch.ones(300, 300)

    def run() -> Tensor:
        held = [torch.randn(300, 300).exp() for _ in range(12)]
        for matrix in (empty, empty, full):
            matrix.to_sparse()
        return sum((each.sum() for each in held), torch.zeros(()))

    with true_peak() as plain:
        run()
    budget = room(plain.highest - plain.base - 3 * full.nbytes)
    with remat.budget(budget):
        run()
    with true_peak() as peak, remat.budget(budget):
        run()
    assert peak.highest <= budget
