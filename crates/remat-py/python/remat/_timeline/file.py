"""The timeline of a run, from its beginning to its file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .. import _native
from .._memory.tensors import live_tensors, storages_of
from .._outputs import check_output, write_whole
from .._warnings import warn
from .chrome import trace_events
from .memory_viz import snapshot
from .recording import Recording
from .sites import Sites, encodable, has_optimizers


def _page(told: dict[str, Any]) -> bytes:
    return _native.timeline_page(json.dumps(told, separators=(",", ":"))).encode()


_FORMATS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    ".html": _page,
    ".json": lambda told: trace_events(Recording(told)).encode(),
    ".pickle": lambda told: snapshot(Recording(told)),
}


class TimelineFile:
    """Records a run, and writes the file at its end."""

    def __init__(self, path: str | os.PathLike[str], session: _native.Session) -> None:
        self._path = os.fspath(path)
        self._session = session
        self._recording: _native.Recording | None = None
        #: What was recorded, once the recording has ended.
        self._told: str | None = None
        self._sites = Sites()
        #: Optimizers whose parameters were told, by their ids.
        self._known: WeakSet[torch.optim.Optimizer] = WeakSet()
        self._undo: list[Callable[[], None]] = []
        self._pid = os.getpid()
        #: As the run began; the program may put there what it likes.
        self._argv = [encodable(str(word)) for word in sys.argv]

    def start(self) -> None:
        """Begins to record. ``OSError`` if the file cannot be written, before anything else is done."""
        check_output("timeline", self._path)
        self._recording = _native.Recording()
        self._session.record_timeline(self._recording, self._sites.site, has_optimizers)
        hooks = (register_optimizer_step_pre_hook(self._begins), register_optimizer_step_post_hook(self._ended))
        self._undo = [hook.remove for hook in hooks]

    def adopted(self) -> None:
        """Tells parameters among the tensors that existed before the run."""
        known = [tensor for tensor in live_tensors() if isinstance(tensor, torch.nn.Parameter)]
        self._session.note_parameters(storages_of(known))

    def stop(self) -> str | None:
        """Ends the recording and returns it, before tensors are brought back."""
        while self._undo:
            self._undo.pop()()
        if self._told is None and self._recording is not None:
            self._told = self._recording.told()
        return self._told

    def write(self, told: str | None, run: dict[str, Any]) -> None:
        """Writes what was recorded. A warning says why that is not possible, as with a disk that is full."""
        if told is None or os.getpid() != self._pid:
            return
        suffix = os.path.splitext(self._path)[1]
        about = {"argv": self._argv, "version": _native.__version__, "torch": str(torch.__version__), **run}
        try:
            write_whole(self._path, _FORMATS[suffix]({"run": about, **json.loads(told)}))
        except OSError as error:
            warn(f"remat: the timeline {self._path!r} was not written: {error.strerror}")

    def _begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._recording is None:
            return
        if optimizer not in self._known:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            self._session.note_parameters(storages_of(parameters))
            self._known.add(optimizer)
        self._sites.optimizer = type(optimizer).__name__
        self._recording.updating(True)

    def _ended(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._recording is None:
            return
        self._recording.updating(False)
        self._sites.optimizer = None
