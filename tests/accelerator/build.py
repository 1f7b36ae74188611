"""Builds the stand-in accelerator with the machine's C++ compiler, once for each text of its sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import torch

SOURCES = Path(__file__).parent
KEPT = SOURCES.parents[1] / "target" / "standin"


class NoCompiler(Exception):
    """The machine has no C++ compiler."""


def library() -> Path:
    """The built library; raises `NoCompiler` where it cannot be built, and `RuntimeError` where it does not compile."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise NoCompiler("the stand-in accelerator needs a C++ compiler (g++, clang++ or CXX)")
    parts = Path(torch.__file__).parent
    command = [
        *(compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-w"),
        *(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", f"-I{parts / 'include'}"),
        *(str(SOURCES / "standin.cpp"), f"-L{parts / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{parts / 'lib'}"),
    ]
    text = "".join(path.read_text() for path in (*sorted(SOURCES.glob("*.h")), SOURCES / "standin.cpp"))
    names = (text, torch.__version__, sysconfig.get_platform(), *command)
    built = KEPT / hashlib.sha256("\0".join(names).encode()).hexdigest()[:16] / "standin.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as there:
            made = Path(there) / built.name
            done = subprocess.run([*command, "-o", made], capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the stand-in accelerator does not compile:\n{done.stderr[-4000:]}")
            made.rename(built)  # at once, whoever else builds it
    return built
