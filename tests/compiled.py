"""Compiled programs without code generation, so that what is saved can be looked at in milliseconds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import remat
import torch
from functorch.compile import make_boxed_func
from remat._compiled.capture.cut import Cut, choose
from remat._compiled.report.report import Report
from remat._torch_internals import compiler
from torch._inductor.compile_fx import compile_fx

#: Marks tests that run what torch's compiler generates.
generates_code = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")


@dataclass
class Traced:
    """A function whose graphs Inductor traces and Remat cuts; the halves are run op by op."""

    function: Callable[..., Any]
    report: Report

    def __call__(self, *inputs: Any) -> Any:
        return self.function(*inputs)

    @property
    def cut(self) -> Cut:
        """That of the only graph that was cut."""
        (cut,) = self.report.cuts
        return cut

    def ops(self, names: list[str]) -> list[str]:
        """The ops that make these values."""
        made = {node["name"]: node["op"] for node in self.cut.graph["nodes"]}
        return [made[name] for name in names]


def traced(function: Callable[..., Any], **options: Any) -> Traced:
    """``remat.compile`` but for the code."""
    report = Report()

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        number = report.started()
        partitioner = compiler.Partitioner(choose(lambda cut: report.add(number, cut)), lambda: b"")
        patches = {"custom_partitioner_fn": partitioner, "force_disable_caches": True}
        return compile_fx(gm, inputs, inner_compile=_as_it_is, config_patches=patches)

    torch._dynamo.reset()
    return Traced(torch.compile(function, backend=backend, **options), report)


def _as_it_is(gm: torch.fx.GraphModule, inputs: Any, **_options: Any) -> Any:
    return make_boxed_func(gm.forward)


__all__ = ["Traced", "remat", "traced"]
