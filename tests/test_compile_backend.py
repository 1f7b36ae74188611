"""``torch.compile(.., backend="remat")``: the name alone, whoever came first."""

from __future__ import annotations

from pathlib import Path

import pytest
from process import PYTHON, program, ran
from sample import some

# Products alone need no compiler for C++, which would take seconds.
USE = """
x = torch.ones(4, 4, requires_grad=True)
run = torch.compile(lambda x: x @ x, backend="remat", options={"force_disable_caches": True})
run(x).backward(torch.ones(4, 4))
torch.testing.assert_close(x.grad, torch.full((4, 4), 8.0))
print("well")
"""

BEFORE = {
    "remat imported before torch": "import remat, torch",
    "torch imported before remat": "import torch, remat",
    "torch's compiler loaded before remat": "import torch, torch._dynamo, remat",
    "backends listed before remat": "import torch; torch.compiler.list_backends(); import remat",
    "remat.compile used before": "import torch, remat; remat.compile(torch.nn.Identity())",
}


@pytest.mark.parametrize("order", some(BEFORE))
def test_the_backend_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    ended = ran([*PYTHON, program(tmp_path, BEFORE[order] + USE)])
    assert ended.out == "well\n", ended.err


def test_importing_remat_loads_no_torch(tmp_path: Path) -> None:
    source = """
    import sys, remat
    print([name for name in ("torch", "torch._dynamo", "importlib.metadata") if name in sys.modules])
    """
    assert ran([*PYTHON, program(tmp_path, source)]).out == "[]\n"


def test_importing_remat_loads_no_backend_beside_dynamo(tmp_path: Path) -> None:
    """Optimizers load Dynamo. Torch's own backends take half a second to load."""
    source = """
    import sys, torch, torch._dynamo
    before = set(sys.modules)
    import remat
    print([name for name in set(sys.modules) - before if name.startswith("torch")])
    """
    assert ran([*PYTHON, program(tmp_path, source)]).out == "[]\n"


def test_remat_is_one_distribution_installed_or_not(tmp_path: Path) -> None:
    source = """
    import remat
    from importlib.metadata import entry_points, version
    print([point.name for point in entry_points(group="torch_dynamo_backends")].count("remat"))
    print(version("remat") == remat.__version__)
    """
    assert ran([*PYTHON, program(tmp_path, source)]).out == "1\nTrue\n"
