"""A budget in force: the session that torch tells of every op, and its counters."""

from __future__ import annotations

import functools
import os
import platform
import sysconfig
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import _native
from .._errors import BudgetError, RematError
from .._memory.amounts import Budget
from .._memory.budgets import DeviceBudget, bounded, device_of
from .._memory.tensors import live_tensors
from .._outputs import unwritten
from .._torch_internals import eager
from .._warnings import warn
from .arena import SMALLEST_ARENA, Arena, ArenaStats
from .caching import Caching
from .choices import NO_PLANS, Costs, Plans
from .dispatch import Dispatch, always_recorded, way_for
from .endings import at_signal
from .escape import Escapes
from .optimizers import Optimizers

if TYPE_CHECKING:
    from .._timeline.file import TimelineFile

_lock = threading.Lock()
_active: Run | None = None


@dataclass(frozen=True)
class PlanStats:
    """Counters of planned steps. Overheads are times of recomputing as parts of the time of the step's own ops."""

    #: Plans that other runs made: of the cache, or of the file that was given.
    loaded: int
    #: Steps that repeat, and were recorded to be planned.
    found: int
    #: Those of which a plan was made and followed.
    adopted: int
    #: Plans followed in place of a step's first one, which is made in a hurry.
    improved: int
    #: Steps that were recorded and for which no plan was found that recomputes about as little, or less.
    hopeless: int
    #: Plans given up, because more was recomputed with them than without them, or because steps took longer.
    given_up: int
    #: Whether a step is being planned now.
    under_way: bool
    #: Steps that were run as planned from the first op to the last.
    steps: int
    #: Ops that came as planned.
    ops: int
    #: Those of them that left no record, as nothing that they make is dropped.
    unrecorded: int
    #: Those of the latter that ran unwatched, as their results are gone again before an op with a record reads them.
    transient: int
    #: Planned steps that went on otherwise than planned.
    departures: int
    #: Blocks that were taken at the addresses of a plan; this and the next four are ``None`` unless ``pool="arena"``.
    placed: int | None
    #: Blocks of which the planned address was not free, and that were placed as without a plan.
    displaced: int | None
    #: Blocks that were copied to their places as a planned step began: once, and again after a departure.
    settled: int | None
    #: Blocks that were copied otherwise, in the steps that were run as planned.
    moves: int | None
    #: Searches for storages to evict, in these steps.
    searches: int | None
    #: Bytes of an arena that holds the plan made last, but for blocks below 1 KiB, and the most bytes that this plan
    #: counts at a time.
    placed_bytes: int | None
    planned_peak: int | None
    #: Overhead of the steps that were run as planned; ``None`` before the first.
    overhead: float | None
    #: Overhead in the plan made last; ``None`` before the first.
    planned_overhead: float | None
    #: Overhead of every schedule at least whose first runs are in program order, for that step.
    least_overhead: float | None

    def __str__(self) -> str:
        if self.overhead is None or self.planned_overhead is None or self.least_overhead is None:
            return "no step as planned"
        return (
            f"{self.steps} steps as planned, {self.overhead:.1%} recomputing "
            f"(plan {self.planned_overhead:.1%}, at least {self.least_overhead:.1%})"
            + ("" if self.placed is None else f", {self._places()}")
        )

    def _places(self) -> str:
        return (
            f"{self.placed} blocks placed as planned, {self.displaced} otherwise, "
            f"{self.moves} moved, {self.searches} searches"
        )


@dataclass(frozen=True)
class Stats:
    """Counters of a run: its peak, its evictions and replays, and the time that they took."""

    #: Bytes allowed on the device; ``None`` when unlimited.
    budget: int | None
    #: Most bytes in use at any moment: all storages on the device, and workspace of the op that ran.
    peak: int
    #: Bytes in use now, without workspace.
    used: int
    #: Storages dropped to make room.
    evictions: int
    #: Ops run again.
    recomputed: int
    #: Ops the program ran.
    ops: int
    #: Calls among them that reached the session through Python; with ``dispatch="native"`` those of new forms.
    through_python: int
    #: Ops that ran unwatched, because memory was plentiful: only what they took was counted.
    unwatched: int
    #: Seconds since the budget was entered.
    seconds: float
    #: Seconds of them spent recomputing.
    recompute_seconds: float
    #: Seconds of them spent choosing storages to evict and ops to replay.
    decide_seconds: float
    #: Seconds of them, about, that the session spent on ops otherwise: one op in 61 was timed. ``None`` for ops that
    #: came through Python.
    watch_seconds: float | None
    #: Ops whose records are kept now; the number stays bounded over a training run.
    records: int
    #: Storages known now.
    storages: int
    #: The way by which ops reached the session: ``"native"`` or ``"python"``.
    dispatch: str
    #: What native dispatch leaves to Python on this build of torch, each with the reason.
    left_to_python: tuple[str, ...] = ()
    #: Most bytes of main memory at any moment that tensors took, or freed blocks that were kept for the next ones;
    #: ``None`` where torch's own allocator served, which does not say.
    reserved: int | None = None
    #: Counters of the arena; ``None`` unless ``pool="arena"``.
    arena: ArenaStats | None = None
    #: Counters of planned steps; ``None`` unless ``plan="auto"``.
    plan: PlanStats | None = None

    @property
    def slowdown(self) -> float:
        """How many times as long the run took as without recomputing, deciding and watching; at most 1000."""
        added = self.recompute_seconds + self.decide_seconds + (self.watch_seconds or 0.0)
        seconds = max(self.seconds, 1e-9)
        return seconds / max(seconds - added, seconds / 1000)

    def __str__(self) -> str:
        fmt, seconds = _native.format_bytes, max(self.seconds, 1e-9)
        of = f" of {fmt(self.budget)} ({self.peak / self.budget:.1%})" if self.budget else ""
        return (
            f"peak {fmt(self.peak)}{of}, {self.evictions} evictions, {self.recomputed} ops recomputed beside "
            f"{self.ops}, {self.slowdown:.2f} times as long: {self.recompute_seconds / seconds:.1%} of the time "
            f"recomputing, {self.decide_seconds / seconds:.2%} deciding"
            + (f", {self.watch_seconds / seconds:.1%} watching" if self.watch_seconds is not None else "")
            + (f"; {self.arena}" if self.arena else "")
            + (f"; {self.plan}" if self.plan and (self.plan.found or self.plan.loaded) else "")
        )


@dataclass(frozen=True)
class Settings:
    """Choices that hold for a whole run."""

    #: Name of the eviction policy.
    policy: str
    #: Seed of the ``random`` policy.
    seed: int = 0
    #: Recomputing may cost so many times the program's own ops before the run gives up; ``None`` for no limit.
    thrash_limit: float | None = None
    #: File that the run is recorded in.
    trace: str | os.PathLike[str] | None = None
    #: File of the run's timeline.
    timeline: str | os.PathLike[str] | None = None
    #: The origin of an op's cost.
    costs: Costs = "measured"
    #: Whether steps that repeat are planned, and the files of plans.
    plans: Plans = NO_PLANS
    #: Whether the budget moves to the first accelerator that the program uses.
    follows_accelerator: bool = False


class _Mode(_native.Session, eager.TorchDispatchMode):  # type: ignore[misc]
    """The native session as a dispatch mode of torch."""

    def __init__(self, *_: Any) -> None:
        eager.TorchDispatchMode.__init__(self)


def _native_settings(settings: Settings, arena: Arena | None, dispatch: str) -> _native.Settings:
    # The session does not see reads of memory by threads that run already: then no block of an arena may move.
    alone = threading.active_count() == 1
    return {
        "policy": settings.policy,
        "seed": settings.seed,
        "thrash_limit": settings.thrash_limit,
        "costs": settings.costs,
        "plan": settings.plans.way,
        "plan_files": {
            "given": settings.plans.given,
            "out": settings.plans.out,
            "cache": settings.plans.cache,
        },
        "trace": settings.trace,
        "follow": "accelerator" if settings.follows_accelerator else "fixed",
        "always_recorded": always_recorded(),
        "natively": dispatch == "native",
        "memory": "fungible" if arena is None else "movable arena" if alone else "arena",
    }


def _timeline_of(path: str | os.PathLike[str] | None, mode: _Mode) -> TimelineFile | None:
    if path is None:
        return None
    from .._timeline.file import TimelineFile  # not above: most runs have none

    eager.passes_known()
    return TimelineFile(path, mode)


@functools.cache
def _layout() -> tuple[int, int]:
    return eager.probe_layout()


def _require_gil() -> None:
    """Refuses a build of Python without the GIL: it keeps objects otherwise, and the native part relies on the lock."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        version = platform.python_version()
        raise RematError(f"Python {version} is a free-threaded build, and Remat relies on the GIL: use a build with it")


class Run:
    """A budget in force; :class:`remat.budget` makes it.

    >>> import torch, remat
    >>> with remat.budget("64MiB") as run:
    ...     x = torch.ones(1024).exp()
    >>> run.stats().ops >= 2
    True
    """

    def __init__(self, budgets: list[DeviceBudget], settings: Settings, arena: Arena | None = None) -> None:
        self._budgets = budgets
        self._arena = arena
        _require_gil()
        with eager.as_usual():  # torch is probed
            way = way_for()
            self._mode = _Mode(eager, _layout(), budgets, _native_settings(settings, arena, way.name))
            self._dispatch: Dispatch = way(self._mode)
        self._escapes = Escapes(self._mode, self._in_thread, self._dispatch.name)
        self._optimizers = Optimizers(self._mode)
        self._timeline = _timeline_of(settings.timeline, self._mode)
        self._trace = settings.trace
        self._caching = None if arena is not None else Caching(budgets)
        self._pid = os.getpid()
        self._final: Stats | None = None
        #: Bytes that were resident when the budget was entered.
        self.base = 0

    def stats(self) -> Stats:
        """Counters up to now, and after the end of the budget those of the whole run.

        Raises :class:`remat.RematError` from within an op, such as from an op written in Python.
        """
        if self._final is not None:
            return self._final
        raw = self._mode.stats()
        names = [name for name in Stats.__dataclass_fields__ if name in raw]
        arena = self._arena.stats(raw) if self._arena else None
        way = self._dispatch.name
        left = eager.parts_through_python() if way == "native" else ()
        plan = raw.pop("plan")
        names.remove("plan")
        planned = PlanStats(**plan) if plan is not None else None
        counters = {name: raw[name] for name in names}
        if way == "python":
            counters["watch_seconds"] = None
        else:
            # One op in so many stands for all, so it may come to more than the rest.
            rest = raw["seconds"] - raw["recompute_seconds"] - raw["decide_seconds"]
            counters["watch_seconds"] = min(raw["watch_seconds"], max(rest, 0.0))
        reserved = self._caching.most() if self._caching is not None else None
        return Stats(**counters, dispatch=way, left_to_python=left, reserved=reserved, arena=arena, plan=planned)

    def set_budget(self, budget: Budget, device: str | torch.device | None = None) -> None:
        """Changes the budget of a device, in bytes, from here on; without ``device`` that of the first device.

        Raises :class:`remat.BudgetError` if the storages that cannot be dropped do not fit, ``ValueError`` for a
        budget that makes no sense, for a device without a budget and in an arena, which keeps its size, and
        :class:`remat.RematError` from within an op and once the run has ended.
        """
        if _active is not self:
            raise RematError(f"budget {budget!r}: the run has ended, so no budget is in force; enter another one")
        where = self._budgets[0].device if device is None else device_of(device)
        size = bounded(budget, where)
        if self._arena is not None:
            raise ValueError(
                f"budget {budget!r}: an arena keeps its size while it is open; leave the budget and enter another"
            )
        name = eager.device_name(where) if device is not None else None
        for pool, known in enumerate(self._budgets):
            if name is None or known.name == name:
                with eager.below_autograd():
                    self._mode.set_budget(pool, size)
                return
        raise ValueError(f"no budget was set for {device!r}: the run has {[known.name for known in self._budgets]}")

    def step(self) -> None:
        """Says that a step of training begins here, to be called at the same place of each step.

        Steps that repeat are found without it, unless they leave more behind from step to step than a few values,
        such as a log of activations. From the first call on, what is planned are the steps between two calls, or up
        to eight of them in a row.

        Raises :class:`remat.RematError` from within an op.

        >>> import torch, remat
        >>> weight = torch.ones(8, 8, requires_grad=True)
        >>> with remat.budget("64MiB") as run:
        ...     for _ in range(3):
        ...         run.step()
        ...         weight.exp().sum().backward()
        """
        self._mode.mark_step()

    def mark(self, name: str) -> None:
        """Writes a name into the trace, e.g. at every step; without a trace nothing is written.

        Raises :class:`remat.RematError` from within an op.
        """
        self._mode.mark(name)

    def _adopt(self) -> None:
        """Puts the tensors that exist already under the budget, and opens the arena beside them."""
        storages: dict[int, torch.UntypedStorage] = {}
        for tensor in live_tensors():
            storage = eager.TensorBase.untyped_storage(tensor)
            storages.setdefault(storage._cdata, storage)
        totals = dict.fromkeys((budget.name for budget in self._budgets), 0)
        for storage in storages.values():
            name = eager.device_name(storage.device)
            if name in totals:
                totals[name] += storage.nbytes()
        for name, _, size in self._budgets:
            least = totals[name] if self._arena is not None else _native.budget_that_holds(totals[name])
            if size is not None and least > size:
                what, suggested = "what exists already (parameters, data)", _native.with_headroom(least, size)
                raise BudgetError(what, least, least, size, name, suggested=suggested)
        self.base = totals[self._budgets[0].name]
        if self._arena is not None:
            self._open_arena(self._arena)
        for storage in storages.values():
            self._mode.adopt(storage)
        if self._timeline is not None:
            self._timeline.adopted()

    def _open_arena(self, arena: Arena) -> None:
        """Opens an arena of the budget without the bytes of existing tensors; ``BudgetError`` if no block is left."""
        size, least = self._budgets[0].bytes or 0, self.base + SMALLEST_ARENA
        if size < least:
            raise BudgetError("one block beside the tensors that exist already", least, least, size, "cpu")
        arena.open(size - self.base)
        self._mode.enter_arena(arena.read().capacity)

    def _in_thread(self, run: Callable[[], None]) -> None:
        """Runs the body of a thread that was started inside the budget."""
        if self._final is not None or (os.getpid() != self._pid and _active is not self):
            run()
            return
        with self._dispatch.in_thread():
            run()

    def _start(self) -> None:
        """Enters the budget; ``RematError`` if another one is active."""
        global _active
        with _lock:
            if _active is not None:
                raise RematError("a budget is active already: budgets do not nest; use run.set_budget to change it")
            _active = self
        with ExitStack() as undo:  # from the last to the first, whatever fails
            undo.callback(self._end)
            undo.callback(self._mode.restore)
            undo.callback(self._close_arena)
            if self._timeline is not None:
                self._timeline.start()
                undo.callback(self._timeline.stop)
            if self._caching is not None:
                self._caching.enter()
                undo.callback(self._caching.leave)
            with eager.below_autograd():
                self._adopt()
            self._dispatch.enter()
            undo.callback(self._dispatch.leave)
            undo.callback(self._escapes.remove)
            self._escapes.install()
            self._optimizers.watch()
            undo.callback(self._optimizers.leave)
            if self._timeline is not None:
                self._terminated = at_signal(lambda _: self._write_timeline())
            undo.pop_all()

    def _stop(self) -> None:
        """Leaves the budget: all that was evicted is resident again. ``OSError`` if the trace cannot be written."""
        if os.getpid() != self._pid:
            self._leave_in_child()
            return
        timeline = self._timeline
        told: str | None = None
        stats: Stats | None = None
        troubles: list[str] = []
        failed: OSError | None = None

        def restore() -> None:
            nonlocal failed
            failed = unwritten("trace", self._trace, self._restore)

        def end() -> None:
            self._dispatch.forget()
            if self._caching is not None:
                self._caching.leave()
            self._final = stats
            self._end()
            if timeline is not None:
                try:
                    timeline.write(told, self._about(stats))
                finally:
                    self._terminated()

        with ExitStack() as ending:  # from the last to the first, whatever fails
            ending.callback(end)
            ending.callback(restore)
            ending.callback(self._close_arena)  # the tensors that are brought back now may be more than it holds
            self._dispatch.leave()
            self._escapes.remove()
            self._optimizers.leave()
            told = timeline.stop() if timeline is not None else None
            stats = self.stats()
            troubles = self._mode.close_plans()
        try:
            for trouble in troubles:
                warn(f"remat: {trouble}")
        finally:
            if failed is not None:
                raise failed

    def _restore(self) -> None:
        """Brings back all that was evicted."""
        with eager.below_autograd():
            self._mode.restore()

    def _end(self) -> None:
        """Lets another budget be entered."""
        global _active
        _active = None

    def _about(self, stats: Stats | None) -> dict[str, Any]:
        """The run as a whole, for its timeline."""
        name, _, size = self._budgets[0]
        told = {"device": name, "budget": size}
        return told if stats is None else {**asdict(stats), "slowdown": stats.slowdown, **told, "budget": stats.budget}

    def _write_timeline(self) -> None:
        """Writes the timeline before a signal ends the program, maybe amid an op."""
        if self._timeline is None:
            return
        try:
            stats = self.stats()
        except RuntimeError:
            stats = None
        self._timeline.write(self._timeline.stop(), self._about(stats))

    def _close_arena(self) -> None:
        if self._arena is not None:
            self._mode.leave_arena()
            self._arena.close()

    def _forked(self) -> bool:
        """Goes on in a forked child without a budget: evicted tensors are computed there when they are touched.

        Returns whether the child can do that: not if another thread of the parent was amid an op.
        """
        if self._caching is not None:
            self._caching.leave()
        if self._mode.forked():
            return True
        self._dispatch.drop()
        self._escapes.remove()
        return False

    def _leave_in_child(self) -> None:
        """Leaves the budget in a forked child, whose parent is still inside."""
        if _active is self:
            self._end()
            self._dispatch.leave()
            self._escapes.remove()
            self._optimizers.leave()
            self._restore()


def leave_in_child() -> None:
    """Leaves the budget in force, if this is a forked child of the process that is inside it."""
    if _active is not None and os.getpid() != _active._pid:
        _active._leave_in_child()


def _after_fork() -> None:
    global _active
    if _active is not None and not _active._forked():
        _active = None


os.register_at_fork(after_in_child=_after_fork)
