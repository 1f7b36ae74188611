"""``remat.compile`` and the backend ``remat`` of ``torch.compile``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from . import _compile_seam as seam
from . import _native
from ._cut import Cut, choose
from ._cut_report import Report


class Backend:
    """A backend of Dynamo: Inductor, with graphs cut by Remat. It keeps what is reported of them."""

    def __init__(self) -> None:
        self.report = Report()
        self.__name__ = "remat"

    def __call__(
        self,
        gm: torch.fx.GraphModule,
        inputs: Any,
        *,
        mode: str | None = None,
        options: dict[str, Any] | None = None,
        **_other: Any,
    ) -> Any:
        """Compiles one graph."""
        number = self.report.started()

        def done(cut: Cut) -> None:
            self.report.add(number, cut)

        partitioner = seam.Partitioner(choose(done), _identity)
        return seam.compile_graph(gm, inputs, partitioner, {**seam.mode_options(mode, None), **(options or {})})


def compile(model: Callable[..., Any], **options: Any) -> Any:
    """``torch.compile`` with what is saved between forward and backward pass chosen by Remat.

    Cheap ops of the forward pass that the backward pass's own kernels can do again are not saved: fewer bytes are
    written and read, so memory and mostly time go down. What is saved is the minimum cut of Yu and He (MLSys 2023).

    ``options`` are those of :func:`torch.compile` (``fullgraph``, ``dynamic``, ``mode``, ``options``), but ``backend``.
    The result has a method ``report``, see :class:`Report`; ``torch.compile(model, backend="remat")`` does the same
    without one.

    Raises :class:`RematError` that names the node where a graph cannot be cut; torch's own error where there is no C++
    compiler.

    >>> import torch, remat
    >>> compiled = remat.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()))
    >>> compiled(torch.ones(4, 8)).sum().backward()  # doctest: +SKIP
    >>> print(compiled.report())  # doctest: +SKIP
    """
    if "backend" in options:
        raise ValueError("remat.compile is a backend itself: leave out backend=")
    if not callable(model):
        raise ValueError(f"{type(model).__name__} cannot be called: expected a module or a function")
    backend = Backend()
    compiled = torch.compile(model, backend=backend, **options)
    # A compiled module hands attributes on to the module; what is reported is its own.
    compiled.__dict__["report"] = backend.report
    return compiled


def backend(gm: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
    """The entry point behind ``torch.compile(.., backend="remat")``."""
    return Backend()(gm, inputs, **kwargs)


@cache
def _identity() -> bytes:
    """Of the code that makes the choice: compiled graphs in torch's cache are used again only by the same."""
    here = Path(__file__).parent
    files = [*sorted(here.glob("_compile*/*.py")), *sorted(here.glob("_*.py")), Path(_native.__file__)]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.digest()


seam.register("remat", backend)
