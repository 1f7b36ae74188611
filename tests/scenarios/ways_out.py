"""Ways out of torch: the bytes are read by someone who dispatches nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .residual import ROWS, WIDTH, deep
from .table import Outcome, outcome, scenario
from .training import batches, mlp


def _handed_out(hand_out: Callable[[Tensor], Any]) -> Outcome:
    """Hands out features before and after pressure, then reads them all."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    given, losses, features = [], [], []
    for x, y in batches(2):
        hidden = x
        for number, layer in enumerate(model):
            hidden = layer(hidden)
            if number % 6 == 1:
                given.append(hand_out(hidden.detach()))
            elif number % 2:
                features.append(hidden.detach())
        loss = F.mse_loss(hidden, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    given += [hand_out(feature) for feature in features[:3]]
    return outcome(losses, model, given=given, features=features[::4])


def _bytes_at(t: Tensor) -> Any:
    import ctypes

    address = t.data_ptr()
    return bytes((ctypes.c_char * 256).from_address(address)).hex()


HAND_OUTS: dict[str, Callable[[Tensor], Any]] = {
    "numpy_arrays": lambda t: t.numpy(),
    "numpy_of_slices": lambda t: t[2:, ::2].numpy(),
    "array_protocol": lambda t: np.asarray(t[:16]),
    "data_pointers": _bytes_at,
    "dlpack_to_torch": lambda t: torch.utils.dlpack.from_dlpack(t),
    "dlpack_to_numpy": lambda t: np.from_dlpack(t),
    "python_lists": lambda t: [*t[:8].tolist(), repr(t), format(t[0, 0]), str(t[:2])],
    "storages": lambda t: [t.untyped_storage()[place] for place in range(64)],
}
for _name, _hand_out in HAND_OUTS.items():
    scenario(
        name=f"handed_out_as_{_name}",
        evicts=_name not in ("numpy_arrays", "dlpack_to_torch", "dlpack_to_numpy"),
    )(lambda hand_out=_hand_out: _handed_out(hand_out))


@scenario()
def arrays_from_outside() -> Outcome:
    array = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
    shared = torch.randn(ROWS, WIDTH).share_memory_()

    def body(h: Tensor, w: Tensor) -> Tensor:
        outside = torch.from_numpy(array)
        return (h @ w).tanh() * outside + torch.tensor(array[0]) + shared

    found = deep(body)
    with torch.no_grad():
        torch.from_numpy(array).mul_(2)
        shared.add_(1)
    return {**found, "array": array, "shared": shared}
