"""Where in the program an op was called: its module and its line. Asked once for each place in a step."""

from __future__ import annotations

import gc
import os
import sys
from types import CodeType, FrameType
from weakref import WeakKeyDictionary

import torch

from .. import _native
from .._interrupts import raise_interrupt
from .._torch_internals import eager

#: Module, file, line, function, and in a backward pass the number of the node that autograd runs.
Site = tuple[str, str, int, str, "int | None"]

_OWN = tuple(os.path.dirname(os.path.abspath(str(package.__file__))) + os.sep for package in (torch, _native))


class Sites:
    """Finds modules and lines on the stack of the thread that calls an op."""

    def __init__(self) -> None:
        #: Of each outermost module the names of those within it, by their ids.
        self._names: WeakKeyDictionary[torch.nn.Module, dict[int, str]] = WeakKeyDictionary()
        #: Names of the modules that parameters are of, by the ids of the parameters.
        self._owners: dict[int, str] = {}
        #: The class of the optimizer whose step runs.
        self.optimizer: str | None = None

    def site(self, backward: bool) -> Site:
        """The site of the op that is about to run on this thread."""
        frame: FrameType | None = sys._getframe(1)
        try:
            module, file, line, function, node = self._found(frame, backward)
            return encodable(module), encodable(file), line, encodable(function), node
        except Exception as error:
            raise_interrupt(error)
            # The program's objects may answer with anything; the op runs as it would without a timeline.
            return "", "", 0, "", None
        finally:
            del frame

    def _found(self, frame: FrameType | None, backward: bool) -> Site:
        modules: list[torch.nn.Module] = []
        line: tuple[str, int, str] | None = None
        inside = backward
        while frame is not None:
            code = frame.f_code
            if code is eager.MODULE_CALL:
                modules.append(frame.f_locals["self"])
            elif inside and code is eager.BACKWARD_CALL:
                if modules:
                    break  # recomputed in the backward pass, as by torch.utils.checkpoint
                inside, line = False, None
            elif line is None and _is_programs(code):
                line = (code.co_filename, frame.f_lineno, code.co_name)
            frame = frame.f_back
        file, number, function = line or ("", 0, "")
        if backward and not modules:
            return self._of_leaf(), file, number, function, eager.node_number()
        return self._module(modules), file, number, function, None

    def _of_leaf(self) -> str:
        """The module of the parameter in which autograd is leaving a gradient, if it is."""
        return self._owners.get(id(eager.node_leaf()), "")

    def _module(self, modules: list[torch.nn.Module]) -> str:
        if not modules:
            return f"optimizer ({self.optimizer})" if self.optimizer else ""
        inner, root = modules[0], modules[-1]
        names = self._names.get(root)
        if names is None or id(inner) not in names:
            names = self._names[root] = self._named(root)
        return names.get(id(inner), f"({type(inner).__name__})")

    def _named(self, root: torch.nn.Module) -> dict[int, str]:
        names = {}
        for name, module in root.named_modules():
            own = type(module).__name__
            label = f"{type(root).__name__}/{name} ({own})" if name else own
            names[id(module)] = label
            self._owners.update((id(parameter), label) for parameter in module.parameters(recurse=False))
        return names


def _is_programs(code: CodeType) -> bool:
    """Whether code is of the program, or of a library that it uses, rather than torch's or Remat's."""
    return not code.co_filename.startswith((*_OWN, "<frozen"))


def encodable(text: str) -> str:
    """A text as the recording takes it: a byte of a path that is no UTF-8 reads ``\\udcff``."""
    return text.encode(errors="backslashreplace").decode()


def has_optimizers() -> bool:
    """Whether the program has an optimizer."""
    return bool(_native.instances(gc.get_objects(), torch.optim.Optimizer))
