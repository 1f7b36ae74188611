"""`scripts/cycles` on small made-up trees: which names tie files, and which do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "cycles"

RUST_FREE = {
    "an edge in one direction": {
        "lib.rs": "mod a; mod b;",
        "a.rs": "use crate::b::B; pub struct A(B);",
        "b.rs": "pub struct B;",
    },
    "a name that the root re-exports is its own file's": {
        "lib.rs": "mod a; mod ids; mod b; pub use ids::Id; pub use a::*; pub use b::*;",
        "a.rs": "use crate::Id; pub struct A(Id);",
        "ids.rs": "pub struct Id;",
        "b.rs": "use crate::{A, Id}; pub struct B(A, Id);",
    },
    "a parent's `mod` and `pub use` lines": {
        "lib.rs": "mod engine;",
        "engine/mod.rs": "mod part; pub(crate) use part::Part; pub struct Engine;",
        "engine/part.rs": "use super::Engine; pub struct Part(Engine);",
    },
    "names in comments, strings and characters": {
        "lib.rs": "mod a; mod b;",
        "a.rs": "/* crate::b::B /* nested */ */ pub struct A; // crate::b::B",
        "b.rs": "use crate::a::A; pub const C: char = '\"'; pub const S: &str = \"crate::a::A\"; fn f<'a>(_: &'a A) {}",
    },
    "tests": {
        "lib.rs": "mod a; mod b;",
        "a.rs": "pub struct A; #[cfg(test)] mod tests { use crate::b::B; } #[cfg(test)] fn f() { crate::b::f() }",
        "b.rs": "use crate::a::A; pub struct B(A);",
    },
    "other crates": {
        "lib.rs": "mod a; mod std_like;",
        "a.rs": "use other::std_like::X; use ::other::a::Y; pub struct A(X, Y);",
        "std_like.rs": "use crate::a::A; pub struct X(A);",
    },
    "a macro's items are its file's": {
        "lib.rs": "mod ids; mod a; pub use ids::*;",
        "ids.rs": "macro_rules! id { ($n:ident) => { pub struct $n; } } id!(TensorId);",
        "a.rs": "use crate::TensorId; pub struct A(TensorId);",
    },
}

RUST_CYCLES = {
    "imports of each other": (
        {
            "lib.rs": "mod a; mod b;",
            "a.rs": "use crate::b::{self, B}; pub struct A(B);",
            "b.rs": "use super::a::A; pub struct B(A);",
        },
        ["a.rs -> b.rs: B", "b.rs -> a.rs: A"],
    ),
    "full paths in code": (
        {
            "lib.rs": "mod a; mod b;",
            "a.rs": "pub fn f() { crate::b::g() }",
            "b.rs": "pub fn g() { super::a::f() }",
        },
        ["a.rs -> b.rs: g", "b.rs -> a.rs: f"],
    ),
    "nested groups and renames": (
        {
            "lib.rs": "mod a; mod deep;",
            "a.rs": "use crate::{deep::{inner::{Inner as Renamed}}}; pub struct A(Renamed);",
            "deep/mod.rs": "pub mod inner;",
            "deep/inner.rs": "use crate::a as other; pub struct Inner(other::A);",
        },
        ["a.rs -> deep/inner.rs: Inner", "deep/inner.rs -> a.rs: A"],
    ),
    "through a re-export": (
        {
            "lib.rs": "mod a; mod b; pub use a::A; pub use b::*;",
            "a.rs": "use crate::B; pub struct A(B);",
            "b.rs": "use crate::A; pub struct B(A);",
        },
        ["a.rs -> b.rs: B", "b.rs -> a.rs: A"],
    ),
    "a parent that uses the child which uses it": (
        {
            "lib.rs": "mod engine;",
            "engine/mod.rs": "mod part; use part::Part; pub struct Engine(Part);",
            "engine/part.rs": "use super::Engine; pub struct Part(Engine);",
        },
        ["engine/mod.rs -> engine/part.rs: Part", "engine/part.rs -> engine/mod.rs: Engine"],
    ),
    "a parent that re-exports what it uses itself": (
        {
            "lib.rs": "mod engine;",
            "engine.rs": "mod part; pub use part::Part; pub struct Engine(Part);",
            "engine/part.rs": "use super::*; pub struct Part(Engine);",
        },
        ["engine/part.rs -> engine.rs: Engine", "engine.rs -> engine/part.rs: Part"],
    ),
    "a module inside a file": (
        {
            "lib.rs": "mod a; mod b;",
            "a.rs": "pub mod inner { use crate::b::B; pub struct Inner(B); }",
            "b.rs": "use crate::a::inner::Inner; pub struct B(Inner);",
        },
        ["a.rs -> b.rs: B", "b.rs -> a.rs: Inner"],
    ),
}

PYTHON_FREE = {
    "a package that re-exports its parts": {
        "__init__.py": "from .a import A\n__all__ = ['A']\n",
        "a.py": "from .b import B\n",
        "b.py": "B = 1\n",
    },
    "imports for a type checker": {
        "__init__.py": "",
        "a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B\nA = 1\n",
        "b.py": "from .a import A\nB = A\n",
    },
    "a name that a folder re-exports is its own file's": {
        "__init__.py": "",
        "deep/__init__.py": "from .inner import Inner\nfrom .other import Other\n",
        "deep/inner.py": "Inner = 1\n",
        "deep/other.py": "from ..a import A\nOther = A\n",
        "a.py": "from .deep import Inner\nA = Inner\n",
    },
    "an extension module": {"__init__.py": "from .a import A\n", "a.py": "from . import _native\nA = _native.f()\n"},
}

PYTHON_CYCLES = {
    "an import inside of a function": (
        {
            "__init__.py": "",
            "a.py": "def f():\n    from .b import g\n    return g\n",
            "b.py": "from .a import f\ndef g():\n    return f\n",
        },
        ["a.py -> b.py: g", "b.py -> a.py: f"],
    ),
    "attributes of a folder": (
        {
            "__init__.py": "",
            "deep/__init__.py": "from .inner import inner\n",
            "deep/inner.py": "import package.a as other\ninner = other.A\n",
            "a.py": "from package import deep as d\nA = 1\ndef f():\n    return d.inner\n",
        },
        ["a.py -> deep/inner.py: inner", "deep/inner.py -> a.py: a"],
    ),
    "a package whose own code uses what it re-exports": (
        {
            "__init__.py": "from .a import A\nB = A\n",
            "a.py": "from package import B\nA = 1\n",
        },
        ["__init__.py -> a.py: A", "a.py -> __init__.py: B"],
    ),
}


def checked(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("files", (RUST_FREE | PYTHON_FREE).values(), ids=(RUST_FREE | PYTHON_FREE).keys())
def test_what_makes_no_cycle(tmp_path: Path, files: dict[str, str]) -> None:
    found = checked(tmp_path / "package", files)
    assert (found.returncode, found.stderr) == (0, ""), found.stdout


@pytest.mark.parametrize(
    "files, edges", (RUST_CYCLES | PYTHON_CYCLES).values(), ids=(RUST_CYCLES | PYTHON_CYCLES).keys()
)
def test_a_cycle_is_named_with_its_files_and_names(tmp_path: Path, files: dict[str, str], edges: list[str]) -> None:
    found = checked(tmp_path / "package", files)
    assert found.returncode == 1, found.stderr
    heading, *lines = found.stdout.splitlines()
    assert heading.endswith("a cycle of 2 files")
    assert [line.strip() for line in lines] == edges


def test_a_folder_without_code_is_an_error(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr == f"cycles: neither lib.rs, main.rs nor __init__.py in {tmp_path}\n"
