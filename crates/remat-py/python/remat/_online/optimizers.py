"""Steps of optimizers: the state that they keep, and where a step of the program may end."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from .. import _native
from .._memory.tensors import state_of


class Optimizers:
    """Tells a session of each step of an optimizer, after which a step of the program may begin, and of the state that
    optimizers made in their first one.

    The state is overwritten in each step, and a constant from the second on. In the first it was computed from
    gradients, and to make it again they would have to stay after the program let go of them: as many bytes as the
    parameters have. So it is a constant from the first step on, too.
    """

    def __init__(self, session: _native.Session) -> None:
        self._session = session
        #: Of each optimizer the number of parameters that it had state for.
        self._known: WeakKeyDictionary[torch.optim.Optimizer, int] = WeakKeyDictionary()
        self._hook: RemovableHandle | None = None

    def watch(self) -> None:
        """Looks at each optimizer after its steps, until ``leave``."""
        self._hook = register_optimizer_step_post_hook(self._stepped)

    def leave(self) -> None:
        """Looks at none any more."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._known.get(optimizer) != len(optimizer.state):
            self._known[optimizer] = len(optimizer.state)
            self._session.keep_state(state_of(optimizer))
        self._session.may_begin_step()
