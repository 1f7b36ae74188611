"""``remat.compile`` and the backend ``remat`` of ``torch.compile``."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .._memory.amounts import Budget
from .._memory.budgets import bytes_of
from .._torch_internals import compiler, eager
from .budget.limit import Limit
from .budget.search import NoRoom
from .capture.cut import choose
from .fusion.between_kernels import recompute_between_kernels
from .identity import identity
from .report.kept import reported
from .report.report import Report


class Backend:
    """A backend of Dynamo: Inductor, on graphs that Remat cuts; its report tells of each graph."""

    def __init__(self, report: Report | None = None, limit: Limit | None = None) -> None:
        self.report = Report() if report is None else report
        self._limit = limit
        #: Whether another backend compiles the next call. Graphs of the call under way are still compiled here.
        self._retired = False
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
        """Compiles one graph of Dynamo's."""
        number = self.report.started()
        patches = {**compiler.mode_options(mode, None), **(options or {})}

        def change(graph: torch.fx.Graph) -> None:
            recompute_between_kernels(graph, hold_nothing_longer=self._limit is not None)

        try:
            if self._limit is not None:
                return self._within(self._limit, number, gm, inputs, patches, change)
            chosen = choose(lambda cut: self.report.add(number, cut))
            partitioner = compiler.Partitioner(chosen, identity)
            compiled = functools.partial(compiler.compile_graph, gm, inputs, partitioner, patches, change)
            return reported(compiled, self.report, number)
        except BaseException:
            self.report.refused(number)
            raise

    def retire(self) -> None:
        """Leaves the next call to another backend; from now on the user's report stays without this one's graphs."""
        self.report, self._retired = self.report.copy(), True

    def _within(
        self,
        limit: Limit,
        number: int,
        gm: torch.fx.GraphModule,
        inputs: Any,
        patches: dict[str, Any],
        change: Callable[[torch.fx.Graph], None],
    ) -> Any:
        """Compiles one graph within the bytes that are left of the budget."""
        search = limit.search(number, inputs)
        partitioner = compiler.Partitioner(search.choice, lambda: identity() + search.identity(), search.extra)
        try:
            search.run(lambda seen: compiler.generate_graph(gm, inputs, partitioner, patches, change, seen))
        except NoRoom as no_room:
            if not self._retired:
                limit.no_room(no_room, number)
        compiled = compiler.compile_graph(gm, inputs, partitioner, patches, change, search.rewrite())
        if search.cut is not None:
            limit.settled(number, search.cut)
            self.report.add(number, search.cut)
        return compiled if self._retired else limit.watched(compiled, number)


def compile(model: Callable[..., Any], budget: Budget | None = None, **options: Any) -> Any:
    """``torch.compile``, with Remat's choice of the values that the forward pass saves for the backward pass.

    The kernels of the backward pass compute cheap ops of the forward pass again, whose results are then not saved.
    Fewer bytes are written and read, so memory and mostly time go down. The saved values are the minimum cut of Yu and
    He (MLSys 2023).

    - ``budget`` is in bytes, an int or a text such as ``"6GiB"``. It covers every tensor on the device, as that of
      :func:`remat.budget` does, and more is recomputed where it is short. Remat knows the bytes of a graph before it
      runs, but not those that the program holds around its graphs. It therefore measures the first steps. If one takes
      too much, the next step is compiled anew for less, with a warning.
    - ``options`` are those of :func:`torch.compile` (``fullgraph``, ``dynamic``, ``mode``, ``options``), but
      ``backend``.

    Returns a module for a module and a function for a function. Its method ``report`` tells what was saved and
    recomputed: ``report(step)`` runs a training step and measures its peak in bytes, ``report().json()`` and
    ``report().svg(path)`` are for programs and for the eye. ``torch.compile(model, backend="remat")`` compiles the same
    way without a report.

    Raises :class:`remat.BudgetError` with the smallest budget that would do, :class:`remat.RematError` that names the
    node where a graph cannot be cut, ``ValueError`` for arguments that make no sense, and torch's own error where there
    is no C++ compiler.

    >>> import torch, remat
    >>> compiled = remat.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()))
    >>> compiled(torch.ones(4, 8)).sum().backward()  # doctest: +SKIP
    >>> print(compiled.report())  # doctest: +SKIP
    """
    if "backend" in options:
        raise ValueError("remat.compile is a backend itself: leave out backend=")
    if not callable(model):
        raise ValueError(f"{type(model).__name__} cannot be called: expected a module or a function")
    report = Report()
    if budget is None:
        return _handle(model, lambda function: torch.compile(function, backend=Backend(report), **options), report)
    device = _device_of(model)
    limit = Limit(bytes_of(budget, device), device, report)
    current: list[Backend] = []

    def fresh(function: Callable[..., Any]) -> Any:
        for backend in current:
            backend.retire()
            report.restart()
        current[:] = [Backend(report, limit)]
        return torch.compile(function, backend=current[0], **options)

    return _handle(model, fresh, report, limit)


@dataclass
class _Code:
    """A function, and what runs in its place."""

    function: Callable[..., Any]
    run: Callable[..., Any]


def _handle(
    model: Callable[..., Any],
    fresh: Callable[[Callable[..., Any]], Any],
    report: Report,
    limit: Limit | None = None,
) -> Any:
    """A compiled module for a module, a function for a function; ``limit`` may have it compiled anew.

    A backend that raises is never freed by torch. It therefore does not hold the model, by way of its limit.
    """
    if isinstance(model, nn.Module):
        compiled = fresh(model)
        compiler.exchange(compiled, compiled)
        module = weakref.ref(compiled)

        def change() -> None:
            if (alive := module()) is not None:
                compiler.exchange(alive, fresh(alive._orig_mod))
    else:
        code = _Code(model, fresh(model))
        held = weakref.ref(code)

        @compiler.plainly
        @functools.wraps(model)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            return code.run(*args, **kwargs)

        def change() -> None:
            if (alive := held()) is not None:
                alive.run = fresh(alive.function)

    if limit is not None:
        limit.on_change = change
    # A compiled module looks up attributes in the module; the report is its own.
    compiled.__dict__["report"] = report
    return compiled


def _device_of(model: Any) -> torch.device:
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    return parameters[0].device if parameters else eager.usual_device()


def backend(gm: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
    """Compiles a graph of Dynamo's without a report; ``torch.compile(.., backend="remat")`` calls it."""
    return Backend()(gm, inputs, **kwargs)
