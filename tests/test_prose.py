"""`scripts/prose` on small made-up files: what it objects to, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "prose"
LONG = "word " * 24 + "words"  # 125 columns
LINK = "https://example.org/" + "x" * 120

SOUND = {
    "long code and literals": ("a.rs", f'fn f() {{ g("// {LONG}"); h(\'"\');\n}} // short'),
    "a doc comment that goes on with What": ("b.rs", "/// Bytes of a storage.\n/// What is read counts.\nstruct A;"),
    "a comment that is one link": ("c.rs", f"// {LINK}"),
    "words to a tool": ("f.py", f'x = "{LONG}"  # type: ignore[arg-type]\n'),
    "strings that are data": ("d.py", f'"""Data."""\nx = ["{LONG}", "What"]\n'),
    "tables, code and links": ("e.md", f"Text.\n\n| {LONG} |\n\n```console\n$ {LONG}\n```\n\n- {LINK}\n"),
}

FAULTY = {
    "a long comment": ("a.rs", f"fn f() {{}}\n// {LONG}\n", "2: 128 columns"),
    "a long comment behind code": ("a.rs", f"fn f() {{}} // {LONG}\n", "1: 138 columns"),
    "a long line of a block": ("a.rs", f"/* short\n{LONG} */\n", "2: 128 columns"),
    "a doc comment": (
        "a.rs",
        "/// Right.\nstruct A;\n/// What it is.\nstruct B;\n",
        '3: a doc comment that starts with "What"',
    ),
    "a module's": ("a.rs", "//! What it is.\n", '1: a doc comment that starts with "What"'),
    "a long comment in Python": ("a.py", f"# {LONG}\n", "1: 127 columns"),
    "a long line of a doc string": ("a.py", f'def f():\n    """Short.\n\n    {LONG}\n    """\n', "4: 129 columns"),
    "a doc string": ("a.py", 'def f():\n    r"""What it is."""\n', '2: a doc string that starts with "What"'),
    "text after a code block": ("a.md", f"```\n{LONG}\n```\n{LONG}\n", "4: 125 columns"),
    "a script without a suffix": ("a", f"#!/usr/bin/env python3\n# {LONG}\n", "2: 127 columns"),
}


def checked(folder: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(text)
    return subprocess.run([sys.executable, SCRIPT, name], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name, text", SOUND.values(), ids=SOUND.keys())
def test_sound_files(tmp_path: Path, name: str, text: str) -> None:
    found = checked(tmp_path, name, text)
    assert (found.returncode, found.stdout) == (0, "prose: 1 files, nothing to say\n"), found.stderr


@pytest.mark.parametrize("name, text, fault", FAULTY.values(), ids=FAULTY.keys())
def test_faults_are_named_with_their_places(tmp_path: Path, name: str, text: str, fault: str) -> None:
    found = checked(tmp_path, name, text)
    assert (found.returncode, found.stdout) == (1, f"{name}:{fault}\n"), found.stderr
