"""Budgets as users write them: amounts of bytes, and the devices that they bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from .. import _native
from .._torch_internals import eager
from .amounts import Budget, amount_of, auto_of, main_memory
from .tensors import distinct_bytes, live_tensors


class DeviceBudget(NamedTuple):
    """The bytes allowed on one device."""

    #: Name of the device, as :func:`eager.device_name` gives it.
    name: str
    device: torch.device
    #: ``None`` when unlimited.
    bytes: int | None


def bytes_of(budget: Budget, device: torch.device) -> int:
    """A budget of a device in bytes; ``ValueError`` for one that makes no sense."""
    amount = amount_of(budget)
    if amount.bytes is not None:
        return amount.bytes
    if amount.of_peak is not None:
        raise ValueError(
            f"budget {budget!r}: only `remat run` knows a peak, of `remat measure`; take a share of "
            "remat.measure(...).peak"
        )
    if amount.share is not None:
        total = eager.physical_memory(device) if device.type != "cpu" else main_memory()[0]
        if total is None:
            raise ValueError(f"budget {budget!r}: torch does not tell the memory of {device}; give bytes")
        return max(int(amount.share * total), 1)
    free = eager.free_memory(device) if device.type != "cpu" else main_memory()[1]
    if free is None:
        raise ValueError(f"budget {budget!r}: torch does not tell what is free on {device}; give bytes")
    name = eager.device_name(device)
    held = distinct_bytes(tensor for tensor in live_tensors() if eager.device_name(tensor.device) == name)
    return max(auto_of(free + held), 1)


def budgets_of(budget: Budget | Mapping[str, Budget] | None, device: str | torch.device | None) -> list[DeviceBudget]:
    """The budget of each device; ``None`` leaves one device unlimited, and only counts.

    Raises ``ValueError`` for a device that is not there, for one that two budgets name, and for an amount above its
    physical memory.
    """
    pairs: list[tuple[torch.device, Budget | None]]
    if isinstance(budget, Mapping):
        if device is not None:
            raise ValueError("give the devices in the mapping of budgets or as device=, not both")
        if not budget:
            raise ValueError("no budget given: expected e.g. {'cuda': '6GiB'}")
        pairs = [(device_of(name), amount) for name, amount in budget.items()]
        _check_distinct(dict(zip(budget, (where for where, _ in pairs), strict=True)))
    else:
        pairs = [(device_of(device) if device is not None else _usual_device(budget), budget)]
    return [
        DeviceBudget(eager.device_name(where), where, None if amount is None else bounded(amount, where))
        for where, amount in pairs
    ]


def _check_distinct(devices: Mapping[str, torch.device]) -> None:
    """``ValueError`` where one device goes by two of these names, so that one of its budgets would not hold."""
    seen: dict[str, str] = {}
    for asked, device in devices.items():
        other = seen.setdefault(eager.device_name(device), asked)
        if other != asked:
            raise ValueError(f"budgets of {str(other)!r} and {str(asked)!r} are of one device: give it one budget")


def _usual_device(budget: Budget | None) -> torch.device:
    """The device of a budget that names none: the accelerator if one is in use, else the CPU. A share of a device, and
    what is free there, are of the accelerator if there is one."""
    if budget is not None and amount_of(budget).is_relative:
        return eager.usual_device()
    return eager.device_in_use()


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


def bounded(amount: Budget, device: torch.device) -> int:
    """An amount in bytes; ``ValueError`` for one that makes no sense, or that the device's memory does not hold."""
    size = bytes_of(amount, device)
    if size > _physical_memory(device):
        raise ValueError(
            f"budget {amount!r} is above the physical memory of {device} "
            f"({_native.format_bytes(_physical_memory(device))}); a budget can only lower what torch would take"
        )
    return size


def _physical_memory(device: torch.device) -> int:
    """Bytes of memory that a device has."""
    if device.type == "cpu":
        return main_memory()[0]
    return eager.physical_memory(device) or 1 << 62
