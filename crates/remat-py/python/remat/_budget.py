"""``remat.budget``: a byte budget around any part of a program."""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import torch

from . import _native
from . import _torch_seam as seam
from ._arena import DEFAULT_POLICIES, SMALLEST_ARENA, Arena, ArenaStats, check_pool
from ._errors import BudgetError, RematError
from ._escape import Escapes

Budget = str | int
F = TypeVar("F", bound=Callable[..., Any])

_lock = threading.Lock()
_active: Run | None = None


@dataclass(frozen=True)
class Stats:
    """What a run did and what it cost."""

    #: Bytes allowed on the device; ``None`` when unlimited.
    budget: int | None
    #: Most bytes in use at any moment: every storage on the device, and workspace.
    peak: int
    #: Storages dropped to make room.
    evictions: int
    #: Ops run again.
    recomputed: int
    #: Ops the program ran.
    ops: int
    #: Seconds since the budget was entered.
    seconds: float
    #: Seconds of them spent recomputing.
    recompute_seconds: float
    #: Seconds of them spent deciding what to evict and replay.
    decide_seconds: float
    #: Ops remembered now; stays bounded over a training run.
    records: int
    #: Storages known now.
    storages: int
    #: What the allocator saw; ``None`` unless ``pool="arena"``.
    arena: ArenaStats | None = None

    def __str__(self) -> str:
        fmt, seconds = _native.format_bytes, max(self.seconds, 1e-9)
        of = f" of {fmt(self.budget)} ({self.peak / self.budget:.1%})" if self.budget else ""
        return (
            f"peak {fmt(self.peak)}{of}, {self.evictions} evictions, {self.recomputed} ops recomputed beside "
            f"{self.ops}, {self.recompute_seconds / seconds:.1%} of the time recomputing, "
            f"{self.decide_seconds / seconds:.2%} deciding" + (f"; {self.arena}" if self.arena else "")
        )


class _Mode(_native.Session, seam.TorchDispatchMode):  # type: ignore[misc]
    """The native session as a torch dispatch mode."""

    def __init__(self, *_: Any) -> None:
        seam.TorchDispatchMode.__init__(self)


def bytes_of(budget: Budget) -> int:
    """A budget in bytes; ``ValueError`` says what is wrong with it."""
    if isinstance(budget, bool) or not isinstance(budget, (str, int)):
        raise ValueError(f"budget {budget!r}: expected bytes as an int or a text such as '6GiB'")
    return _native.parse_bytes(str(budget) if isinstance(budget, int) else budget)


def _physical(device: torch.device) -> int:
    if device.type == "cpu":
        return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return 1 << 62


def _default_device() -> torch.device:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _device(asked: str | torch.device) -> torch.device:
    """The device of that name; ``ValueError`` lists those there are."""
    there = seam.devices()
    try:
        device = torch.device(asked)
        name = f"{device.type}:0" if device.index is None and device.type != "cpu" else seam.device_name(device)
    except (RuntimeError, TypeError):
        name = ""
    if name not in there:
        raise ValueError(f"device {str(asked)!r} is not there: expected one of {', '.join(there)}")
    return device


def _budgets(
    budget: Budget | Mapping[str, Budget] | None, device: str | torch.device | None
) -> list[tuple[str, torch.device, int | None]]:
    """Name, device and bytes of each budget."""
    pairs: list[tuple[torch.device, Budget | None]]
    budgets: list[tuple[str, torch.device, int | None]] = []
    if isinstance(budget, Mapping):
        if device is not None:
            raise ValueError("give the devices in the mapping of budgets or as device=, not both")
        if not budget:
            raise ValueError("no budget given: expected e.g. {'cuda': '6GiB'}")
        pairs = [(_device(name), amount) for name, amount in budget.items()]
    else:
        pairs = [(_device(device) if device is not None else _default_device(), budget)]
    for where, amount in pairs:
        size = None if amount is None else bytes_of(amount)
        if size is not None and size > _physical(where):
            fmt = _native.format_bytes
            raise ValueError(
                f"budget {amount!r} is above the physical memory of {where} ({fmt(_physical(where))}); "
                "a budget can only lower what torch would take"
            )
        budgets.append((seam.device_name(where), where, size))
    return budgets


def _check_arena(budgets: list[tuple[str, torch.device, int | None]]) -> None:
    """``ValueError`` for a budget that is no arena's."""
    if [name for name, _, _ in budgets] != ["cpu"]:
        names = ", ".join(name for name, _, _ in budgets)
        raise ValueError(f"pool 'arena' bounds the CPU's tensors, the budget is of {names}: give one budget, of 'cpu'")


def live_tensors() -> list[torch.Tensor]:
    """Every tensor that Python can reach, gradients included, of the kinds that have a storage."""
    found = []
    for value in gc.get_objects():
        if not issubclass(type(value), torch.Tensor) or seam.classify(type(value)) not in (0, 3):
            continue
        found.append(value)
        if value.is_leaf and value.grad is not None:
            found.append(value.grad)
    return [
        part for t in found if t.device.type != "meta" for part in ([t] if t.layout == torch.strided else seam.parts(t))
    ]


@functools.cache
def _layout() -> tuple[int, int]:
    return seam.probe_layout()


class Run:
    """A budget in force; made by :func:`budget`."""

    def __init__(
        self,
        budgets: list[tuple[str, torch.device, int | None]],
        policy: str,
        seed: int,
        thrash_limit: float | None,
        trace: str | os.PathLike[str] | None,
        follow: bool,
        arena: Arena | None = None,
    ) -> None:
        self._budgets = budgets
        self._arena = arena
        # What threads that run already read is nothing the session sees: it stays where it is.
        alone = threading.active_count() == 1
        settings: _native.Settings = {
            "policy": policy,
            "seed": seed,
            "thrash_limit": thrash_limit,
            "trace": trace,
            "follow": "accelerator" if follow else "fixed",
            "memory": "fungible" if arena is None else "movable arena" if alone else "arena",
        }
        self._mode = _Mode(seam, _layout(), budgets, settings)
        self._escapes = Escapes(self._mode, self._in_thread)
        self._pid = os.getpid()
        self._final: Stats | None = None
        #: Bytes that were resident when the budget was entered.
        self.base = 0

    def stats(self) -> Stats:
        """What happened so far."""
        if self._final is not None:
            return self._final
        raw = self._mode.stats()
        names = [name for name in Stats.__dataclass_fields__ if name != "arena"]
        return Stats(**{name: raw[name] for name in names}, arena=self._arena.stats(raw) if self._arena else None)

    def set_budget(self, budget: Budget, device: str | torch.device | None = None) -> None:
        """Changes the budget from here on. ``BudgetError`` if what cannot be dropped does not fit."""
        size = bytes_of(budget)
        if self._arena is not None:
            raise ValueError(
                f"budget {budget!r}: an arena keeps its size while it is open; leave the budget and enter another"
            )
        name = seam.device_name(_device(device)) if device is not None else None
        for pool, (known, _, _) in enumerate(self._budgets):
            if name is None or known == name:
                with seam.below_autograd():
                    self._mode.set_budget(pool, size)
                return
        raise ValueError(f"no budget was set for {device!r}: the run has {[b[0] for b in self._budgets]}")

    def mark(self, name: str) -> None:
        """Writes a name into the trace, e.g. at every step."""
        self._mode.mark(name)

    def _adopt(self) -> None:
        """Takes in the tensors that exist already."""
        tensors = live_tensors()
        names = {name: size for name, _, size in self._budgets}
        totals: dict[str, int] = dict.fromkeys(names, 0)
        storages: dict[int, torch.UntypedStorage] = {}
        for tensor in tensors:
            storage = seam.TensorBase.untyped_storage(tensor)
            if storage._cdata not in storages:
                storages[storage._cdata] = storage
                name = seam.device_name(storage.device)
                if name in totals:
                    totals[name] += storage.nbytes()
        for name, total in totals.items():
            size = names[name]
            if size is not None and total > size:
                raise BudgetError("tensors that exist already (parameters, data)", total, total, size, name)
        self.base = totals[self._budgets[0][0]]
        if self._arena is not None:
            size, least = self._budgets[0][2] or 0, self.base + SMALLEST_ARENA
            if size < least:
                raise BudgetError("one block beside the tensors that exist already", least, least, size, "cpu")
            self._arena.open(size - self.base)
            self._mode.enter_arena(self._arena.read().capacity)
        for storage in storages.values():
            self._mode.adopt(storage)

    def _in_thread(self, run: Callable[[], None]) -> None:
        """Runs a thread's body under the budget."""
        if self._final is not None or (os.getpid() != self._pid and _active is not self):
            run()
            return
        seam.push_mode(self._mode)
        try:
            run()
        finally:
            seam.pop_mode()

    def _start(self) -> None:
        global _active
        with _lock:
            if _active is not None:
                raise RematError("a budget is active already: budgets do not nest; use run.set_budget to change it")
            _active = self
        try:
            with seam.below_autograd():
                self._adopt()
            self._mode.__enter__()
        except BaseException:
            _active = None
            self._close_arena()
            self._mode.restore()
            raise
        self._escapes.install()

    def _stop(self) -> None:
        global _active
        if os.getpid() != self._pid:
            self._leave_in_child()
            return
        self._mode.__exit__(None, None, None)
        self._escapes.remove()
        try:
            stats = self.stats()
            self._close_arena()  # what is brought back now may be more than it holds
            with seam.below_autograd():
                self._mode.restore()
        finally:
            self._final = stats
            _active = None

    def _close_arena(self) -> None:
        if self._arena is not None:
            self._mode.leave_arena()
            self._arena.close()

    def _forked(self) -> bool:
        """In a forked child: the budget is the parent's, but what was evicted is computed here when it is touched.

        Returns whether it can be: not if another thread was amid an op.
        """
        if self._mode.forked():
            return True
        seam.drop_mode(self._mode)
        self._escapes.remove()
        return False

    def _leave_in_child(self) -> None:
        """The child of a fork comes to the end of the budget too."""
        global _active
        if _active is self:
            _active = None
            self._mode.__exit__(None, None, None)
            self._escapes.remove()
            with seam.below_autograd():
                self._mode.restore()


def _after_fork() -> None:
    global _active
    if _active is not None and not _active._forked():
        _active = None


os.register_at_fork(after_in_child=_after_fork)


class budget:
    """Keeps every tensor storage on a device, and the workspace of the running op, inside a number of bytes.

    A context manager (``with remat.budget("2GiB") as run:``) and a decorator (``@remat.budget("2GiB")``).

    ``budget`` is an int (bytes) or a text (``"6GiB"``, ``"512MB"``), or a mapping from devices to such.
    ``policy`` names the eviction policy (``remat.policies()``; by default ``"dtr-anc"``, in an arena ``"coop"``);
    ``device`` the device, by default the accelerator if one is in use, else the CPU; ``trace`` a file to record the
    run in (``.zst`` and ``.gz`` are packed); ``seed`` seeds the ``random`` policy; ``thrash_limit`` gives up when
    recomputing has cost that many times what the program's own ops cost.

    ``pool`` says what bounds memory: ``"fungible"`` counts bytes; ``"arena"`` places all tensors and workspace that
    the CPU gets from here on in one arena of exactly ``budget`` bytes (less those of tensors that exist already and
    lie outside of it), where evictions free blocks side by side. The allocator must be preloaded: ``remat run --pool
    arena``, or ``LD_PRELOAD`` with :func:`arena_library`.

    Raises ``ValueError`` for a budget or policy that makes no sense, :class:`BudgetError` when what exists already
    does not fit or, later, when an op does not; :class:`RematError` when budgets are nested.
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
    ) -> None:
        check_pool(pool)
        policy = policy or DEFAULT_POLICIES[pool]
        _native.check_policy(policy)
        if thrash_limit is not None and not thrash_limit > 0:
            raise ValueError(f"thrash_limit {thrash_limit!r}: expected a number above 0, e.g. 2.0")
        budgets = _budgets(budget, device)  # complains now rather than at entry
        self._pool = pool
        if pool == "arena":
            _check_arena(budgets)
        self._budget, self._device = budget, device
        self._policy, self._trace, self._seed, self._thrash = policy, trace, seed, thrash_limit
        self._follow = False
        self._run: Run | None = None

    def __enter__(self) -> Run:
        if self._run is not None:
            raise RematError("this budget is active already: budgets do not nest")
        run = Run(
            _budgets(self._budget, self._device),
            self._policy,
            self._seed,
            self._thrash,
            self._trace,
            self._follow,
            Arena() if self._pool == "arena" else None,
        )
        run._start()
        self._run = run
        return run

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        run, self._run = self._run, None
        if run is not None:
            run._stop()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def under_budget(*args: Any, **kwargs: Any) -> Any:
            fresh = budget(
                self._budget,
                policy=self._policy,
                device=self._device,
                trace=self._trace,
                seed=self._seed,
                thrash_limit=self._thrash,
                pool=self._pool,
            )
            with fresh:
                return function(*args, **kwargs)

        return under_budget  # type: ignore[return-value]
