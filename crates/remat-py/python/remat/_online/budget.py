"""``remat.budget``: a byte budget around any part of a program."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar

import torch

from .. import _native
from .._errors import RematError, refusal_behind, refusals_forgotten
from .._memory.amounts import Budget
from .._memory.budgets import DeviceBudget, budgets_of
from .._outputs import absolute, check_distinct
from .._timeline.target import check_timeline
from .._warnings import warn
from .arena import Arena
from .choices import DEFAULT_POLICIES, Costs, check_costs, check_pool, check_seed, choose_plans
from .reentries import Place, Reentries, place_in, place_of
from .run import Run, Settings

F = TypeVar("F", bound=Callable[..., Any])

_reentries = Reentries()


class budget:
    """Keeps every tensor storage on a device, and the workspace of the running op, inside a number of bytes.

    A context manager (``with remat.budget("2GiB") as run:``) and a decorator (``@remat.budget("2GiB")``). Storages are
    dropped and recomputed on the way (Kirisame et al. 2021, Dynamic Tensor Rematerialization); all results keep the
    bits of the plain program. It belongs around the loop of training, not around each step: entering takes some
    hundredths of a second, and steps are planned that repeat within one budget.

    - ``budget`` is an int (bytes) or a text (``"6GiB"``, ``"512MB"``), or a mapping from devices to such. ``"80%"`` is
      that share of the device's memory, and ``"auto"`` what is free there as the budget is entered and what tensors
      hold already, less a sixteenth. Both look at the limit of the process's control group too.
    - ``policy`` names the eviction policy (:func:`remat.policies`); by default ``"dtr-anc"``, in an arena ``"coop"``.
      Without an arena there are no neighbours: ``coop`` and its forms evict one storage at a time there, and ``dte``
      evicts as ``dtr``.
    - ``device`` is the device; by default the accelerator if one is in use, else the CPU.
    - ``trace`` is a file to record the run in; ``.zst`` and ``.gz`` are packed.
    - ``timeline`` is a file that shows the run: a page (``.html``), a trace for Perfetto (``.json``), or a snapshot for
      torch's ``_memory_viz.py`` (``.pickle``).
    - ``seed`` seeds the policy ``random``.
    - ``thrash_limit`` ends the run once recomputing has cost that many times the program's own ops.
    - ``pool`` says how memory is bounded. ``"fungible"`` counts bytes. ``"arena"`` places all tensors and workspace
      that the CPU gets from here on in one arena of exactly ``budget`` bytes, less those of tensors that exist
      already and lie outside of it; evictions there free blocks side by side (Zhang et al. 2023, Coop). The allocator
      must be preloaded: ``remat run --pool arena``, or ``LD_PRELOAD`` with :func:`remat.arena_library`.

    - ``costs`` says what an op costs that is weighed for eviction: its time as ``"measured"`` (processor time on the
      CPU), or as reckoned from the ``"bytes"`` of its arguments and results, so that two runs of a program evict the
      same.
    - ``plan="auto"`` looks for steps that repeat and recompute, plans them in the background, and follows the plan from
      then on, wherever the program does what it did before; ``"off"`` leaves all to the policy. By default it is
      ``"auto"``, and ``"off"`` for a run that names a ``policy``, and with ``costs="bytes"``. Plans are kept in the
      folder ``REMAT_CACHE`` (by default ``~/.cache/remat``; ``off`` keeps none), and are there when the program runs
      again within the same budget; those of an arena are not kept. A file that ``plan_out`` wrote is followed, and no
      other plan made.
    - ``plan_out`` is a file that the plans of the run are written to, for ``plan``.

    Raises ``ValueError`` for a budget, a policy or a timeline's suffix that makes no sense, ``OSError`` for a trace or
    a timeline that cannot be written, and :class:`remat.RematError` for nested budgets.
    Raises :class:`remat.BudgetError` when the tensors that exist already do not fit or, later, when an op does not.

    >>> import torch, remat
    >>> x = torch.ones(256, 256, requires_grad=True)
    >>> with remat.budget("64MiB") as run:
    ...     (x @ x).relu().sum().backward()
    >>> run.stats().peak <= 64 * 2**20
    True
    """

    def __init__(
        self,
        budget: Budget | Mapping[str, Budget],
        *,
        policy: str | None = None,
        device: str | torch.device | None = None,
        trace: str | os.PathLike[str] | None = None,
        seed: int = 0,
        thrash_limit: float | None = None,
        pool: str = "fungible",
        costs: Costs = "measured",
        plan: str | os.PathLike[str] | None = None,
        plan_out: str | os.PathLike[str] | None = None,
        timeline: str | os.PathLike[str] | None = None,
    ) -> None:
        check_pool(pool)
        check_timeline(timeline)
        check_costs(costs)
        check_seed(seed)
        check_distinct({"trace": trace, "timeline": timeline, "plan_out": plan_out})
        plans = choose_plans(plan, plan_out, policy, pool, costs)
        policy = policy or DEFAULT_POLICIES[pool]
        _native.check_policy(policy)
        if thrash_limit is not None and not thrash_limit > 0:
            raise ValueError(f"thrash_limit {thrash_limit!r}: expected a number above 0, e.g. 2.0")
        budgets = budgets_of(budget, device)  # complains now rather than at entry
        if pool == "arena":
            _check_arena(budgets)
        self._budget, self._device, self._pool = budget, device, pool
        trace, timeline = (path if path is None else absolute(path) for path in (trace, timeline))
        self._settings = Settings(policy, seed, thrash_limit, trace, timeline, costs, plans)
        self._run: Run | None = None
        self._function: Place | None = None  # what it decorates
        self._place: Place | None = None
        self._began = self._entered = 0.0

    def _following_accelerator(self) -> budget:
        """The same budget, moved to the first accelerator that the program uses."""
        followed = copy(self)
        followed._settings = replace(self._settings, follows_accelerator=True)
        return followed

    def __enter__(self) -> Run:
        if self._run is not None:
            raise RematError("this budget is active already: budgets do not nest")
        self._place, self._began = self._function or place_of(sys._getframe(1)), perf_counter()
        budgets = budgets_of(self._budget, self._device)
        refusals_forgotten()
        run = Run(budgets, self._settings, Arena() if self._pool == "arena" else None)
        run._start()
        self._run, self._entered = run, perf_counter()
        return run

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        run, self._run = self._run, None
        if run is not None:
            run._stop()
            if value is None:
                self._tell_of_reentries()
        refusal = refusal_behind(value)
        if refusal is not None:
            raise refusal from value

    def _tell_of_reentries(self) -> None:
        entering, whole = self._entered - self._began, perf_counter() - self._began
        warning = _reentries.ended(self._place, entering, whole)
        if warning is not None:
            warn(f"remat: {warning}")

    def __call__(self, function: F) -> F:
        if _returns_early(function):
            name = getattr(function, "__qualname__", repr(function))
            raise ValueError(
                f"remat.budget cannot decorate {name}, whose body runs after the call has returned: "
                "enter the budget in the body, by `with remat.budget(...)`"
            )

        @functools.wraps(function)
        def under_budget(*args: Any, **kwargs: Any) -> Any:
            fresh = copy(self)
            fresh._run, fresh._function = None, place_in(function)
            with fresh:
                return function(*args, **kwargs)

        return under_budget  # type: ignore[return-value]


def _returns_early(function: object) -> bool:
    """Whether a call of a function returns before its body runs: a generator, or a coroutine."""
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(kind(function) for kind in kinds)


def _check_arena(budgets: list[DeviceBudget]) -> None:
    """``ValueError`` for budgets that no arena keeps: an arena holds the CPU's tensors."""
    if [name for name, _, _ in budgets] != ["cpu"]:
        names = ", ".join(name for name, _, _ in budgets)
        raise ValueError(f"pool 'arena' bounds the CPU's tensors, the budget is of {names}: give one budget, of 'cpu'")
