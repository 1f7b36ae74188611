"""Ways to a tensor's bytes that torch does not dispatch.

``numpy()``, ``data_ptr()``, DLPack, pickling and raw storages hand out memory that later ops may use without the
session seeing it. While a budget is active they first make the storage resident and pin it: it is never evicted again.
Copies of storages (``deepcopy``) and states of generators come into being without an op. The session makes room for
them and counts them at once. Some functions read index tensors by raw pointer before any op; these are pinned too.

Settings of torch that are costly to read are read again once they changed. Threads that are started inside a budget run
under it too. Loading a model's state tells a refusal as what it is, not as an error in the state. Capturing a graph of
device work is refused: its replays would use the addresses that tensors had then.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .. import _native
from .._errors import RematError, refusals_reraised
from .._torch_internals import eager

#: Attributes of ``torch.Tensor`` that expose memory.
_METHODS = (
    "numpy", "data_ptr", "tolist", "__array__", "__dlpack__", "untyped_storage", "storage", "_typed_storage",
    "share_memory_", "__reduce_ex__", "__deepcopy__", "pin_memory", "const_data_ptr", "mutable_data_ptr",
)  # fmt: skip
_PROPERTIES = ("__cuda_array_interface__",)

# Functions that read tensors of indices on the CPU by raw pointer, above the dispatcher: places to split at, and the
# `batch_sizes` of packed sequences.
_INDEXED: list[tuple[Any, str]] = [
    *((owner, "tensor_split") for owner in (torch, torch.Tensor)),
    *((owner, name) for owner in (torch, torch._VF) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
]

#: Classes of captured graphs, by module; not every release of torch has all.
_CAPTURES = ((torch.cuda, "CUDAGraph"), (torch.xpu, "XPUGraph"), (getattr(torch, "accelerator", None), "Graph"))

_STATE_BYTES = torch.get_rng_state().nbytes

Expose = Callable[[torch.UntypedStorage], None]


def expose_tensor(expose: Expose, tensor: Any) -> None:
    """Pins the storage of a tensor, if it has one."""
    try:
        storage = eager.TensorBase.untyped_storage(tensor)
    except (NotImplementedError, RuntimeError, TypeError):
        return  # sparse, functional, meta: the session knows no such storages
    expose(storage)


def _is_known(storage: torch.UntypedStorage) -> bool:
    """Whether a session counts the storage: it then watches its end."""
    return _native.is_watched(storage._cdata) or any(
        isinstance(ref.__callback__, _native.Deaths) for ref in weakref.getweakrefs(storage)
    )


def _refuse_capture(graph: Any, *_args: Any, **_kwargs: Any) -> None:
    raise RematError(
        f"{type(graph).__name__}.capture_begin inside of a budget: the graph's replays would use the addresses of "
        "tensors that are evicted; capture it before the budget is entered, or run without capturing"
    )


class Escapes:
    """The patches of torch that are in place while a budget is active."""

    def __init__(
        self, session: _native.Session, in_thread: Callable[[Callable[[], None]], None], dispatch: str
    ) -> None:
        self._session = session
        self._in_thread = in_thread
        self._dispatch = dispatch
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Puts the patches in place."""
        for name in _METHODS:
            if hasattr(torch.Tensor, name):
                self._patch_function(torch.Tensor, name)
        for name in _PROPERTIES:
            self._patch_property(torch.Tensor, name)
        for owner, name in (
            (torch.utils.dlpack, "to_dlpack"),
            (torch, "to_dlpack"),
            (torch._C, "_to_dlpack"),
        ):
            if hasattr(owner, name):
                self._patch_function(owner, name)
        for owner, name in _INDEXED:
            self._patch_indexed(owner, name)
        if self._dispatch == "native":  # with a dispatch mode it is made of ops that are dispatched
            self._patch_pooling()
        self._patch_copies()
        for owner in (torch, torch.random):
            self._patch_state(owner)
        self._patch_resize()
        self._patch_threads()
        self._patch_loading()
        for module, kind in _CAPTURES:
            if hasattr(getattr(module, kind, None), "capture_begin"):
                self._replace(getattr(module, kind), "capture_begin", _refuse_capture)
        for name in eager.SETTERS:
            self._patch_setter(name)

    def remove(self) -> None:
        """Takes them back, last first."""
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        own = name in vars(owner)
        before = vars(owner).get(name)

        def undo() -> None:
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

        setattr(owner, name, value)
        self._undo.append(undo)

    def _expose(self, storage: torch.UntypedStorage) -> None:
        with eager.below_autograd():
            self._session.expose(storage)

    def _patch_function(self, owner: Any, name: str) -> None:
        original, expose = getattr(owner, name), self._expose

        @functools.wraps(original)
        def exposing(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            expose_tensor(expose, tensor)
            return original(tensor, *args, **kwargs)

        self._replace(owner, name, exposing)

    def _patch_indexed(self, owner: Any, name: str) -> None:
        original, expose = getattr(owner, name), self._expose

        @functools.wraps(original)
        def reading(*args: Any, **kwargs: Any) -> Any:
            for value in (*args[1:], *kwargs.values()):
                if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.device.type == "cpu":
                    expose_tensor(expose, value)
            return original(*args, **kwargs)

        self._replace(owner, name, reading)

    def _patch_pooling(self) -> None:
        """On the CPU and without autograd, ``max_pool1d`` reads its argument by raw pointer, above the dispatcher."""
        original, expose = torch.max_pool1d, self._expose

        @functools.wraps(original)
        def pooling(*args: Any, **kwargs: Any) -> Any:
            for value in (*args[:1], *kwargs.values()):
                if isinstance(value, torch.Tensor) and not (value.requires_grad and torch.is_grad_enabled()):
                    expose_tensor(expose, value)
            return original(*args, **kwargs)

        self._replace(torch, "max_pool1d", pooling)

    def _patch_property(self, owner: Any, name: str) -> None:
        original = getattr(owner, name, None)
        if not isinstance(original, property) or original.fget is None:
            return
        fget, expose = original.fget, self._expose

        def exposing(tensor: Any) -> Any:
            expose_tensor(expose, tensor)
            return fget(tensor)

        self._replace(owner, name, property(exposing))

    def _patch_copies(self) -> None:
        original, session = torch.UntypedStorage.clone, self._session

        @functools.wraps(original)
        def clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
            self._expose(storage)
            with eager.below_autograd():
                session.make_room(storage, storage.nbytes(), "copying a storage")
            copy = original(storage)
            session.adopt(copy)
            return copy

        self._replace(torch.UntypedStorage, "clone", clone)

    def _patch_state(self, owner: Any) -> None:
        original, session, place = owner.get_rng_state, self._session, torch.UntypedStorage(0)

        @functools.wraps(original)
        def get_rng_state() -> torch.Tensor:
            with eager.below_autograd():
                session.make_room(place, _STATE_BYTES, "reading the state of the random numbers")
            state = original()
            session.adopt(eager.TensorBase.untyped_storage(state))
            return state

        self._replace(owner, "get_rng_state", get_rng_state)

    def _patch_resize(self) -> None:
        owner = torch.UntypedStorage
        original, session = owner.resize_, self._session

        @functools.wraps(original)
        def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            if not hasattr(size, "__index__") or not 0 <= size < 2**63 or size == storage.nbytes():
                return original(storage, size)  # torch refuses what is no size
            with eager.below_autograd():
                announced = session.before_resize(storage, size, _is_known(storage))
                try:
                    return original(storage, size)
                finally:
                    if announced:
                        session.after_resize(storage)

        self._replace(owner, "resize_", resize_)

    def _patch_setter(self, name: str) -> None:
        """The session reads most of torch's settings before each op; of others it learns here that they changed."""
        original, session = getattr(torch._C, name), self._session

        @functools.wraps(original)
        def setter(*args: Any) -> Any:
            try:
                return original(*args)
            finally:
                session.settings_changed()

        self._replace(torch._C, name, setter)

    def _patch_threads(self) -> None:
        original, in_thread = threading.Thread.start, self._in_thread

        @functools.wraps(original)
        def start(thread: threading.Thread) -> None:
            run = thread.run

            def under_budget() -> None:
                in_thread(run)

            thread.run = under_budget  # type: ignore[method-assign]
            original(thread)

        self._replace(threading.Thread, "start", start)

    def _patch_loading(self) -> None:
        """``load_state_dict`` lists the errors that it meets in the message of one ``RuntimeError``."""
        original = torch.nn.Module.load_state_dict

        @functools.wraps(original)
        def load_state_dict(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            with refusals_reraised():
                return original(module, *args, **kwargs)

        self._replace(torch.nn.Module, "load_state_dict", load_state_dict)
