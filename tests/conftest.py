"""Two threads, fixed seeds, and limits on every test: a replay that never ends must fail, not hang."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Plans that earlier runs made would decide what happens in a test.
os.environ["REMAT_CACHE"] = "off"
# Otherwise torch's compiler builds libraries in every process, to learn whether the C++ compiler knows the processor.
# It asks as it is loaded.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import torch
import torch._dynamo
import torch.utils.data
from limits import limited
from native import REASON
from true_peak import true_peak

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup
    # Programs that tests start handle it as they do elsewhere; the tests themselves still ignore it.
    signal.signal(signal.SIGHUP, lambda *_: None)

_set_aside = 0


def _collect() -> None:
    """Collects garbage. Where modules were loaded since the last time, it sets aside all that is there: neither
    collections nor scans for live tensors go through it again, and tests need thousands of them.
    """
    global _set_aside
    gc.collect()
    if len(sys.modules) > _set_aside:
        _set_aside = len(sys.modules)
        gc.freeze()


@pytest.fixture(autouse=True)
def _limited_and_seeded() -> Iterator[None]:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    _collect()
    with limited():
        yield


@pytest.fixture(params=["native", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each of the two ways in which ops reach Remat, with budgets that use it."""
    if request.param == "native" and REASON is not None:
        pytest.skip(REASON)
    monkeypatch.setenv("REMAT_DISPATCH", request.param)
    yield request.param


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets that ops reach natively."""
    monkeypatch.setenv("REMAT_DISPATCH", "native")


@pytest.fixture
def nothing_compiled_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's compiler finds nothing in its caches: a graph that is there is not cut again."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also the tests marked as full: all of the cross products")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: runs with --all only; a sample of its kind runs always")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--all`, a test that is marked as full runs if it is named on the command line."""
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_sessionstart() -> None:
    """Loads what torch loads lazily.

    A shell starts what it runs in the background with interrupts ignored, and so would be the programs under test.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if size := os.environ.get("REMAT_TEST_ARENA"):
        # `scripts/checker`: all tensors of all tests lie in an arena of so many bytes.
        opened: int = ctypes.CDLL(None).remat_arena_open(ctypes.c_uint64(int(size)), ctypes.c_uint64(64))
        assert opened == 0, f"no arena of {size} bytes: {os.strerror(opened)}"
    with true_peak():
        torch.zeros(1)
    _collect()
