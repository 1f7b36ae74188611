"""Torch's compile cache hands a graph to the code that cut it, and to no other."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import remat
from remat._compiled.identity import choosing_files, identity, identity_of

PACKAGE = Path(remat.__file__).parent
NATIVE = Path(remat._native.__file__)

# Modules that a choice of cuts imports and that decide nothing of it.
DECIDE_NOTHING = {"_errors.py", "_native.pyi"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package's Python files."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "remat", ignore=shutil.ignore_patterns("__pycache__", "*.so")))


def touch(file: Path) -> None:
    file.write_text(file.read_text() + "\n# changed\n")


def test_a_copy_of_the_package_has_the_identity_of_this_process(package: Path) -> None:
    assert identity_of(package, NATIVE) == identity()


@pytest.mark.parametrize(
    "name",
    (
        "_compiled/capture/cut.py",
        "_compiled/capture/joint_graph.py",
        "_compiled/capture/bans.py",
        "_compiled/fusion/between_kernels.py",
        "_compiled/fusion/groups.py",
        "_torch_internals/compiler/node_kinds.py",
        "_torch_internals/compiled/sizes.py",
    ),
)
def test_code_that_chooses_cuts_is_part_of_the_identity(package: Path, name: str) -> None:
    touch(package / name)
    assert identity_of(package, NATIVE) != identity()


@pytest.mark.parametrize(
    "name",
    (
        "__init__.py",
        "_online/run.py",
        "_online/script.py",
        "_chain/run.py",
        "_compiled/report/picture.py",
        "_compiled/budget/watch.py",
        "_torch_internals/eager/ops.py",
    ),
)
def test_other_code_is_not(package: Path, name: str) -> None:
    touch(package / name)
    assert identity_of(package, NATIVE) == identity()


def test_the_planner_is_part_of_the_identity(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "planner.so"
    other.write_bytes(b"another planner")
    assert identity_of(package, other) != identity()


def test_nothing_is_missing_from_the_identity() -> None:
    """Each module that code of the cut imports is part of the identity too, or decides nothing."""
    roots = [PACKAGE / "_compiled" / name for name in ("capture", "fusion")]
    choosing = {file.relative_to(PACKAGE).as_posix() for file in choosing_files(PACKAGE)}
    cutting = [file for root in roots for file in root.rglob("*.py")]
    imported = {name for file in cutting for name in imports(file)}
    assert imported - choosing <= DECIDE_NOTHING
    assert "_torch_internals/compiler/__init__.py" in imported


def imports(file: Path) -> Iterator[str]:
    """Files of the package that a file imports, relative to the package."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for alias in node.names:
                found = [module(path) for path in (folder / alias.name, folder)]
                yield next(path for path in found if path is not None).relative_to(PACKAGE).as_posix()


def module(path: Path) -> Path | None:
    """The file of a module or of a package, without its suffix."""
    files = (path.with_suffix(".py"), path.with_suffix(".pyi"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)
