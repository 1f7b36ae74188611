"""Graphs that Inductor compiled, as ops: a budget sees one op with tensors in and out, which it can run again.

The kernels of a compiled graph allocate, read and write without torch's dispatcher. Inside of a budget each run of a
graph is therefore a call of an op of Remat's own. What code around the graphs does (views, copies into inputs that
the program changed) is dispatched as ever.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.utils._pytree as pytree

from ... import _native
from ..._errors import RematError
from ..._interrupts import raise_interrupt
from ..eager import OWN_PREDICTIONS, estimate_workspace
from .generated_code import Call, dry_run

_MODULE = "torch._inductor.output_code"


class _Graphs:
    """The graphs that ran inside of the budget, by number. Records name them, so they stay until it is left."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._graphs: list[Any] = []
        #: The ops of each graph: as it is called, and to leave tensors alone that the graph writes.
        self._ops: list[tuple[Any, Any]] = []
        #: What a graph returns, by number and given sizes.
        self._results: dict[tuple[int, tuple[int, ...]], list[Any]] = {}

    def number(self, graph: Any) -> int:
        number = self._numbers.setdefault(id(graph), len(self._graphs))
        if number == len(self._graphs):
            self._graphs.append(graph)
            way = "_by_data" if _SIZED_BY_DATA.search(graph.source_code) else ""
            ops = (getattr(torch.ops.remat, f"compiled_graph{aside}{way}") for aside in ("", "_aside"))
            self._ops.append(tuple(ops))
        return number

    def run(self, number: int, read: list[Any], written: list[Any], sizes: list[int]) -> list[torch.Tensor]:
        """The kernel of the op; returns the tensors that the graph made."""
        graph = self._graphs[number]
        results = _plainly(graph, _together(graph, read, written, sizes))
        known, made = [*read, *written], []
        described: list[Any] = []
        for one in results:
            base = next((i for i, other in enumerate(known) if _share(one, other)), None)
            if base is not None:
                described.append(_View(base, tuple(one.shape), one.stride(), one.storage_offset()))
            elif isinstance(one, torch.Tensor):
                described.append(_View(len(known), None, (), 0))
                known.append(one)
                made.append(one)
            else:
                described.append(one)
        self._results[number, tuple(sizes)] = described
        return made

    def run_aside(self, number: int, read: list[Any], before: list[Any], sizes: list[int]) -> list[torch.Tensor]:
        """As :meth:`run`, but leaves the tensors alone that the graph writes, and returns the new ones first."""
        after = [one.clone() for one in before]
        return [*after, *self.run(number, read, after, sizes)]

    def call(self, graph: Any, inputs: list[Any]) -> list[Any]:
        """Calls the op in place of the graph."""
        _check(graph, inputs)
        number, (read, written, sizes) = self.number(graph), _apart(graph, inputs)
        op, op_aside = self._ops[number]
        inputs.clear()  # the caller gave them away
        if written and sum(one.nbytes for one in written) <= _SMALL:
            # Running statistics: in place, their old values would be lost, and the graph could not run again.
            before = [one.clone() for one in written]
            made = op_aside(number, read, before, sizes)
            for one, new in zip(written, made, strict=False):
                one.copy_(new)
            made = made[len(written) :]
        else:
            made = op(number, read, written, sizes)
        known = [*read, *written, *made]
        return [one.of(known) if isinstance(one, _View) else one for one in self._results[number, tuple(sizes)]]

    def predict(self, number: int, read: list[Any], written: list[Any], sizes: list[int]) -> tuple[int, int]:
        """Bytes of the results and workspace of a run, from the Python that Inductor generated around the kernels.

        Raises whatever that code raises without memory.
        """
        graph = self._graphs[number]
        taken = dry_run(graph.source_code, _together(graph, read, written, sizes), lambda name: False)
        most = max([taken.peak, *(call.there + _workspace(call) for call in taken.calls)])
        return taken.after, most - taken.after


#: Inductor's names for the numbers that a graph reads from tensors: a size may be one, or be computed from one.
_SIZED_BY_DATA = re.compile(r"^\s*z?uf?\d+ = ", re.MULTILINE)
#: Bytes of the tensors written by a graph, up to which the graph gets copies of them.
_SMALL = 1 << 16


def _check(graph: Any, inputs: Sequence[Any]) -> None:
    """Raises ``RematError`` for a graph that cannot be an op."""
    if not all(isinstance(one, (torch.Tensor, int)) for one in inputs):
        kinds = sorted({type(one).__name__ for one in inputs if not isinstance(one, (torch.Tensor, int))})
        raise RematError(f"a compiled graph with inputs of type {', '.join(kinds)} cannot run inside of a budget")
    if graph.cudagraph_info is not None and not graph.disabled_cudagraphs_reason:
        raise RematError(
            "a graph compiled for CUDA graphs cannot run inside of a budget, which moves and evicts tensors; "
            'compile without mode="reduce-overhead"'
        )


def _workspace(call: Call) -> int:
    """Bytes that an op outside of kernels needs beyond its arguments and results, at most."""
    tensors = [leaf for leaf in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(leaf, torch.Tensor)]
    read = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    made = {tensor.dtype for tensor in tensors}
    return estimate_workspace(call.op, call.args, call.kwargs, tensors, read, 0, made).bytes


@dataclass(frozen=True)
class _View:
    """A tensor among those given to an op and made by it, or a view of one. An op may not return what it was given."""

    base: int
    #: ``None`` for the tensor itself.
    shape: tuple[int, ...] | None
    stride: tuple[int, ...]
    offset: int

    def of(self, known: Sequence[torch.Tensor]) -> torch.Tensor:
        base = known[self.base]
        return base if self.shape is None else base.as_strided(self.shape, self.stride, self.offset)


def _share(one: Any, other: torch.Tensor) -> bool:
    return isinstance(one, torch.Tensor) and one.untyped_storage()._cdata == other.untyped_storage()._cdata


def _apart(graph: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], list[int]]:
    """Inputs that are read, those that are written, and sizes."""
    read: list[Any] = []
    written: list[Any] = []
    sizes: list[int] = []
    for place, one in enumerate(inputs):
        if not isinstance(one, torch.Tensor):
            sizes += [place, one]
        else:
            (written if place in graph.mutated_input_idxs else read).append(one)
    return read, written, sizes


def _together(graph: Any, read: Sequence[Any], written: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """The inputs that :func:`_apart` took apart."""
    numbers = dict(zip(sizes[::2], sizes[1::2], strict=True))
    reads, writes = iter(read), iter(written)
    inputs: list[Any] = []
    for place in range(len(read) + len(written) + len(numbers)):
        if place in numbers:
            inputs.append(numbers[place])
        else:
            inputs.append(next(writes if place in graph.mutated_input_idxs else reads))
    return inputs


#: The graphs of the budget that was entered last, also while it is left: tensors come back by running some again.
_latest = _Graphs()
_in_force = False
_library: Any = None
_plainly: Any = None


def _define() -> None:
    """Defines the op, once. A graph may draw random numbers: the generators' states go with every record."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("remat", "FRAGMENT")
    kernels = {
        "compiled_graph": ("Tensor(a!)[] written", lambda *args: _latest.run(*args)),
        "compiled_graph_aside": ("Tensor[] before", lambda *args: _latest.run_aside(*args)),
    }
    for base, (written, kernel) in kernels.items():
        for name, tags in ((base, ()), (f"{base}_by_data", (torch.Tag.dynamic_output_shape,))):
            schema = f"{name}(int graph, Tensor[] read, {written}, int[] sizes) -> Tensor[]"
            _library.define(schema, tags=(torch.Tag.nondeterministic_seeded, *tags))
            _library.impl(name, kernel, "CompositeExplicitAutograd")
            OWN_PREDICTIONS[f"remat::{name}"] = _predict


def _predict(args: tuple[Any, ...]) -> tuple[int, int] | None:
    try:
        return _latest.predict(*args)
    except Exception as error:  # the code may do without memory whatever it likes
        raise_interrupt(error)
        return None


class CompiledGraphs:
    """Has runs of compiled graphs be ops, from :meth:`enter` to :meth:`leave`."""

    def __init__(self) -> None:
        self._here = threading.local()

    def enter(self) -> None:
        """Begins."""
        global _latest, _in_force
        _define()
        _latest, _in_force = _Graphs(), True
        # Not its lists of callbacks, which `torch._dynamo.reset()` empties.
        handler = _callbacks()
        start, end = handler.run_start_callbacks, handler.run_end_callbacks

        def starting(args: Any) -> None:
            self._compiling()
            start(args)

        def ended(args: Any) -> None:
            end(args)
            self._compiled()

        handler.run_start_callbacks, handler.run_end_callbacks = starting, ended
        if _MODULE in sys.modules:
            _replace(sys.modules[_MODULE])

    def leave(self) -> None:
        """Ends: graphs run as compiled."""
        global _in_force
        handler = _callbacks()
        del handler.run_start_callbacks, handler.run_end_callbacks
        _in_force = False

    def forget(self) -> None:
        """Lets go of the graphs that ran: nothing runs again."""
        global _latest
        _latest = _Graphs()

    def _compiling(self) -> None:
        """Compiling is out of the budget's sight: it traces tensors without memory, and tries kernels."""
        _replace(importlib.import_module(_MODULE))
        self._here.paused = _native.pause_native(True)

    def _compiled(self) -> None:
        _native.pause_native(self._here.paused)


def _callbacks() -> Any:
    """The object that Dynamo tells of the beginning and the end of each compilation."""
    from torch._dynamo.callback import callback_handler

    return callback_handler


def _replace(module: ModuleType) -> None:
    """Has graphs ask whether a budget is in force, once for the process."""
    global _plainly
    if _plainly is not None:
        return
    kind = module.CompiledFxGraph
    _plainly = kind.__call__

    def call(graph: Any, inputs: Any) -> Any:
        if not _in_force or not _native.reaches_session():
            return _plainly(graph, inputs)
        return _latest.call(graph, inputs)

    kind.__call__ = call
