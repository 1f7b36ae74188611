"""Budgets as users write them: amounts of bytes, and the devices that they bound."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import torch

from .. import _native
from .._torch_internals import eager

#: Bytes as an int, or as a text such as ``"6GiB"``.
Budget = str | int


class DeviceBudget(NamedTuple):
    """The bytes allowed on one device."""

    #: Name of the device, as :func:`eager.device_name` gives it.
    name: str
    device: torch.device
    #: ``None`` when unlimited.
    bytes: int | None


def bytes_of(budget: Budget) -> int:
    """A budget in bytes; ``ValueError`` for one that makes no sense."""
    if isinstance(budget, bool) or not isinstance(budget, (str, int)):
        raise ValueError(f"budget {budget!r}: expected bytes as an int or a text such as '6GiB'")
    return _native.parse_bytes(str(budget) if isinstance(budget, int) else budget)


def budgets_of(budget: Budget | Mapping[str, Budget] | None, device: str | torch.device | None) -> list[DeviceBudget]:
    """The budget of each device; ``None`` leaves one device unlimited, and only counts.

    Raises ``ValueError`` for a device that is not there and for an amount above its physical memory.
    """
    pairs: list[tuple[torch.device, Budget | None]]
    if isinstance(budget, Mapping):
        if device is not None:
            raise ValueError("give the devices in the mapping of budgets or as device=, not both")
        if not budget:
            raise ValueError("no budget given: expected e.g. {'cuda': '6GiB'}")
        pairs = [(device_of(name), amount) for name, amount in budget.items()]
    else:
        pairs = [(device_of(device) if device is not None else eager.device_in_use(), budget)]
    return [DeviceBudget(eager.device_name(where), where, _bounded(amount, where)) for where, amount in pairs]


def device_of(asked: str | torch.device) -> torch.device:
    """The device of that name; ``ValueError`` lists the devices of this machine."""
    there = eager.devices()
    try:
        device = torch.device(asked)
        name = f"{device.type}:0" if device.index is None and device.type != "cpu" else eager.device_name(device)
    except (RuntimeError, TypeError):
        name = ""
    if name not in there:
        raise ValueError(f"device {str(asked)!r} is not there: expected one of {', '.join(there)}")
    return device


def _bounded(amount: Budget | None, device: torch.device) -> int | None:
    """An amount in bytes, which the device's memory must hold."""
    size = None if amount is None else bytes_of(amount)
    if size is not None and size > _physical_memory(device):
        raise ValueError(
            f"budget {amount!r} is above the physical memory of {device} "
            f"({_native.format_bytes(_physical_memory(device))}); a budget can only lower what torch would take"
        )
    return size


def _physical_memory(device: torch.device) -> int:
    """Bytes of memory that a device has."""
    if device.type == "cpu":
        return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    return eager.physical_memory(device) or 1 << 62
