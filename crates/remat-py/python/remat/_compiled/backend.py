"""``remat.compile`` and the backend ``remat`` of ``torch.compile``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .._memory.budgets import Budget, bytes_of
from .._torch_internals import compiler
from .budget.limit import Limit
from .budget.search import NoRoom
from .cut import choose
from .fusion.between_kernels import recompute_between_kernels
from .identity import identity
from .report.kept import reported
from .report.report import Report


class Backend:
    """A backend of Dynamo: Inductor, with graphs cut by Remat. It keeps what is reported of them."""

    def __init__(self, report: Report | None = None, limit: Limit | None = None) -> None:
        self.report = Report() if report is None else report
        self._limit = limit
        #: Another one compiles the next call; graphs of the call under way are still compiled here.
        self._over = False
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
        patches = {**compiler.mode_options(mode, None), **(options or {})}

        def change(graph: torch.fx.Graph) -> None:
            recompute_between_kernels(graph, hold_nothing_longer=self._limit is not None)

        if self._limit is not None:
            return self._within(self._limit, number, gm, inputs, patches, change)
        chosen = choose(lambda cut: self.report.add(number, cut))
        partitioner = compiler.Partitioner(chosen, identity)
        return reported(lambda: compiler.compile_graph(gm, inputs, partitioner, patches, change), self.report, number)

    def retire(self) -> None:
        """What it compiles from now on is not reported."""
        self.report, self._over = self.report.copy(), True

    def _within(
        self,
        limit: Limit,
        number: int,
        gm: torch.fx.GraphModule,
        inputs: Any,
        patches: dict[str, Any],
        change: Callable[[torch.fx.Graph], None],
    ) -> Any:
        """Compiles one graph that has to stay within what is left of the budget."""
        search = limit.search(number)
        partitioner = compiler.Partitioner(search.choice, lambda: identity() + search.identity())
        try:
            search.run(lambda seen: compiler.generate_graph(gm, inputs, partitioner, patches, change, seen))
        except NoRoom as no_room:
            if not self._over:
                limit.no_room(no_room, number)
        compiled = compiler.compile_graph(gm, inputs, partitioner, patches, change)
        if search.cut is not None:
            limit.settled(number, search.cut)
            self.report.add(number, search.cut)
        return compiled if self._over else limit.watched(compiled)


def compile(model: Callable[..., Any], budget: Budget | None = None, **options: Any) -> Any:
    """``torch.compile`` with what is saved between forward and backward pass chosen by Remat.

    Cheap ops of the forward pass that the backward pass's own kernels can do again are not saved: fewer bytes are
    written and read, so memory and mostly time go down. What is saved is the minimum cut of Yu and He (MLSys 2023).

    With a ``budget``, in bytes, an int or a text such as ``"6GiB"``, more is recomputed where need be. It covers what
    :func:`remat.budget` covers: every tensor on the device. What graphs take is known before they run, what the program
    holds around them is not: the first steps are measured, and if one takes more, the next is compiled anew for less,
    with a warning.

    ``options`` are those of :func:`torch.compile` (``fullgraph``, ``dynamic``, ``mode``, ``options``), but ``backend``.
    The result has a method ``report``, see :class:`Report`; ``torch.compile(model, backend="remat")`` does the same
    without one.

    Raises :class:`BudgetError` with the smallest budget that would do, :class:`RematError` that names the node where a
    graph cannot be cut; torch's own error where there is no C++ compiler.

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
        return _handle(model, lambda: torch.compile(model, backend=Backend(report), **options), report, None)
    limit = Limit(bytes_of(budget), _device_of(model), report)
    current: list[Backend] = []

    def fresh() -> Any:
        for backend in current:
            backend.retire()
            report.restart()
        current[:] = [Backend(report, limit)]
        return torch.compile(model, backend=current[0], **options)

    return _handle(model, fresh, report, limit)


def _handle(model: Callable[..., Any], fresh: Callable[[], Any], report: Report, limit: Limit | None) -> Any:
    """What the caller gets: a module for a module, a function for a function; ``limit`` may have it compiled anew."""
    current = [fresh()]
    if isinstance(model, nn.Module):
        compiled = current[0]
        compiler.exchange(compiled, compiled)
        change = lambda: compiler.exchange(compiled, fresh())  # noqa: E731
    else:

        @compiler.plainly
        @functools.wraps(model)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            return current[0](*args, **kwargs)

        change = lambda: current.__setitem__(0, fresh())  # noqa: E731
    if limit is not None:
        limit.on_change = change
    # A compiled module hands attributes on to the module; what is reported is its own.
    compiled.__dict__["report"] = report
    return compiled


def _device_of(model: Any) -> torch.device:
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    return parameters[0].device if parameters else torch.device("cuda" if torch.cuda.is_available() else "cpu")


def backend(gm: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
    """What ``torch.compile(.., backend="remat")`` calls."""
    return Backend()(gm, inputs, **kwargs)
