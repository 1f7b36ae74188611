"""Reports of graphs that torch found in its compile cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compiled import generates_code
from process import PYTHON, program, ran

pytestmark = generates_code

TRAINED = """
import torch, remat
x = torch.arange(32.0, requires_grad=True)
run = remat.compile(lambda x: x.sin().exp().cos())
run(x).sum().backward()
print(run.report().json())
print("---")
print(run.report())
"""

INFERRED = TRAINED.replace(", requires_grad=True", "").replace(".sum().backward()", "")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Torch's compile cache, empty."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    return tmp_path / "cache"


def reports(script: Path) -> tuple[dict[str, Any], str]:
    """The only graph of a program, in JSON and in words."""
    ended = ran([*PYTHON, script])
    assert ended.code == 0, ended.err
    facts, words = ended.out.split("---\n")
    (graph,) = json.loads(facts)["graphs"]
    return graph, words


@pytest.mark.full
def test_a_graph_from_the_cache_is_reported_as_it_was_cut_unless_what_was_kept_is_broken(
    tmp_path: Path, cache: Path
) -> None:
    script = program(tmp_path, TRAINED)
    first, _ = reports(script)
    second, words = reports(script)
    assert (first.pop("from_cache"), second.pop("from_cache")) == (False, True)
    assert first["cut"] and first == second
    assert "found in torch's compile cache" in words
    (kept,) = (cache / "remat").iterdir()
    kept.write_text(kept.read_text()[:40])
    is_said_to_be_unknown(*reports(script))


def is_said_to_be_unknown(graph: dict[str, Any], words: str) -> None:
    assert graph == {"graph": 0, "cut": False, "from_cache": True}
    assert "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1" in words


@pytest.mark.full
def test_without_a_backward_pass_that_is_said_of_a_graph_from_the_cache_too(tmp_path: Path, cache: Path) -> None:
    script = program(tmp_path, INFERRED)
    for from_cache in (False, True):
        graph, words = reports(script)
        assert graph == {"graph": 0, "cut": False, "from_cache": from_cache}
        assert words == "graph 0: no backward pass\n"


@pytest.mark.full
def test_a_cut_that_was_not_kept_is_said_to_be_unknown_and_how_to_know_it(tmp_path: Path, cache: Path) -> None:
    script = program(tmp_path, TRAINED)
    reports(script)
    (kept,) = (cache / "remat").iterdir()
    kept.unlink()
    is_said_to_be_unknown(*reports(script))


@pytest.mark.full
def test_a_cache_without_room_for_reports_compiles_all_the_same(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    (cache / "remat").write_text("no folder")
    script = program(tmp_path, TRAINED)
    assert reports(script)[0]["cut"]
    assert "filled without a report" in reports(script)[1]
